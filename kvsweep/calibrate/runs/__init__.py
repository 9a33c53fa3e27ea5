"""Measured runs: read, replayed, compared, diagnosed."""
