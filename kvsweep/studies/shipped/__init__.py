"""Studies that come with kvsweep: those of the paper, and the pictures people expect."""
