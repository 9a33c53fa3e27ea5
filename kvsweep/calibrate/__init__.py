"""Service models from measurements taken on parts, and what they predict of whole runs."""
