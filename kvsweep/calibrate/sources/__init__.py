"""Measurements of parts, read strictly: rows of operations, whatever file they came from."""
