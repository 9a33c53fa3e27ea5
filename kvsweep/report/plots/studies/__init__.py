"""Figures of cluster studies."""
