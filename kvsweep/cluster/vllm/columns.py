"""Columns of the integer arrays the vLLM worker keeps; times are in picoseconds, counts in tokens or blocks."""

from __future__ import annotations

# Requests
ARRIVAL = 0
PROMPT = 1
OUTPUT = 2
BASE = 3
"""Where the request's blocks begin in `keys` and `table`."""
COMPUTED = 4
"""Tokens scheduled, done or in flight."""
RECEIVED = 5
"""Output tokens whose values the scheduler knows."""
IN_FLIGHT = 6
"""Output tokens that running steps will produce."""
HELD = 7
"""Blocks held."""
NEXT = 8
"""Next request of the waiting queue, -1 for none."""
SCHEDULED = 9
FIRST_TOKEN = 10
FINISH = 11
PREEMPTIONS = 12
HIT = 13
"""Tokens found in the prefix cache at the first admission."""
RECOVERED = 14
"""Tokens found in the prefix cache at later admissions, all together."""
WAITING = 15
"""Whether the request is in the waiting queue."""
N_REQUEST = 16

# Limits
N_BLOCKS = 0
BLOCK_TOKENS = 1
TOKEN_BUDGET = 2
MAX_SEQUENCES = 3
RESERVE_FULL = 4
STEPS_IN_FLIGHT = 5
PREFIX_CACHE = 6
WATERMARK = 7
N_LIMITS = 8

# State of the run
NOW = 0
ARRIVED = 1
N_RUNNING = 2
WAIT_HEAD = 3
WAIT_TAIL = 4
N_WAITING = 5
N_FREE = 6
FLIGHT_HEAD = 7
N_FLIGHT = 8
GPU_FREE = 9
N_LOG = 10
N_RUN = 11

# The step under construction
TOKENS = 0
"""Tokens of the step."""
CHUNK = 1
"""Tokens of those requests that run more than one."""
PRIOR = 2
"""Tokens before them, summed over these requests."""
PAIRS = 3
"""Twice the sum over these requests of tokens x (tokens before + half the tokens)."""
DECODES = 4
"""Requests that run one token."""
CONTEXT = 5
"""Tokens before theirs, summed."""
LONGEST = 6
"""Tokens before theirs, the most."""
ROWS = 7
"""Requests of the step."""
N_STEP = 8

# Log of steps
START = 0
END = 1
LOG_TOKENS = 2
LOG_CHUNK = 3
LOG_ROWS = 4
LOG_RUNNING = 5
LOG_WAITING = 6
LOG_FREE = 7
LOG_EXTRAPOLATED = 8
N_LOG_COLUMNS = 9

DONE = 0
GROW = 1
STUCK = 2
