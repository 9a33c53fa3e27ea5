"""What the slow twin of the cluster simulator reports of windows, bytes and operations outside what was measured."""

from __future__ import annotations

from typing import Any

from kvsweep.cluster.inputs.service_profile import Span
from tests.cluster.paper.naive import PS, Cluster

Tables = dict[str, list[list[int]]]


def windows(sim: Cluster) -> dict[str, list[int]]:
    """Return, for each window up to the last finish, what came and went in it, and what is left at its end."""
    served = [request for request in sim.requests if not request.rejected]
    finishes = [request.at["finish"] for request in served]
    length = round(sim.config.window_seconds * PS)
    found: dict[str, list[int]] = {"outstanding": [], "completed_requests": [], "delivered_tokens": []}
    for begin in range(0, max(finishes, default=0) + 1, length):
        end = begin + length
        arrived = sum(request.arrival < end for request in served)
        found["outstanding"].append(arrived - sum(finish < end for finish in finishes))
        found["completed_requests"].append(sum(begin <= finish < end for finish in finishes))
        found["delivered_tokens"].append(sum(begin <= time < end for time in sim.deliveries))
    return found


def bytes_moved(sim: Cluster) -> Tables:
    """Return bytes copied into and out of each tier of each worker, prefill workers first."""
    workers: list[Any] = [*sim.prefill, *sim.decode]
    into, out = ([[0, 0, 0] for _ in workers] for _ in range(2))
    for kind, worker, sizes in sim.operations:
        place = workers.index(worker)
        if kind == "h2d":  # L2 to L1
            out[place][1] += sizes * sim.page_bytes
            into[place][0] += sizes * sim.page_bytes
        elif kind == "d2h":
            out[place][0] += sizes * sim.page_bytes
            into[place][1] += sizes * sim.page_bytes
        elif kind == "handoff":
            out[place][0] += sizes.pages * sim.page_bytes
            into[workers.index(sizes.request.at_decode)][0] += sizes.pages * sim.page_bytes
    return {"bytes_in": into, "bytes_out": out}


def extrapolated(sim: Cluster) -> tuple[int, int]:
    """Return the number of operations, and of those with a size outside its measured range or of a range unknown."""
    model, beyond = sim.profile, 0
    for kind, _, sizes in sim.operations:
        if kind == "prefill":
            known = is_within(len(sizes), model.prefill.tokens)
            known &= is_within(max(sizes) + 1, model.prefill.context_tokens)
        elif kind == "decode":
            known = is_within(sizes[0], model.decode.batch_range) & is_within(sizes[1], model.decode.context_tokens)
        else:
            pages = sizes.pages if kind == "handoff" else sizes
            known = is_within(pages * sim.page_bytes, getattr(model, kind).payload_bytes)
        beyond += not known
    return len(sim.operations), beyond


def is_within(value: float, measured: Span | None) -> bool:
    return measured is not None and measured.low <= value <= measured.high


def resident(sim: Cluster) -> list[tuple[int, int]]:
    """Return the pages left on device and host of each prefill worker, after the checks up to the last event."""
    return [(len(worker.device.resident), len(worker.host.resident)) for worker in sim.prefill]
