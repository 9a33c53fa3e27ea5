"""How much one request may ask for. A sweep past these belongs to the command line, which streams to a file."""

from __future__ import annotations

MAX_POINTS = 200_000
"""Grid points of a sweep, policies not counted; about a second on two cores."""

MAX_ROWS = 1_000
"""Rows of a simulation."""

MAX_BODY = 1 << 16
"""Size of a request body [byte]."""

MAX_BODY_SECONDS = 10.0
"""Longest time a body may take to arrive [s]."""

MAX_WAIT = 20.0
"""Longest wait [s] for the computations before this one; sweeps use all cores, so they run one at a time."""

MAX_COMPUTE = 60.0
"""Longest time a computation with policies of files may take, compiling included [s]; what takes longer hangs."""

LIMITS = {"points": MAX_POINTS, "rows": MAX_ROWS, "body_bytes": MAX_BODY}
