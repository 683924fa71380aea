"""Power-of-choice."""
