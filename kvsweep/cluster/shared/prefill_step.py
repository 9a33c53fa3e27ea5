"""What a prefill step executes of a request: one piece of its prompt, or two around what is retrieved."""

from __future__ import annotations

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State


def execute(s: State, w: int, r: int, tokens: int) -> None:
    """Add the next `tokens` of request `r` that are to be computed to the step of worker `w` that is being formed."""
    own, request = s.prefill[w], s.request[r]
    request[col.TO_DO] -= tokens
    begin = request[col.POSITION]
    end = begin + tokens
    if begin < request[col.GAP_BEGIN] < end:
        front = request[col.GAP_BEGIN]
        own[col.STEP_SQUARES] += front * front - begin * begin
        end += request[col.GAP_END] - front
        begin = request[col.GAP_END]
    own[col.STEP_SQUARES] += end * end - begin * begin
    own[col.STEP_TOKENS] += tokens
    own[col.STEP_REACH] = max(own[col.STEP_REACH], end)
    request[col.NEXT_POSITION] = end
