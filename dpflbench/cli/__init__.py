"""The command line: one file a command, registered here; exit 0 well, 1 a failed run or a regression, 2 something to fix."""
