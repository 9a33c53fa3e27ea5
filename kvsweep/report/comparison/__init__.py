"""The page of two sweeps side by side."""
