"""The core of ``fidelity: engine`` against its slow twin: equal per request, and per worker, on fuzzed small clusters.

``ENGINE_SOAK=5000 pytest tests/cluster/engine/test_twin.py`` compares 5000 clusters more than the quick run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.trace.model import Trace
from tests.cluster.engine import core as engine_core
from tests.cluster.engine import naive as naive_engine
from tests.cluster.engine.naive import Rules
from tests.cluster.engine.samples import pd, random_case
from tests.cluster.paper.test_twin import EVICTION_FILE, FRONT_POLICY, RETENTION_FILE
from tests.cluster.samples import PAGE, fuzz_profile, pages, trace

QUICK, BATCH = 300, 50
SOAK = int(os.environ.get("ENGINE_SOAK", "0"))


@pytest.fixture(scope="module")
def policy_files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("policies")
    files = []
    for name, source in (("half_of_the_front", FRONT_POLICY), ("mixed", EVICTION_FILE), ("moody", RETENTION_FILE)):
        files.append(folder / f"{name}.py")
        files[-1].write_text(source)
    return files


def assert_twins(case: Trace, rules: Rules, profile: Profile) -> dict[str, Any]:
    """Compare the checked core with the twin; return what the twin says."""
    twin = naive_engine.run(case, rules, profile)
    core = engine_core.run(case, rules, profile)
    for i, (found, expected) in enumerate(zip(core["requests"], twin["requests"], strict=True)):
        assert found == expected, f"request {i}"
    for what in ("last_finish", "evictions", "expirations", "retractions", "windows"):
        assert core[what] == twin[what], what
    for path, moved in core["bytes"].items():
        assert moved == twin["bytes"][path][: len(moved)], path
    np.testing.assert_allclose(core["busy"], twin["busy"], rtol=1e-9, atol=1.0)
    np.testing.assert_allclose(core["occupancy"], twin["occupancy"][: len(core["occupancy"])], rtol=1e-9, atol=1e-6)
    for found, expected in zip(core["trees"], twin["trees"], strict=True):
        assert found == expected, "trees at the end"
    return twin


@pytest.mark.parametrize("first", range(0, QUICK + SOAK, BATCH))
def test_core_and_twin_are_equal(first: int, policy_files: list[Path]) -> None:
    for seed in range(first, first + BATCH):
        case, rules, profile = random_case(seed)
        rules.policy_files = policy_files
        try:
            assert_twins(case, rules, profile)
        except Exception as error:
            raise AssertionError(f"case {seed}: {error}") from error


@pytest.mark.parametrize("policy", ["moody", "tlru"])
@pytest.mark.parametrize("first", range(0, 150, BATCH))
def test_they_are_equal_where_a_policy_is_all_there_is(first: int, policy: str, policy_files: list[Path]) -> None:
    """A file says how long pages stay, at checks so often that some outlive what follows them; or much is surplus."""
    for seed in range(first, first + BATCH):
        case, rules, profile = random_case(seed)
        rules.policy_files = policy_files
        if policy == "moody":
            rules.retention_file, rules.ttl = policy, (1.0, 0.003)
        else:
            rules.eviction, rules.growth_tokens, rules.xi_tokens = policy, 0, 2 * rules.page_size
        try:
            assert_twins(case, rules, profile)
        except Exception as error:
            raise AssertionError(f"case {seed}: {error}") from error


def test_what_a_request_loaded_for_itself_is_unlocked_when_its_step_ends(policy_files: list[Path]) -> None:
    """The host is full of x. Asked for in one step, a is to be backed up, and x loads its end: a gets its place."""
    x, a, y = pages(0, 4), pages(10, 4), pages(20, 2)
    asked = [(0.0, x), (10.0, x), (20.0, a), (30.0, y), (40.0, a), (40.0, x)]
    made = trace([(time, PAGE * len(names) + 1, 1, names) for time, names in asked])
    rules = pd(
        {"device_tokens": 10 * PAGE, "host_tokens": 4 * PAGE, "chunk_tokens": 16 * PAGE}, page_size=PAGE, threshold=3,
        retrieval="half_of_the_front", ttft_seconds=1.0, policy_files=policy_files,
    )  # fmt: skip
    twin = assert_twins(made, rules, fuzz_profile())
    assert twin["requests"][-1]["hits"] == (0, 2 * PAGE, 0) and twin["evictions"] == [(6, 4)]


def test_what_is_to_be_tested_comes_up(policy_files: list[Path]) -> None:
    found = {"rejected": 0, "l1": 0, "l2": 0, "l3": 0, "evictions": 0, "expirations": 0, "retractions": 0}
    for seed in range(120):
        case, rules, profile = random_case(seed)
        rules.policy_files = policy_files
        twin = naive_engine.run(case, rules, profile)
        for request in twin["requests"]:
            found["rejected"] += request["rejected"]
            for tier, tokens in zip(("l1", "l2", "l3"), request.get("hits", (0, 0, 0)), strict=True):
                found[tier] += tokens > 0
        for name in ("evictions", "expirations"):
            found[name] += int(np.sum(twin[name]))
        found["retractions"] += sum(twin["retractions"])
    assert min(found.values()) > 5, found
