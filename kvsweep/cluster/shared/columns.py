"""Names of the columns of the state's integer arrays, and the codes that stand in them.

Times are [ps], KV is in pages unless said otherwise, -1 is no request, worker, entry, chunk or time. Where a device
column is followed by its host twin, the index of the tier (DEVICE_TIER, HOST_TIER) is added to the first.
"""

from __future__ import annotations

NEVER = 1 << 62
"""Time of an event that is not due [ps]."""

DEVICE_TIER, HOST_TIER = range(2)
PREFILL_SIDE, DECODE_SIDE = range(2)
HANDOFF, H2D, D2H = range(3)
"""Rows of the path coefficients."""

# What `advance` returns.
DONE, PAUSED, GROW, STUCK, NONSENSE = range(5)

# Scalars of the run: first what changes (SUSPECT is the request a bad end is about), then constants. ARRIVED counts
# requests. TURN is the gateway's next worker of each side; GROWTH, INBOUND, TIMES are where these begin in a row of
# decode workers, SESSIONS, TOUCHED (by side), PENDING and ORACLE where these do in `State.lists`. LEAST_POOL, MOST_POOL
# [page] are of the workers of a side. BEYOND [token], for ``tlru``: what a conversation needs beyond its length, which
# is below 0 where it needs less.
(
    NOW, ARRIVED, N_PENDING, N_TOUCHED, N_TOUCHED_DECODE, N_ENTRIES, N_CHUNKS, LEFT, SUSPECT, FAULT, TURN, TURN_DECODE,
    PAGE, WINDOW, GATEWAY, BALANCE_REQUESTS, EVICTION, RETENTION, TTL, CHECK, THRESHOLD, SHARING, RETRIEVAL, FRONT,
    RATE_WINDOW, PAGE_BYTES, OCCUPANCY_END, N_RESOURCES, LEAVES, GROWTH, INBOUND, TIMES,
    LEAST_POOL, LEAST_POOL_DECODE, MOST_POOL, MOST_POOL_DECODE, BEYOND,
    CLOSED, SESSIONS, SESSIONS_DECODE, TOUCHED, TOUCHED_DECODE, PENDING, ORACLE,
    STEP_FIXED, STEP_PER_TOKEN, STEP_PER_PAIR, STEP_LEAST, PATHS,
) = range(49)  # fmt: skip
"""PATHS: (setup [fs], per byte [1e-18 s]) of each path; then DOMAIN: (low, high) of each measured range."""
DOMAIN = PATHS + 6
N_RUN = DOMAIN + 14
(
    BALANCE_RATIO, MATCH_RATIO, LOAD_SCALE, DEVICE_CREDIT, HOST_CREDIT, DISK_CREDIT, ACTIVE_WEIGHT,
    TARGET, TOKEN_SECONDS, PAIR_SECONDS, RECOMPUTES, ASKED,
) = range(12)  # fmt: skip
N_REAL = ASKED + 20
"""Real numbers, at last what a retrieval policy was asked that answered nonsense (fields of `policies.Context`); after
them, for each pool: pages held, and the sum of (change x time of change) [page s]."""
FAULT_GATEWAY, FAULT_EVICTION, FAULT_RETENTION = 1, 2, 3
"""What FAULT says: a policy that answered NaN; 0 is none, or the retrieval policy."""
FROM_FILE = 1 << 8
"""Code of a gateway, eviction or retention policy that is not built in."""
RETRIEVE_ALL, RETRIEVE_NONE, RETRIEVE_ASK = range(3)
SHARE_NONE, SHARE_EQUALLY, SHARE_FIFO = range(3)

# Requests. CHAIN to CHAIN_END are places in `State.chain`. IN_PLACE [page] are computed where they already are.
# FOLLOWER is the request that arrives THINK [ps] (its own) after this one is over, in closed loop.
# PROMPT, OUTPUT, POSITION, GAP_…, SENT, TO_DO [token]; FULL, PAGES: full pages, and with the rest.
(
    ARRIVAL, PROMPT, OUTPUT, SESSION, FULL, PAGES, REJECTED, AT_PREFILL, AT_DECODE,
    MATCHED, RETRIEVED, ADMITTED, H2D_BEGAN, READY, BEGAN, PREFILLED, FIRST_STEP_END, RESERVED, CHUNK_QUEUED,
    CHUNK_BEGAN, CHUNK_ALONE, HANDED, JOINED, FIRST_TOKEN, FINISHED, FINISH_STEP,
    POSITION, NEXT_POSITION, GAP_BEGIN, GAP_END, SENT, TO_DO, PRIVATE, HOLDS, WRITE_BEGIN, WRITE_END,
    CHUNK_HEAD, CHUNK_TAIL, SLOTS_BEFORE, CAPACITY_BEFORE, NEXT_PREFILL, NEXT_DECODE, NEXT_WRITE, NEXT_ROUTED,
    DRAW, DRAW_2, DRAW_3, DRAW_4, CHAIN, CHAIN_END, IN_PLACE, FOLLOWER, THINK, N_REQUEST,
) = range(54)  # fmt: skip
REQUEST_INPUTS = 6
"""The first columns of a request are given; all others start at -1."""

