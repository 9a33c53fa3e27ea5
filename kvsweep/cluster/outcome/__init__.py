"""What a run leaves: its Dataset, its events, its figures in a few numbers."""
