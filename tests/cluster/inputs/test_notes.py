"""Fields of a cluster file without effect: each note is true, names the field, and is heard."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr
import yaml

import kvsweep.cluster
from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.inputs.notes import notes_of
from kvsweep.cluster.inputs.service_profile import profile_mapping
from kvsweep.trace.model import Trace
from kvsweep.trace.write import lines
from tests.cli_runner import GOOD_POLICY, done
from tests.cluster.samples import fuzz_profile, trace


def requests() -> Trace:
    """Return requests that share prefixes and come in bursts, so that pools are tight and every policy matters."""
    rng = np.random.default_rng(5)
    made, time = [], 0.0
    for _ in range(60):
        time += float(rng.choice((0.0, 0.001, 0.013, 0.05, 0.3)))
        steps = [int("1" + "".join(map(str, rng.integers(0, 2, 10).tolist()[: k + 1])), 2) for k in range(8)]
        ids = steps[: rng.integers(1, 9)]
        made.append((time, 4 * len(ids) + int(rng.integers(1, 7)), int(rng.integers(1, 25)), ids))
    return trace(made, page=4, sessions=rng.integers(0, 6, len(made)).tolist())


REQUESTS = requests()
PATH = {"boundary": "whole", "bytes_per_s": 8e6}
SLOW = {"boundary": "whole", "bytes_per_s": 1e6}
PROFILE = {
    **profile_mapping(fuzz_profile()),
    "handoff": SLOW,
    "h2d": SLOW,
    "l3_read": PATH,
    "l3_write": PATH,
    "l3_query_seconds": 3e-3,
}
WORKER = {"tp": 1, "device_tokens": 80, "max_running": 3}
POOLS = {**WORKER, "host_tokens": 160, "chunk_tokens": 16}
APART = [{"role": "prefill", "count": 2, **POOLS}, {"role": "decode", "count": 2, **WORKER}]
COLOCATED = [{"role": "colocated", "count": 2, **POOLS}]
NO_HOST = [{**APART[0], "host_tokens": 0}, APART[1]]
LITTLE_HOST = [{**APART[0], "host_tokens": 80}, APART[1]]
L3 = {"pool_tokens": 400, "prefetch_threshold_tokens": 4, "batch_pages": 1}
RESERVE = {"reserved_decode_tokens": 4, "load_back_threshold_tokens": 4}


def cluster(**changes: Any) -> dict[str, Any]:
    """Return what a small cluster file states, sections merged with `changes`."""
    values: dict[str, Any] = {"page_size": 4, "workers": APART, "engine": RESERVE}
    for name, change in changes.items():
        values[name] = {**values.get(name, {}), **change} if isinstance(change, dict) else change
    if values.get("fidelity") == "paper":
        del values["engine"]
    return copy.deepcopy(values)


BY_RATE = GOOD_POLICY.replace("mine", "by_rate").replace("0.5 * ctx.hit_blocks", "ctx.request_rate * 0.01")


@pytest.fixture(scope="module")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policies") / "by_rate.py"
    path.write_text(BY_RATE)
    return path


def result(values: dict[str, Any], *policy_files: Path) -> xr.Dataset:
    return kvsweep.cluster.run(REQUESTS, values, PROFILE, policy_files=policy_files)


def are_equal(one: xr.Dataset, other: xr.Dataset) -> bool:
    return bool(one.equals(other))


def by(policy: str, **changes: Any) -> dict[str, Any]:
    return {"gateway": {"policy": policy, **changes}}


def by_rate(policy: str) -> dict[str, Any]:
    return {"retrieval": {"policy": policy}, "slo": {"ttft_seconds": 1.0}}


TOGETHER = {"workers": COLOCATED}
TTL = {"policy": "idle_ttl"}
TIMEOUT = {**L3, "stop_policy": "timeout", "timeout_base_seconds": 1e-4}
HAND = "colocated workers hand nothing off"
DRAW = "policies random, power_of_two, kv_cost and those of files draw by it"
CACHE_AWARE, KV_COST = "only of policy cache_aware", "only of policy kv_cost"
RATES = "only of policies that decide by rates"
NO_HITS = "nothing is on a host"
NO_DROP = "nothing is dropped with policy none"
HAZARD = {"policy": "hazard_ttl", "cost_per_second": 1e3, "check_seconds": 0.05}
TLRU = {"policy": "tlru", "xi_tokens": 8}


@pytest.mark.parametrize(
    ("section", "field", "value", "idle", "active", "when"),
    [
        ("", "handoff_sharing", "fifo", TOGETHER, by("random"), HAND),
        ("engine", "reserved_decode_tokens", 30, TOGETHER, {}, HAND),
        ("engine", "router_join", False, TOGETHER, {"engine": {"max_prefill_tokens": 8}}, HAND),
        ("engine", "prebuilt_seconds", 0.5, TOGETHER, {}, HAND),
        ("engine", "conservativeness", 10.0, {}, TOGETHER, "only of colocated workers"),
        ("gateway", "seed", 3, by("cache_aware"), by("random"), DRAW),
        ("gateway", "seed", 3, by("session_affinity"), by("kv_cost"), DRAW),
        ("gateway", "seed", 3, by("least_loaded"), by("power_of_two"), DRAW),
        ("gateway", "balance_requests", 0, by("kv_cost"), by("cache_aware"), CACHE_AWARE),
        ("gateway", "balance_ratio", 1e3, {}, by("cache_aware", balance_requests=0), CACHE_AWARE),
        ("gateway", "match_ratio", 1.0, {}, by("cache_aware"), CACHE_AWARE),
        ("gateway", "tree_tokens", 8, {}, by("cache_aware"), CACHE_AWARE),
        ("gateway", "prefill_load_scale", 9.0, {}, by("kv_cost"), KV_COST),
        ("gateway", "device_credit", 0.0, by("cache_aware"), by("kv_cost"), KV_COST),
        ("gateway", "active_weight", 1e5, {}, by("kv_cost"), KV_COST),
        ("gateway", "host_credit", 0.0, {**by("kv_cost"), "workers": NO_HOST}, by("kv_cost"), "nothing is written to"),
        ("gateway", "disk_credit", 1.0, by("kv_cost"), {**by("kv_cost"), "l3": L3}, "only with l3"),
        ("retention", "seconds", 1e-3, {}, {"retention": TTL}, "only of policy idle_ttl"),
        ("retention", "check_seconds", 0.5, {}, {"retention": {**TTL, "seconds": 1e-3}}, NO_DROP),
        ("retention", "saved_seconds", 1e6, {"retention": TTL}, {"retention": HAZARD}, "only of policy hazard_ttl"),
        ("retention", "cost_per_second", 0.0, {}, {"retention": HAZARD}, "only of policy hazard_ttl"),
        ("eviction", "xi_tokens", 0, {"eviction": {"policy": "lfu"}}, {"eviction": TLRU}, "only of policy tlru"),
        ("eviction", "growth_tokens", 16, {}, {"eviction": TLRU}, "only of policy tlru"),
        ("retrieval", "rate_window_seconds", 1e-3, by_rate("default_policy"), by_rate("by_rate"), RATES),
        ("retrieval", "policy", "all_compute", {"workers": NO_HOST}, {}, NO_HITS),
        ("retrieval", "policy", "all_compute", {"write": {"policy": "none"}}, {}, NO_HITS),
        ("engine", "load_back_threshold_tokens", 99, {"workers": NO_HOST}, {}, NO_HITS),
        ("write", "policy", "write_back", {"workers": NO_HOST}, {}, "no worker has host_tokens of a page"),
        ("write", "threshold", 3, {"write": {"policy": "write_back"}}, {}, "only of policy write_through"),
        ("write", "threshold", 3, {"write": {"policy": "write_through_selective"}}, {}, "only of policy write_through"),
        ("workload", "think_seconds", 0.5, {}, {"workload": {"mode": "closed"}}, "only with mode closed"),
        ("l3", "timeout_base_seconds", 0.0, {"l3": L3}, {"l3": TIMEOUT}, "only of stop_policy timeout"),
        ("l3", "timeout_per_1024_tokens_seconds", 9.0, {"l3": L3}, {"l3": TIMEOUT}, "only of stop_policy timeout"),
    ],
)  # fmt: skip
def test_a_field_is_without_effect_exactly_where_a_note_says_so(
    section: str, field: str, value: Any, idle: dict[str, Any], active: dict[str, Any], when: str, policy_file: Path
) -> None:
    for changes, does_nothing in ((idle, True), (active, False)):
        before, after = cluster(**changes), cluster(**changes)
        (after.setdefault(section, {}) if section else after)[field] = value
        found = result(after, policy_file)
        assert are_equal(found, result(before, policy_file)) == does_nothing
        notes = notes_of(parse_config(after, "c.yaml"), after)
        place = f"{section}: " if section else ""
        heard = [
            note for note in notes if note.startswith(place) and field in note and f"without effect: {when}" in note
        ]
        assert bool(heard) == does_nothing, notes
        assert (f"without effect: {when}" in found.attrs["kvsweep_config_notes"]) == does_nothing


def test_an_l3_that_nobody_fetches_from() -> None:
    for workers, does_nothing in ((LITTLE_HOST, True), (APART, False)):
        values = cluster(workers=workers, l3=L3)
        hits = result(values)["hit_tokens"].sel(tier="l3").sum()
        assert (int(hits) == 0) == does_nothing
        notes = notes_of(parse_config(values, "c.yaml"), values)
        assert (
            any(note.startswith("l3: without effect: workers fetch from it only with") for note in notes)
            == does_nothing
        )


@pytest.mark.parametrize(
    ("host_tokens", "write", "said"),
    [
        (160, "none", "workers[0]: host_tokens: without effect: nothing fills a host with write policy none"),
        (3, "write_through", "workers[0]: host_tokens: without effect: a page has 4 tokens"),
    ],
)
def test_a_host_that_never_holds_a_page(host_tokens: int, write: str, said: str) -> None:
    without = cluster(workers=NO_HOST, write={"policy": write})
    values = cluster(workers=[{**APART[0], "host_tokens": host_tokens}, APART[1]], write={"policy": write})
    assert are_equal(result(values), result(without))
    assert said in notes_of(parse_config(values, "c.yaml"), values)


def test_what_is_not_stated_or_null_is_not_told_of() -> None:
    values = cluster(gateway={"seed": None}, retention=None, workers=COLOCATED, engine={"router_join": None})
    values["engine"] = {"router_join": None}
    assert notes_of(parse_config(values, "c.yaml"), values) == []


def test_paper_knows_no_l3(tmp_path: Path) -> None:
    values = cluster(fidelity="paper", gateway={"policy": "kv_cost", "disk_credit": 1.0})
    assert notes_of(parse_config(values, "c.yaml"), values) == ["gateway: disk_credit: without effect: only with l3"]


def test_notes_are_said_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    values = cluster(workers=COLOCATED, handoff_sharing="none", gateway={"match_ratio": 0.5, "seed": 1})
    Path("c.yaml").write_text(yaml.safe_dump(values))
    Path("p.yaml").write_text(yaml.safe_dump(PROFILE))
    Path("t.jsonl").write_text("".join(f"{line}\n" for line in lines(REQUESTS, "kvsweep")))
    said = done("cluster", "run", "t.jsonl", "--config", "c.yaml", "--profile", "p.yaml", "-o", "r.nc").stderr
    told = [
        "handoff_sharing; engine: reserved_decode_tokens: without effect: colocated workers hand nothing off; "
        "prefill and decode workers do",
        "gateway: seed: without effect: policies random, power_of_two, kv_cost and those of files draw by it",
        "gateway: match_ratio: without effect: only of policy cache_aware",
    ]
    assert [line for line in said.splitlines() if "without effect" in line] == [f"c.yaml: {note}" for note in told]
    with xr.open_dataset("r.nc") as ds:
        assert yaml.safe_load(ds.attrs["kvsweep_config_notes"]) == told
