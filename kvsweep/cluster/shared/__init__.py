"""What all cores share: the state of a run, its clock and queues, and what is done to them alike."""
