"""Uniform-minimum."""
