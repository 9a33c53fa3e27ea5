"""``python -m kvsweep`` is the `kvsweep` command."""

from kvsweep.cli import main

if __name__ == "__main__":
    main()
