"""Commands that fit profiles and hold them against measured runs."""
