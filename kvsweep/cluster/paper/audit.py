"""The checker: what must hold after every instant, whatever the policies do. Slow; for tests and ``--check``."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State

RULES = (
    "",
    "the device pool of a prefill worker holds what it holds once, within its capacity",
    "the host pool of a prefill worker holds what it holds once, within its capacity",
    "idle pages are those that nothing pins",
    "what is resident is prefix-closed and within its segment",
    "what a request has reached is resident, and what it has not is its own",
    "hit and computed tokens add up to the prompt",
    "a decode worker promises and holds no more than its pool",
    "a decode batch is as its requests are",
)
"""What a broken rule, by its number, says should have held."""


def broken_rule(s: State) -> int:
    """Return the number of a rule that does not hold, 0 if all do."""
    for w in range(s.prefill.shape[0]):
        found = _pools(s, w)
        if found != 0:
            return found
    for r in range(s.request.shape[0]):
        if s.request[r, col.ADMITTED] >= 0:
            found = _request(s, r)
            if found != 0:
                s.run[col.SUSPECT] = r
                return found
    for d in range(s.decode.shape[0]):
        found = _batch(s, d)
        if found != 0:
            return found
    return 0


def _pools(s: State, w: int) -> int:
    if not _are_closed(s, w):
        return 4
    device = host = idle = host_idle = 0
    for e in range(s.run[col.N_ENTRIES]):
        if s.entry[e, col.OF_WORKER] != w:
            continue
        device += s.entry[e, col.DEVICE]
        host += s.entry[e, col.CLAIMED]
        if s.entry[e, col.PINS] == 0:
            idle += s.entry[e, col.DEVICE]
            host_idle += s.entry[e, col.HOST]
    for r in range(s.request.shape[0]):
        if s.request[r, col.AT_PREFILL] == w and s.request[r, col.ADMITTED] >= 0:
            device += s.request[r, col.PRIVATE]
    own = s.prefill[w]
    if own[col.FREE] < 0 or device + own[col.FREE] != own[col.POOL] or s.real[col.N_REAL + 4 * w] != device:
        return 1
    if (
        own[col.HOST_FREE] < 0
        or host + own[col.HOST_FREE] != own[col.HOST_POOL]
        or s.real[col.N_REAL + 4 * w + 2] != host
    ):
        return 2
    return 0 if idle == own[col.IDLE] and host_idle == own[col.HOST_IDLE] else 3


def _are_closed(s: State, w: int) -> bool:
    closed = True
    for e in range(s.run[col.N_ENTRIES]):
        closed = closed and (s.entry[e, col.OF_WORKER] != w or _is_closed(s, e))
    return closed


def _is_closed(s: State, e: int) -> bool:
    length, parent = s.entry[e, col.LENGTH], s.entry[e, col.PARENT]
    if not 0 <= s.entry[e, col.HOST] <= s.entry[e, col.CLAIMED] <= length or s.entry[e, col.PINS] < 0:
        return False
    if not 0 <= s.entry[e, col.DEVICE] <= length:
        return False
    if parent >= 0:
        whole = s.entry[parent, col.LENGTH]
        for column in (col.DEVICE, col.HOST, col.CLAIMED):
            if s.entry[e, column] > 0 and s.entry[parent, column] < whole:
                return False
    return True


def _request(s: State, r: int) -> int:
    request, page = s.request[r], s.run[col.PAGE]
    hits = (request[col.MATCHED] + request[col.RETRIEVED]) * page
    gone = request[col.PROMPT] - request[col.TO_DO] - hits
    if request[col.TO_DO] < 0 or gone < 0 or hits >= request[col.PROMPT]:
        return 6
    if request[col.HANDED] >= 0:
        return 0 if request[col.TO_DO] == 0 and request[col.PRIVATE] == 0 else 5
    reached = request[col.POSITION] // page
    in_place = request[col.IN_PLACE] if reached < request[col.FULL] else 0
    if request[col.PRIVATE] != request[col.PAGES] - reached - in_place:
        return 5
    for place in range(s.request[r, col.CHAIN], s.request[r, col.CHAIN_END]):
        e = s.chain[place, col.ENTRY]
        pages = min(reached, s.entry[e, col.LENGTH])
        if s.entry[e, col.DEVICE] < pages or s.entry[e, col.PINS] < 1:
            return 5
        reached -= pages
    return 0


def _batch(s: State, d: int) -> int:
    own = s.decode[d]
    if not 0 <= own[col.HELD] <= own[col.PROMISED] <= own[col.POOL]:
        return 7
    context = 0
    for place in range(own[col.RUNNING]):
        r = s.decode[d, col.N_DECODE + place]
        done = own[col.STEP] - (s.request[r, col.FINISH_STEP] - s.request[r, col.OUTPUT])
        context += s.request[r, col.PROMPT] + done
    return 0 if context == own[col.CONTEXT] and own[col.RUNNING] <= own[col.MAX_RUNNING] else 8
