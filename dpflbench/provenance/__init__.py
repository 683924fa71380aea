"""Which sources a run depends on: definitions that can be reached from its parts, without comments and docstrings."""
