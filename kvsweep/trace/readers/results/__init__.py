"""Results of load generators and tracers that kept a record of every request: when it was sent, how long it was."""
