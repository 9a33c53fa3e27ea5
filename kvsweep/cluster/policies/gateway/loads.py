"""What gateway policies call load: the requests in progress at each worker, kept up as requests pass their stages."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def routed(s: State, r: int, w: int, d: int) -> None:
    """Give request `r` to prefill worker `w` and decode worker `d`."""
    s.request[r, col.AT_PREFILL], s.request[r, col.AT_DECODE] = w, d
    pages = s.request[r, col.PAGES]
    s.prefill[w, col.LOAD] += 1
    s.prefill[w, col.LOAD_PAGES] += pages
    s.prefill[w, col.PREFILL_PAGES] += pages
    s.decode[d, col.LOAD] += 1
    s.decode[d, col.LOAD_PAGES] += pages


def prefilled(s: State, r: int) -> None:
    """Note that the last prefill step of request `r` ended."""
    s.prefill[s.request[r, col.AT_PREFILL], col.PREFILL_PAGES] -= s.request[r, col.PAGES]


def left_prefill(s: State, r: int) -> None:
    """Note that request `r` is through with its prefill worker."""
    w = s.request[r, col.AT_PREFILL]
    s.prefill[w, col.LOAD] -= 1
    s.prefill[w, col.LOAD_PAGES] -= s.request[r, col.PAGES]


def left_decode(s: State, r: int) -> None:
    """Note that request `r` is through with its decode worker."""
    d = s.request[r, col.AT_DECODE]
    s.decode[d, col.LOAD] -= 1
    s.decode[d, col.LOAD_PAGES] -= s.request[r, col.PAGES]
