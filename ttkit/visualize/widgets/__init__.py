"""Pictures that move under the reader's hands: steps, a plan to build, a schedule, training."""
