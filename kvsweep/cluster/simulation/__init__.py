"""Runs: the cores by name, and the way from files to a finished run."""
