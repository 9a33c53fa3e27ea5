"""From a trace, a cluster file and a profile to the state a run begins with."""
