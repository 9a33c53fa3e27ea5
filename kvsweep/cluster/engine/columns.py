"""Columns that the engine's core has beyond those of `kvsweep.cluster.shared.columns`, from where these end.

Units as there: times [ps], KV in pages unless said otherwise, -1 for none.
"""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col

# Scalars. RESERVE, MAX_INPUT, LOAD_LEAST, PREFETCH_LEAST [token]. READ_…, WRITE_…: paths of L3, as the others.
# UNFINISHED: this instant's loops are not all done. AGAIN: they have run before, and events of it came after.
# FREE_…: rows that were used before and are not now.
# STEP_LIST, DONE_LIST, SOURCES: where these begin in a row of prefill workers.
(
    COLOCATED, OVERLAP, SCHEDULE, MAX_INPUT, RESERVE, JOIN, PREBUILT, LOAD_LEAST, LAYERS, TAKES_EVICTED,
    STORE, STORE_POOL, STOP_POLICY, PREFETCH_LEAST, TIMEOUT, TIMEOUT_PER_KI, BATCH_PAGES, QUERY,
    READ_SETUP, READ_PER_BYTE, WRITE_SETUP, WRITE_PER_BYTE, READ_LOW, READ_HIGH, STORE_LOW, STORE_HIGH, ROUTED,
    UNFINISHED, AGAIN, N_NODES, FREE_NODE, FREE_CHUNK, STARTS, STEP_LIST, DONE_LIST, SOURCES, RATIOS, N_SEGMENTS, N_RUN,
) = range(col.N_RUN, col.N_RUN + 39)  # fmt: skip
FCFS, LPM = range(2)

# Requests. TOKENS to prefill; GENERATED counts when it is in no batch. HELD_PAGES are its own, COVERED those it shares
# with the tree, LOCKED the node it locks. FIRST_AT_DECODE, LAST_TOKEN, ANSWERED: what its first token and its end at
# the client follow from. LOADING: what loading added to its first step. STORED_HITS: of RETRIEVED, those its prefetch
# brought.
(
    TOKENS, GENERATED, TAKEN, HELD_PAGES, COVERED, LOCKED, GAP_NODE, GAP_DEPTH, COMPLETE,
    FIRST_AT_DECODE, LAST_TOKEN, ANSWERED, LOADING, STORED_HITS, SORT_KEY, RANK,
    FETCH_STATE, FETCH_WANTED, FETCH_FOUND, FETCH_DONE, FETCH_SPACE, FETCH_BEGAN,
    FETCH_PINNED, FETCH_FROM, STORED_BEGIN, STORED_END, NEXT_FETCH, N_REQUEST,
) = range(col.N_REQUEST, col.N_REQUEST + 28)  # fmt: skip

# Prefill workers. PHASE of the scheduler; of the round being formed what is left (REM_…, OFF [token]), what was loaded,
# the stall, why it ended. FOUND_…: the match of the candidate.
(
    PHASE, RESULTS_DUE, N_DONE, LAUNCH_AT, STEP_TIME, STALL, REM_INPUT, REM_CHUNK, OFF, OFF_UP, HELD_BEFORE, LOADED,
    STEP_LOADED, WHY,
    FOUND_NODE, FOUND_DEVICE, FOUND_HOST, FOUND_DEEPEST, BETWEEN, BATCH_FULL, N_OUT, FETCHING,
    READING, STORING, STORE_READS, STORE_WRITES, STORE_READS_BEYOND, STORE_WRITES_BEYOND,
    STORE_READ_PAGES, STORE_WRITTEN_PAGES, STORED_FROM,
    BOOTING, BOOTING_TAIL, INFLIGHT, INFLIGHT_TAIL, COPYING, COPYING_TAIL, COPIED, COPIED_TAIL, LOADS, LOADS_TAIL,
    READS, READS_TAIL, WRITES, WRITES_TAIL, N_PREFILL,
) = range(col.N_PREFILL, col.N_PREFILL + 46)  # fmt: skip
IDLE, STALLED, STEPPING = range(3)
"""Phases."""
NO_FETCH, FETCH_QUEUED, FETCH_ASKED, FETCH_READ, FETCH_ENDED, FETCH_CLOSED = range(-1, 5)
"""States of a prefetch."""

# Decode workers. ROWS: most requests with device KV; N_FRESH of a prebuilt round stand behind the batch;
# N_STALE members are through. LOWERED: whether the first step of a run lowers the ratio. D_STALL: the stall of the
# loop. ACTIVE: what it is busy with. LAST_END: of the last run of steps, which began at BOUNDARY.
(
    ACTIVE, ROWS, N_FRESH, N_STALE, N_TRANSFER, N_WAITING, N_ARRIVED, D_STALL, RETRACTIONS, LOWERED, LAST_END,
    TRANSFER, TRANSFER_TAIL, RETRACTED, RETRACTED_TAIL, N_DECODE,
) = range(col.N_DECODE, col.N_DECODE + 16)  # fmt: skip
RESTING, DECODING, PREBUILDING, STALLING, DECODED, PREBUILT_DONE = range(6)
"""What a decode worker is busy with."""
N_RATIO = 4
"""Real numbers of a colocated worker, from RATIOS on: the ratio, its start, its least, what a step takes off."""

# Nodes of the trees: LENGTH pages of the chain of request CHAIN_OF from page BEGIN on, which is page OFFSET of the
# segment at place PLACE. NODE_LONGEST [token]: the most that is known of a
# conversation with it. NODE_TTL: how long it may be idle by a retention policy of a file; -1 before that was asked.
(
    TREE, CHAIN_OF, BEGIN, LENGTH, PLACE, OFFSET, NODE_SEGMENT, PARENT, CHILD, CHILD_AFTER, CHILD_BEFORE, DEVICE, HOST,
    DEVICE_CHILDREN, LOCKS, HOST_LOCKS, HITS, WALK, WALKED, MADE, MADE_AT, LIST, BEFORE, AFTER, BUCKET_AFTER,
    QUEUE_AFTER, QUEUE_PAGES, PRIORITY, NODE_LONGEST, NODE_TTL, N_NODE,
) = range(31)  # fmt: skip
ON_DEVICE_LIST, ON_HOST_LIST = range(2)

# Trees: those of the prefill workers, their routed sets, L3.
WALKS, LIST_HEAD, LIST_TAIL, HOST_HEAD, HOST_TAIL, SIZE, CAPACITY, N_TREE = range(8)

# Pairs of a prefill and a decode worker.
QUEUE, QUEUE_TAIL, ACTIVE_CHUNK, LEFT, SINCE, K, STARTING, START_AFTER, N_PAIR = range(9)

CHUNK_AT, N_CHUNK = range(col.N_CHUNK, col.N_CHUNK + 2)
"""Time a chunk was queued; an unused chunk is linked by CHUNK_NEXT."""
