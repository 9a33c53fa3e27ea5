"""What files leave open, one module a question: unit of times, size of blocks, what prompts of sessions hold."""
