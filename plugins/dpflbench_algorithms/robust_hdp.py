"""Robust-HDP."""
