"""Which resource of the winner tree stands for what; their order is that of the events of an instant (README §1)."""

from __future__ import annotations

from kvsweep.cluster.shared.state import State

SWEEP = 0
"""Checks of the retention policy, before anything else."""


def inbound_resource(s: State, d: int) -> int:
    """Return the resource of chunks on their way to decode worker `d`."""
    return 1 + d


def decoding_resource(s: State, d: int) -> int:
    """Return the resource of steps and prebuilt rounds of decode worker `d`."""
    return int(1 + s.decode.shape[0] + d)


def reading_resource(s: State, w: int) -> int:
    """Return the resource of L3 reads of worker `w`."""
    return int(1 + 2 * s.decode.shape[0] + w)


def writing_resource(s: State, w: int) -> int:
    """Return the resource of L3 writes of worker `w`."""
    return int(1 + 2 * s.decode.shape[0] + s.prefill.shape[0] + w)


def copying_resource(s: State, w: int) -> int:
    """Return the resource of copies to the host of worker `w`."""
    return int(1 + 2 * (s.decode.shape[0] + s.prefill.shape[0]) + w)


def stepping_resource(s: State, w: int) -> int:
    """Return the resource of steps, launches and timers of prefill or colocated worker `w`."""
    return int(1 + 2 * s.decode.shape[0] + 3 * s.prefill.shape[0] + w)


def n_resources(n_prefill: int, n_decode: int) -> int:
    """Return the number of resources."""
    return 2 + 2 * n_decode + 4 * n_prefill
