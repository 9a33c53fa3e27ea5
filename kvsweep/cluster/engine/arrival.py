"""Arrivals: which workers a request is given to (README §2)."""

from __future__ import annotations

from kvsweep.cluster.engine import columns as eng
from kvsweep.cluster.engine.cache.l3 import prefetch
from kvsweep.cluster.engine.routing import choose_prefill
from kvsweep.cluster.engine.workers.batch import end_run_early
from kvsweep.cluster.engine.workers.rounds import join_waiting
from kvsweep.cluster.policies.gateway import choose
from kvsweep.cluster.policies.gateway.candidates import count
from kvsweep.cluster.policies.gateway.loads import routed
from kvsweep.cluster.policies.retrieval import note_arrival
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.arrivals import take
from kvsweep.cluster.shared.clock import push, touch_decode, touch_prefill
from kvsweep.cluster.shared.completion import reject
from kvsweep.cluster.shared.policy_functions import PolicyFunctions
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.shared.waiting import begin_waiting


def arrive(s: State, ask: PolicyFunctions) -> None:
    """Give the request that arrives to its workers, or reject it."""
    r = take(s)
    at_prefill, at_decode = _rooms(s, r)
    rejected = count(s, col.PREFILL_SIDE, at_prefill) == 0
    if s.run[eng.COLOCATED] == 0:
        rejected = rejected or count(s, col.DECODE_SIDE, at_decode) == 0
    if rejected:
        reject(s, r)
        return
    _prepare(s, r)
    w = d = choose_prefill(s, r, at_prefill, ask)
    if s.run[eng.COLOCATED] == 0:
        d = choose(s, col.DECODE_SIDE, r, at_decode, ask)
    routed(s, r, w, d)
    note_arrival(s, w, r)
    if s.run[eng.STORE] == 1:
        prefetch(s, w, r, ask)
    if s.run[eng.COLOCATED] == 1:
        if s.prefill[w, eng.BATCH_FULL] == 0:
            end_run_early(s, w)
        begin_waiting(s, w, r)
        join_waiting(s, w, r)
        touch_prefill(s, w)
        return
    if s.decode[d, col.RESERVING] < 0:
        end_run_early(s, d)
    push(s.decode, d, col.RESERVING, s.request, col.NEXT_DECODE, r)
    touch_decode(s, d)


def _prepare(s: State, r: int) -> None:
    request = s.request[r]
    request[col.REJECTED] = 0
    request[eng.TOKENS] = request[col.PROMPT]
    request[eng.SORT_KEY] = s.run[col.ARRIVED]
    for column in (eng.GENERATED, eng.HELD_PAGES, eng.COVERED, eng.COMPLETE, eng.LOADING, eng.STORED_HITS, col.SENT):
        request[column] = 0


def _rooms(s: State, r: int) -> tuple[int, int]:
    """Return the least pools of the prefill and of the decode side that could serve request `r` [page]."""
    page, prompt, output = s.run[col.PAGE], s.request[r, col.PROMPT], s.request[r, col.OUTPUT]
    clipped, whole = min(output, 4096), -(-(prompt + output) // page)
    if s.run[eng.COLOCATED] == 1:
        return int(max((prompt + clipped) // page + 1, whole + 1)), 0
    at_decode = max(-(-(prompt + max(s.run[eng.RESERVE], clipped)) // page), whole)
    return int((prompt + 1) // page + 1), int(at_decode)
