"""DPSGD."""
