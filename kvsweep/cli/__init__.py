"""The command line; `kvsweep.cli:main` is the entry point of the `kvsweep` script."""

from kvsweep.cli.app import main

__all__ = ["main"]
