"""Figures of what was measured: decisions, and predictions beside runs."""
