"""Fits: service models, and step profiles composed of kernels."""
