"""Compiling with Numba: kernels around policies, whole programs, and the cache of both."""
