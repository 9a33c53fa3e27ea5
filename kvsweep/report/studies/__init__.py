"""The pages of cluster studies."""
