"""The time of a run, modelled: records of its calls, read from the tape, and their summary."""
