"""Commands of the analytic model: hardware, one request, sweeps, what a decision costs."""
