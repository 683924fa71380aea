"""The round, one file per verb: schedule, gradients, simulate, evaluate."""
