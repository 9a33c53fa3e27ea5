"""What a decision costs: every policy's `decide` timed on the scalar path, called compiled, and in a compiled loop."""
