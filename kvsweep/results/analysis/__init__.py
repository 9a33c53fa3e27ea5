"""What follows from stored results: verdicts, comparisons, slices, summaries, figures of studies."""
