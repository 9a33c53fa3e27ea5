"""Figures of hardware: rooflines, and restore against recompute on many deployments."""
