"""Figures for print and notebooks: one module a kind, one style for all. The only modules that import matplotlib."""
