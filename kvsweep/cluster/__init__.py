"""Discrete-event simulation of prefill-decode clusters with hierarchical KV caches; the rules are in ``README.md``."""
