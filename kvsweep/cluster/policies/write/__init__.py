"""Write policies, one module each: when computed pages are copied to the host.

A module says at how many uses pages are copied (``uses_needed``) and whether the host takes what the device evicts
(``TAKES_EVICTED``). The cores go by these two alone, which cost them a comparison.
"""

from __future__ import annotations

from typing import Protocol

from kvsweep.cluster.policies.write import none, write_back, write_through, write_through_selective


class WritePolicy(Protocol):
    """What a module of a write policy holds."""

    TAKES_EVICTED: bool

    def uses_needed(self, threshold: int) -> int:
        """Return from which use on pages are copied [requests]; `threshold` is what the cluster file says."""


POLICIES: dict[str, WritePolicy] = {
    "write_through": write_through,
    "write_through_selective": write_through_selective,
    "write_back": write_back,
    "none": none,
}
"""Modules by id."""


def writes_through(policy: str) -> bool:
    """Return whether what `policy` copies is on device and host at once, as L3 needs."""
    return POLICIES[policy].uses_needed(1) < none.NEVER_USED
