"""The core of ``fidelity: engine``; its rules are in ``README.md``."""
