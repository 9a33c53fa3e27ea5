"""The worker of least cost by a policy from a file."""

from __future__ import annotations

from kvsweep.cluster.policies.gateway.candidates import load, load_pages, n_workers, pool
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State


def choose(s: State, side: int, r: int, room: int, ask: PolicyFunctions) -> int:
    """Return the candidate of least cost, the first of several; notes a fault where a cost is no number."""
    best, least = -1, 0.0
    for w in range(n_workers(s, side)):
        if pool(s, side, w) >= room:
            cost = _cost(s, side, r, w, ask)
            if cost != cost:
                s.run[col.FAULT], s.run[col.SUSPECT] = col.FAULT_GATEWAY, r
            if best < 0 or cost < least:
                best, least = w, cost
    return best


def _cost(s: State, side: int, r: int, w: int, ask: PolicyFunctions) -> float:
    prefill_pages = device = host = l3 = 0
    if side == col.PREFILL_SIDE:
        own = s.prefill[w]
        prefill_pages, device, host, l3 = own[col.PREFILL_PAGES], own[col.ON_DEVICE], own[col.ON_HOST], own[col.ON_L3]
    request = s.request[r]
    return ask.cost(
        float(side), float(w), float(n_workers(s, side)), float(pool(s, side, w)),
        float(load(s, side, w)), float(load_pages(s, side, w)), float(prefill_pages),
        float(device), float(host), float(l3), float(request[col.PROMPT]), float(request[col.PAGES]),
        float(s.run[col.PAGE]), float(request[col.SESSION]), request[col.DRAW + 2 * side] / 2147483648.0,
        s.run[col.NOW] * 1e-12,
    )  # fmt: skip
