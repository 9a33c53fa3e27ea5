"""Durations of operations, the winner tree of next events, FIFO queues, and which workers have something to do."""

from __future__ import annotations

from kvsweep.cluster import columns as col
from kvsweep.cluster.state import Ints, State


def rounded(femtoseconds: int) -> int:
    """Return a duration of at least 1 ps [ps]."""
    return max(1, (femtoseconds + 500) // 1000)


def prefill_duration(s: State, tokens: int, squares: int) -> int:
    """Return the time of a step that executes `tokens`, `squares` = Σ (end² − begin²) over its pieces [ps]."""
    fixed, token, pair, least = s.prefill_times[0], s.prefill_times[1], s.prefill_times[2], s.prefill_times[3]
    return rounded(max(least, fixed + token * tokens + pair * squares // 2))


def decode_duration(s: State, d: int, n: int, context: int) -> int:
    """Return the time of a step of `n` sequences that store `context` tokens together [ps]."""
    return rounded(s.decode_times[d, n, 0] + s.decode_times[d, n, 1] * context)


def path_duration(s: State, path: int, pages: int) -> int:
    """Return the time of an isolated copy of `pages` [ps]."""
    payload = pages * s.settings[col.PAGE_BYTES]
    return rounded(s.path_times[path, 0] + s.path_times[path, 1] * payload // 1000)


def is_beyond(s: State, row: int, value: int) -> int:
    """Return 1 where `value` lies outside the measured range `row`."""
    return 0 if s.domain[row, 0] <= value <= s.domain[row, 1] else 1


def schedule(s: State, resource: int, time: int) -> None:
    """Set the next event of `resource` to `time` [ps] and find the earliest anew; the lower number wins a tie."""
    when, tree = s.when, s.tree
    when[resource] = time
    place = (tree.size // 2 + resource) >> 1
    while place >= 1:
        left, right = tree[2 * place], tree[2 * place + 1]
        tree[place] = left if when[left] <= when[right] else right
        place >>= 1


def decode_resource(s: State, d: int) -> int:
    """Return the resource of decode steps of worker `d`; its inbound transfers are resource `d`."""
    return s.decode.shape[0] + d


def h2d_resource(s: State, w: int) -> int:
    """Return the resource of retrievals of worker `w`."""
    return 2 * s.decode.shape[0] + w


def d2h_resource(s: State, w: int) -> int:
    """Return the resource of write-backs of worker `w`."""
    return 2 * s.decode.shape[0] + s.prefill.shape[0] + w


def prefill_resource(s: State, w: int) -> int:
    """Return the resource of prefill steps of worker `w`."""
    return 2 * (s.decode.shape[0] + s.prefill.shape[0]) + w


def arrival_resource(s: State) -> int:
    """Return the resource of arrivals."""
    return 2 * s.decode.shape[0] + 3 * s.prefill.shape[0]


def push(queue: Ints, links: Ints, link: int, item: int) -> None:
    """Put `item` at the end of a queue (head, tail) whose links are the column `link` of `links`."""
    links[item, link] = -1
    if queue[col.HEAD] < 0:
        queue[col.HEAD] = item
    else:
        links[queue[col.TAIL], link] = item
    queue[col.TAIL] = item


def pop(queue: Ints, links: Ints, link: int) -> int:
    """Take the first item off a queue that is not empty."""
    item: int = queue[col.HEAD]
    queue[col.HEAD] = links[item, link]
    return item


def touch_prefill(s: State, w: int) -> None:
    """Have the dispatch of this instant look at prefill worker `w`."""
    if s.prefill[w, col.DIRTY] == 0:
        s.prefill[w, col.DIRTY] = 1
        s.dirty_prefill[s.clock[col.N_DIRTY_PREFILL]] = w
        s.clock[col.N_DIRTY_PREFILL] += 1


def touch_decode(s: State, d: int) -> None:
    """Have the dispatch of this instant look at decode worker `d`."""
    if s.decode[d, col.DIRTY] == 0:
        s.decode[d, col.DIRTY] = 1
        s.dirty_decode[s.clock[col.N_DIRTY_DECODE]] = d
        s.clock[col.N_DIRTY_DECODE] += 1


def occupy(s: State, pool: int, pages: int, time: int) -> None:
    """Count `pages` more (or fewer) held in `pool` from `time` [ps] on."""
    s.occupancy[pool, col.LEVEL] += pages
    s.occupancy[pool, col.WEIGHTED] += pages * (min(time, s.settings[col.OCCUPANCY_END]) * 1e-12)


def host_pool(w: int) -> int:
    """Return the occupancy row of the host pool of worker `w`; that of its device pool is the one before."""
    return 2 * w + 1


def decode_pool(s: State, d: int) -> int:
    """Return the occupancy row of decode worker `d`."""
    return 2 * s.prefill.shape[0] + d
