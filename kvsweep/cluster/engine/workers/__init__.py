"""What prefill, decode and colocated workers do: rounds, batches, steps and the handoff between them."""
