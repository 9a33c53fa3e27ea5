"""The version of kvsweep, which files and pages are marked with."""

__version__ = "0.1.0"
