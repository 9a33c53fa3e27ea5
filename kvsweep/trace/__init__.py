"""Traces of requests: reading, generating, converting, sampling and their statistics."""

from kvsweep.trace.model import Note, Trace
from kvsweep.trace.read import ReadOptions, read_trace

__all__ = ["Note", "ReadOptions", "Trace", "read_trace"]
