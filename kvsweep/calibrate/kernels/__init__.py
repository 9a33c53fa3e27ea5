"""Kernel profiles and databases, and the layers a step is made of."""
