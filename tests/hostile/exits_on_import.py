"""Raises a message of several lines when it is imported."""

raise RuntimeError("first line\nsecond line\x1b[2J")
