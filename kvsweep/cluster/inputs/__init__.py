"""What a user states: the cluster file, its presets and notes, and profiles of what operations cost."""
