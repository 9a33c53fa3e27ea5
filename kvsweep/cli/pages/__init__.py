"""Commands that show results: reports, comparisons, figures, the dashboard."""
