"""Commands of the cluster simulator and its traces."""