# What prefill and decode workers share, for the gateway.
# LOAD [request] and the two after it, their prompts' pages and those of prompts still in prefill [page]:
# `gateway.loads`. What the worker holds of the request to be routed, by tier [page], is filled in for policies that
# look at it.
POOL, LOAD, LOAD_PAGES, PREFILL_PAGES, DIRTY, BUSY_TIME, ON_DEVICE, ON_HOST, ON_L3, N_COMMON = range(10)
# Prefill workers; a row goes on with the requests of the step. Queues have a head and a tail.
# AGE: the greatest priority of a victim (gdsf). NEXT_DROP: no check before it has anything to ask a retention policy of
# a file, or to drop by what it answered.
# STEP_…: tokens, Σ (end² − begin²) and farthest position of the step being formed.
(
    HOST_POOL, FREE, HOST_FREE, IDLE, HOST_IDLE, EVICTED, HOST_EVICTED, EXPIRED, HOST_EXPIRED, AGE, HOST_AGE,
    CHUNK, SLOTS, USED_SLOTS, PARTIAL, N_STEP, STEP_TOKENS, STEP_SQUARES, STEP_REACH,
    SENDING, SEND_TAG, BLOCKED, BLOCKED_SINCE, BLOCKED_SLOTS, BLOCKED_CAPACITY,
    RETRIEVED_PAGES, WRITTEN_PAGES, SENT_PAGES, RECENT, RECENT_FIRST, RECENT_LAST,
    STEPS, H2DS, D2HS, STEPS_BEYOND, H2DS_BEYOND, D2HS_BEYOND,
    WAITING, WAITING_TAIL, RETRIEVING, RETRIEVING_TAIL, READIED, READIED_TAIL, WRITING, WRITING_TAIL,
    SOURCE, SOURCE_TAIL, IDLE_LIST, IDLE_TAIL, HOST_IDLE_LIST, HOST_IDLE_TAIL, NEXT_DROP, HOST_NEXT_DROP, N_PREFILL,
) = range(N_COMMON, N_COMMON + 54)  # fmt: skip
# Decode workers; a row goes on with the batch, then as the constants above say.
# CONTEXT [token] stored by the batch; VIRTUAL, LAST_TAG [ps/256]; STEP counts steps, RUN those until the event.
(
    PROMISED, HELD, RUNNING, MAX_RUNNING, CONTEXT, STEP, BOUNDARY, RUN, VIRTUAL, VIRTUAL_AT, LAST_TAG, N_INBOUND,
    RECEIVED_PAGES, DECODE_STEPS, CHUNKS, DECODE_STEPS_BEYOND, CHUNKS_BEYOND,
    RESERVING, RESERVING_TAIL, JOINING, JOINING_TAIL, N_DECODE,
) = range(N_COMMON, N_COMMON + 22)  # fmt: skip
NOT_BLOCKED, BY_SLOTS, BY_CAPACITY = range(3)

# Entries: one segment at one worker. DEVICE, HOST: resident pages; CLAIMED: those and the ones in flight to the host.
# DEPTH [page] is the position of its first page. LONGEST [token]: the longest prompt admitted with it. DROP_AT: the
# check at which it is dropped if nothing below it is left, by a retention policy of a file; -1 before that was asked.
(
    LENGTH, PARENT, PINS, USES, RELEASED, DEVICE, HOST, CLAIMED, BORN, HOST_BORN, CHILDREN, HOST_CHILDREN,
    BEFORE, HOST_BEFORE, AFTER, HOST_AFTER, PRIORITY, HOST_PRIORITY, DEPTH, OF_WORKER, OF_SEGMENT, LONGEST,
    DROP_AT, HOST_DROP_AT, N_ENTRY,
) = range(25)  # fmt: skip

SLOT_WORKER, SLOT_SEGMENT, SLOT_ENTRY, N_SLOT = range(4)
"""Columns of the hash table of entries."""
SEGMENT, ENTRY, SEGMENT_PAGES, N_PLACE = range(4)
"""Columns of a chain."""
CHUNK_REQUEST, CHUNK_PAGES, CHUNK_IS_LAST, CHUNK_NEXT, N_CHUNK = range(5)

# Rows of the measured domain; a path adds its number to PATH_PAYLOAD.
DOMAIN_STEP, DOMAIN_REACH, DOMAIN_BATCH, DOMAIN_CONTEXT, DOMAIN_PAYLOAD = range(5)
