"""Readers of trace formats, one a module or family: `read(source, shape)` returns the trace of a file's records.

What each format needs and means is told in `kvsweep.trace.formats`.
"""
