"""The oracles of the simulator are asked of the compiled cores, and of their checkers."""

from __future__ import annotations

import pytest

from kvsweep.cluster.simulation.cores import CORES, is_compiled
from kvsweep.cluster.simulation.warm import warm


@pytest.fixture(scope="session", autouse=True)
def compiled_cores() -> None:
    """Compile what is not: else the plain source would answer all that is small."""
    for core in CORES:
        if not is_compiled(core, check=True):
            warm(core, check=True)
