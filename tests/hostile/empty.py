"""Supplies nothing at all."""
