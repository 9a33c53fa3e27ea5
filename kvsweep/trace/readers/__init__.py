"""Readers of trace formats, one a module: `NAME`, `WHAT`, whether a first record `matches`, and `read`."""
