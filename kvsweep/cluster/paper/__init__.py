"""The core of ``fidelity: paper``; its rules are in ``README.md``."""
