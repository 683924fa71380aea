"""The built-in algorithms, one file a paper, registered through entry points like anybody else's."""
