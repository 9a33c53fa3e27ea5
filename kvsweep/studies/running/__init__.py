"""Running a study: its cells, their workloads, the journal, the Dataset of its figures."""
