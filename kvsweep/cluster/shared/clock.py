"""Durations of operations, the winner tree of next events, FIFO queues, and which workers have something to do."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import Ints, State


def rounded(femtoseconds: int) -> int:
    """Return a duration of at least 1 ps [ps]."""
    return max(1, (femtoseconds + 500) // 1000)


def scaled(value: int, factor: int, divisor: int) -> int:
    """Return ``value * factor / divisor``, rounded down, without that product.

    Nothing overflows where the result, and `factor` times `divisor`, fit: ``value = q divisor + rest``.
    """
    return value // divisor * factor + value % divisor * factor // divisor


def prefill_duration(s: State, tokens: int, squares: int) -> int:
    """Return the time of a step that executes `tokens`, `squares` = Σ (end² − begin²) over its pieces [ps]."""
    time = s.run[col.STEP_FIXED] + s.run[col.STEP_PER_TOKEN] * tokens + s.run[col.STEP_PER_PAIR] * squares // 2
    return rounded(max(s.run[col.STEP_LEAST], time))


def step_coefficients(s: State, d: int, n: int) -> tuple[int, int]:
    """Return the time of a step of `n` sequences [fs], and what each token they store adds [fs]."""
    base = s.run[col.TIMES] + 2 * n
    return int(s.decode[d, base]), int(s.decode[d, base + 1])


def decode_duration(s: State, d: int, n: int, context: int) -> int:
    """Return the time of a step of `n` sequences that store `context` tokens together [ps]."""
    base, slope = step_coefficients(s, d, n)
    return rounded(base + slope * context)


def path_duration(s: State, path: int, pages: int) -> int:
    """Return the time of an isolated copy of `pages` [ps]."""
    return copy_duration(s, s.run[col.PATHS + 2 * path], s.run[col.PATHS + 2 * path + 1], pages)


def copy_duration(s: State, setup: int, per_byte: int, pages: int) -> int:
    """Return the time of a copy of `pages` that takes `setup` [fs] and `per_byte` [1e-18 s] [ps]."""
    return rounded(setup + scaled(per_byte, pages * s.run[col.PAGE_BYTES], 1000))


def is_beyond(s: State, row: int, value: int) -> int:
    """Return 1 where `value` lies outside the measured range `row`."""
    return 0 if s.run[col.DOMAIN + 2 * row] <= value <= s.run[col.DOMAIN + 2 * row + 1] else 1


def earliest(s: State) -> int:
    """Return the resource whose event is next."""
    return int(s.due[1])


def due(s: State, resource: int) -> int:
    """Return the time of the next event of `resource`, NEVER for none [ps]."""
    return int(s.due[s.run[col.LEAVES] + s.run[col.LEAVES] + resource])


def schedule(s: State, resource: int, time: int) -> None:
    """Set the next event of `resource` to `time` [ps] and find the earliest anew; the lower number wins a tie."""
    tree, leaves = s.due, s.run[col.LEAVES]
    times = 2 * leaves
    tree[times + resource] = time
    place = (leaves + resource) >> 1
    while place >= 1:
        left, right = tree[2 * place], tree[2 * place + 1]
        tree[place] = left if tree[times + left] <= tree[times + right] else right
        place >>= 1


def decode_resource(s: State, d: int) -> int:
    """Return the resource of decode steps of worker `d`; its inbound transfers are resource `d`."""
    return int(s.decode.shape[0] + d)


def h2d_resource(s: State, w: int) -> int:
    """Return the resource of retrievals of worker `w`."""
    return int(2 * s.decode.shape[0] + w)


def d2h_resource(s: State, w: int) -> int:
    """Return the resource of write-backs of worker `w`."""
    return int(2 * s.decode.shape[0] + s.prefill.shape[0] + w)


def prefill_resource(s: State, w: int) -> int:
    """Return the resource of prefill steps of worker `w`."""
    return int(2 * (s.decode.shape[0] + s.prefill.shape[0]) + w)


def arrival_resource(s: State) -> int:
    """Return the resource of arrivals, which is the last."""
    return int(s.run[col.N_RESOURCES] - 1)


def push(table: Ints, row: int, queue: int, links: Ints, link: int, item: int) -> None:
    """Put `item` at the end of the queue whose head and tail are at column `queue`, linked by column `link`."""
    links[item, link] = -1
    if table[row, queue] < 0:
        table[row, queue] = item
    else:
        links[table[row, queue + 1], link] = item
    table[row, queue + 1] = item


def pop(table: Ints, row: int, queue: int, links: Ints, link: int) -> int:
    """Take the first item off a queue that is not empty."""
    item: int = table[row, queue]
    table[row, queue] = links[item, link]
    return item


def touch_prefill(s: State, w: int) -> None:
    """Have the dispatch of this instant look at prefill worker `w`."""
    if s.prefill[w, col.DIRTY] == 0:
        s.prefill[w, col.DIRTY] = 1
        _insert(s, col.PREFILL_SIDE, w)


def touch_decode(s: State, d: int) -> None:
    """Have the dispatch of this instant look at decode worker `d`."""
    if s.decode[d, col.DIRTY] == 0:
        s.decode[d, col.DIRTY] = 1
        _insert(s, col.DECODE_SIDE, d)


def _insert(s: State, side: int, w: int) -> None:
    """Put worker `w` in its place among those that were touched; few are, of however many there are."""
    first = s.run[col.TOUCHED + side]
    place = first + s.run[col.N_TOUCHED + side]
    s.run[col.N_TOUCHED + side] += 1
    while place > first and s.lists[place - 1] > w:
        s.lists[place] = s.lists[place - 1]
        place -= 1
    s.lists[place] = w


def occupy(s: State, pool: int, pages: int, time: int) -> None:
    """Count `pages` more (or fewer) held in `pool` from `time` [ps] on."""
    level = col.N_REAL + 2 * pool
    s.real[level] += pages
    s.real[level + 1] += pages * (min(time, s.run[col.OCCUPANCY_END]) * 1e-12)


def host_pool(w: int) -> int:
    """Return the occupancy row of the host pool of worker `w`; that of its device pool is the one before."""
    return 2 * w + 1


def decode_pool(s: State, d: int) -> int:
    """Return the occupancy row of decode worker `d`."""
    return int(2 * s.prefill.shape[0] + d)
