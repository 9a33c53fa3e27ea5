"""Columns of the integer arrays of vLLM workers; times are in picoseconds, counts in tokens or blocks.

Those that all cores share are in `kvsweep.cluster.shared.columns`.
"""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col

N_LOG = col.N_RUN
"""Scalar of the run: lines of the log of steps."""
N_FLEET = N_LOG + 1

# Why waiting requests were not admitted in a pass
NOT_BLOCKED, BY_SEQUENCES, BY_BUDGET, BY_BLOCKS = range(4)

# Requests.
# BASE: where the request's blocks begin in `place`. COMPUTED: tokens scheduled, done or in flight. RECEIVED: output
# tokens whose values the scheduler knows, IN_FLIGHT those that running steps will produce. HELD: blocks held. NEXT of
# the waiting queue, -1 for none, and whether it is WAITING there. HIT: tokens found in the prefix cache at the first
# admission, RECOVERED at later ones, all together. BLOCKED_FOR: times waited for sequences, budget and blocks until
# the first admission; before it, the worker's own sums at the arrival. PREEMPTED_FOR: time waited after preemptions.
(
    BASE, COMPUTED, RECEIVED, IN_FLIGHT, HELD, NEXT, WAITING, PREEMPTIONS, HIT, RECOVERED,
    BLOCKED_FOR, BLOCKED_FOR_BUDGET, BLOCKED_FOR_BLOCKS, PREEMPTED_AT, PREEMPTED_FOR, N_REQUEST,
) = range(col.N_REQUEST, col.N_REQUEST + 16)  # fmt: skip

# Places of the blocks of requests, one after the other
KEY, BLOCK, N_PLACE = range(3)

# Limits of a worker; N_BLOCKS are usable ones. GRAPHS_…: its part of the captured batch sizes.
(
    N_BLOCKS, BLOCK_TOKENS, TOKEN_BUDGET, MAX_SEQUENCES, RESERVE_FULL, STEPS_IN_FLIGHT, PREFIX_CACHE, WATERMARK,
    GRAPHS_BEGIN, GRAPHS_END, N_LIMITS,
) = range(11)  # fmt: skip

# State of a worker. N_IDLE: free blocks that have a name. BLOCKED: why the last pass, at BLOCKED_SINCE, left requests
# waiting; then the time spent so, by cause.
(
    NOW, N_RUNNING, WAIT_HEAD, WAIT_TAIL, N_WAITING, N_FREE, N_IDLE, EVICTED, FLIGHT_HEAD, N_FLIGHT, GPU_FREE,
    BLOCKED, BLOCKED_SINCE, BLOCKED_TIME,
) = range(14)  # fmt: skip
N_WORKER = BLOCKED_TIME + 4

# Blocks of a worker; those nobody holds are in a ring, whose head and tail are the entry after the last block. Named
# blocks are in chains by their content's hash, in the order of naming.
HOLDERS, CONTENT, AFTER, BEFORE, CHAIN_AFTER, CHAIN_BEFORE, N_BLOCK = range(7)
FIRST, LAST, N_BUCKET = range(3)

# The step under construction.
# CHUNK: tokens of those requests that run more than one; PRIOR: tokens before them, PAIRS: twice the sum of tokens x
# (tokens before + half the tokens). DECODES: requests that run one token; CONTEXT: tokens before theirs, LONGEST: the
# most. ROWS: requests of the step.
TOKENS, CHUNK, PRIOR, PAIRS, DECODES, CONTEXT, LONGEST, ROWS, N_STEP = range(9)

# Log of steps
(
    START, END, LOG_TOKENS, LOG_CHUNK, LOG_ROWS, LOG_RUNNING, LOG_WAITING, LOG_FREE, LOG_EXTRAPOLATED, N_LOG_COLUMNS,
) = range(10)  # fmt: skip
