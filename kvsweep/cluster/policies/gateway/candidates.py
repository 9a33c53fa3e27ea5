"""What gateway policies look at: which workers could hold a request, and how busy they are."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def n_workers(s: State, side: int) -> int:
    """Return the number of workers of `side`."""
    return int(s.prefill.shape[0] if side == col.PREFILL_SIDE else s.decode.shape[0])


def pool(s: State, side: int, w: int) -> int:
    """Return the size of the device pool of worker `w` [page]; candidates are those with at least ``room`` pages."""
    return int(s.prefill[w, col.POOL] if side == col.PREFILL_SIDE else s.decode[w, col.POOL])


def load(s: State, side: int, w: int) -> int:
    """Return the requests in progress at worker `w` of `side`."""
    return int(s.prefill[w, col.LOAD] if side == col.PREFILL_SIDE else s.decode[w, col.LOAD])


def load_pages(s: State, side: int, w: int) -> int:
    """Return the pages of the prompts of the requests in progress at worker `w` of `side` [page]."""
    return int(s.prefill[w, col.LOAD_PAGES] if side == col.PREFILL_SIDE else s.decode[w, col.LOAD_PAGES])


def count(s: State, side: int, room: int) -> int:
    """Return the number of candidates."""
    if room <= s.run[col.LEAST_POOL + side]:
        return n_workers(s, side)
    found = 0
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room:
            found += 1
    return found


def nth(s: State, side: int, room: int, number: int) -> int:
    """Return candidate `number`, counted from 0."""
    if room <= s.run[col.LEAST_POOL + side]:
        return int(number)
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room:
            if number == 0:
                return w
            number -= 1
    return -1
