"""Interactive pictures: the steps of a plan, a plan to build, a schedule to edit, a run."""
