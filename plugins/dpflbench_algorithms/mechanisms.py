"""Gaussian and Laplace noise."""
