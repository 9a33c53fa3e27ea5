"""The worker on which a request costs least, by what is cached, computed and held there (Dynamo's KV router)."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import load, load_pages, n_workers, pool
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int) -> int:
    """Return a candidate of the least cost, of several the one the request's first draw of this side falls on."""
    least, equal = 0.0, 0
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room:
            cost = _cost(s, side, r, w)
            if equal == 0 or cost < least:
                least, equal = cost, 0
            if cost == least:
                equal += 1
    number = s.request[r, col.DRAW + 2 * side] % equal
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room and _cost(s, side, r, w) == least:
            if number == 0:
                return w
            number -= 1
    return -1


def _cost(s: State, side: int, r: int, w: int) -> float:
    """Return ``load_scale * max(0, raw prefill - credit) + decode + weight * active`` [page]."""
    pages = s.request[r, col.PAGES]
    prefill = 0.0
    if side == col.PREFILL_SIDE:
        credit = (
            s.real[col.DEVICE_CREDIT] * s.prefill[w, col.ON_DEVICE]
            + s.real[col.HOST_CREDIT] * s.prefill[w, col.ON_HOST]
            + s.real[col.DISK_CREDIT] * s.prefill[w, col.ON_L3]
        )
        prefill = s.real[col.LOAD_SCALE] * max(0.0, s.prefill[w, col.PREFILL_PAGES] + pages - credit)
    active = s.real[col.ACTIVE_WEIGHT] * load(s, side, w)
    return float(prefill + (load_pages(s, side, w) + pages) + active)
