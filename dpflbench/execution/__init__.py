"""Where runs happen and where their records lie."""
