"""Colocated vLLM v1 workers; their rules are in ``README.md``."""
