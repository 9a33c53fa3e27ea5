"""Commands of the shipped studies."""
