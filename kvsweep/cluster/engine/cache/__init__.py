"""KV of a worker: its tree, what is evicted, inserted and copied, and the third tier."""
