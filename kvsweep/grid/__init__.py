"""Policies compiled to kernels and evaluated over the product of axes."""
