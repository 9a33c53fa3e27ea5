"""Files as records: opened whatever packs them, taken apart whatever they are written in, and never executed."""
