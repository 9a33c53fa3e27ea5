"""Cluster files and profiles: what is read, what is refused with one line."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import kvsweep
from kvsweep.catalog import load
from kvsweep.catalog.fields import field_types
from kvsweep.cluster.inputs.config import SharedTier, Write, config_mapping, parse_config, read_config
from kvsweep.cluster.inputs.notes import notes_of
from kvsweep.cluster.inputs.presets import PRESETS, cluster_file, profile_file
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import coefficients, parse_profile, profile_mapping, read_profile
from kvsweep.cluster.policies import prefetch, write
from kvsweep.cluster.shared import columns as col
from kvsweep.errors import InputError
from tests.cluster.samples import cluster, profile, trace


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_the_set_ups_of_the_paper(name: str) -> None:
    preset = PRESETS[name]
    config = parse_config(yaml.safe_load(cluster_file(name, preset.n_prefill, preset.tp, "paper")), "file")
    assert (config.n_prefill, config.n_decode) == (int(name[-4]), 1)
    (prefill,), (decode,) = config.prefill, config.decode
    assert (prefill.device_tokens, prefill.host_tokens, prefill.chunk_tokens) == (262_144, 524_352, 4096)
    assert (decode.device_tokens, decode.max_running, prefill.max_running, prefill.tp) == (262_144, 32, 32, 2)
    assert parse_config(config_mapping(config), "again") == config


@pytest.mark.parametrize("fidelity", ["paper", "engine"])
def test_a_written_file_shows_every_field_there_is_and_states_those_with_effect(fidelity: str) -> None:
    text = cluster_file("a", 1, 2, fidelity)
    assert notes_of(parse_config(yaml.safe_load(text), "file"), yaml.safe_load(text)) == []
    stated = yaml.safe_load(re.sub(r"^  # (\w+: )", r"  \1", text, flags=re.MULTILINE))
    resolved = config_mapping(parse_config(stated, "file"))
    assert stated.keys() == resolved.keys()
    for name, group in resolved.items():
        if isinstance(group, dict):
            assert stated[name].keys() == group.keys()
    for given, full in zip(stated["workers"], resolved["workers"], strict=True):
        assert given.keys() == full.keys()


def test_roofline_profiles_survive_their_file(tmp_path: Path) -> None:
    made = roofline(load(), "qwen3-32b", "l20z", 2)
    (tmp_path / "profile.yaml").write_text(profile_file(made))
    assert read_profile(tmp_path / "profile.yaml") == made
    assert made.kind == "assumed" and made.kv_bytes_per_token == 262_144
    assert (coefficients(made, 64).domain[:, 0] > coefficients(made, 64).domain[:, 1]).all()


def test_a_roofline_needs_room_for_the_weights() -> None:
    with pytest.raises(InputError, match="--tp: the weights of qwen3-32b do not fit on 1 x l4; allowed: at least 3"):
        roofline(load(), "qwen3-32b", "l4", 1)


def test_interpolation_and_continuation_of_decode_models() -> None:
    made = profile(decode={"boundary": "b", "batch": [2, 4], "base_seconds": [0.02, 0.04],
                           "context_token_seconds": [1e-8, 1e-8]})  # fmt: skip
    from kvsweep.cluster.inputs.service_profile import decode_coefficients

    base = decode_coefficients(made, (1,), 6)[:, 0] / 1e15
    assert base == pytest.approx([0.02, 0.02, 0.02, 0.03, 0.04, 0.05, 0.06])


def test_policies_of_files_are_those_there_are_modules_of() -> None:
    assert set(field_types(Write)["policy"].choices) == set(write.POLICIES)
    assert field_types(SharedTier)["stop_policy"].choices == prefetch.POLICIES
    needed = {name: (policy.uses_needed(3), policy.TAKES_EVICTED) for name, policy in write.POLICIES.items()}
    assert needed == {
        "write_through": (3, False), "write_through_selective": (2, False),
        "write_back": (col.NEVER, True), "none": (col.NEVER, False),
    }  # fmt: skip
    assert [name for name in write.POLICIES if write.writes_through(name)] == [*write.POLICIES][:2]


FIGURES: dict[str, Any] = config_mapping(cluster())


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("fidelity",), "vllm", "file: fidelity: no 'vllm'; choose from engine, paper"),
        (("engine",), {"overlap": True}, "file: engine: unknown to fidelity paper; allowed: fidelity: engine"),
        (("l3",), {"pool_tokens": 1e6}, "file: l3: unknown to fidelity paper"),
        (("gateway", "tree_tokens"), 1024, "file: gateway: tree_tokens: unknown to fidelity paper"),
        (("write", "policy"), "write_back", "file: write: policy: write_back: unknown to fidelity paper"),
        (("page_size",), 0, "file: page_size: 0 is out of range; allowed: 1 to 65536 tokens"),
        (("page_size",), 64.5, "is not a whole number"),
        (("gateway", "policy"), 3, "file: gateway: policy: 3 is not one line of text"),
        (("gateway", "device_credit"), 1.5, "file: gateway: device_credit: 1.5 is out of range; allowed: 0 to 1"),
        (("gateway", "sede"), 1, "file: gateway: field: no 'sede'; did you mean 'seed'"),
        (("wrokers",), [], "file: field: no 'wrokers'; did you mean 'workers'? choose from workers, name, fidelity"),
        (("retention", "seconds"), "1e3 GB", "is not a number, optionally with one of s ms us µs min h"),
        (("slo", "ttft_seconds"), -1, "file: slo: ttft_seconds: -1 is out of range"),
        (("workers",), None, "file: workers: None is not a list of groups"),
        (("workers",), [], "not a list of groups"),
        (("workers", 0), "prefill", "workers[0]: 'prefill' is not a mapping"),
        (
            ("workers", 0, "role"),
            "colocated",
            "workers: colocated workers beside others; allowed: only those, or prefill and decode",
        ),
        (("workers", 0, "role"), "refill", "did you mean 'prefill'"),
        (("workers", 1, "role"), "prefill", "field: no 'graph_buckets'"),
        (("workers", 0, "device_tokens"), 63, "device_tokens: 63; allowed: at least page_size, 64"),
        (("workers", 0, "chunk_tokens"), 4000, "chunk_tokens: 4000; allowed: multiples of page_size, 64"),
        (("workers", 0, "count"), 0, "count: 0 is out of range"),
        (("workers", 1, "host_tokens"), 64, "field: no 'host_tokens'"),
        (("workers", 1, "graph_buckets"), [4, 2], "graph_buckets: [4, 2]; allowed: ascending whole numbers"),
        (("workers", 1, "graph_buckets"), [True], "allowed: ascending whole numbers"),
        (("decode",), [], "workers are a list"),
    ],
)
def test_hostile_cluster_files_are_refused_in_one_line(place: tuple[Any, ...], value: Any, message: str) -> None:
    values = copy.deepcopy(FIGURES)
    inner: Any = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError) as error:
        parse_config(values, "file")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_cluster_needs_both_roles() -> None:
    for role in (0, 1):
        with pytest.raises(InputError, match="no (prefill|decode) worker; allowed: at least one of each role"):
            parse_config({**FIGURES, "workers": [FIGURES["workers"][role]]}, "file")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("tp",), None, "file: tp: missing"),
        (("decode",), None, "file: decode: missing"),
        (("decode", "batch"), [], "batch: []; allowed: ascending whole numbers"),
        (("decode", "base_seconds"), [1.0, 2.0], "base_seconds: [1.0, 2.0]; allowed: one number"),
        (("decode", "base_seconds"), [float("nan")], "base_seconds: [nan]"),
        (("handoff", "bytes_per_s"), 0, "handoff: bytes_per_s: 0 is out of range"),
        (("prefill", "token_seconds"), float("inf"), "is out of range"),
        (("prefill", "boundary"), None, "prefill: boundary: missing"),
        (("h2d", "kind"), "guess", "no 'guess'; choose from vendor, measured, assumed"),
    ],
)
def test_hostile_profiles_are_refused_in_one_line(place: tuple[str, ...], value: Any, message: str) -> None:
    values = profile_mapping(profile())
    inner: Any = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError) as error:
        parse_profile(values, "file")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for read in (read_config, read_profile):
        with pytest.raises(InputError, match="none.yaml: No such file"):
            read(tmp_path / "none.yaml")


def test_what_does_not_go_together_is_refused() -> None:
    one = trace([(0.0, 100, 1, ())])
    with pytest.raises(InputError, match="prefill workers: tp: 2; allowed: 1, as profile 'round figures' has"):
        kvsweep.cluster.run(one, cluster(prefill={"tp": 2}), profile())
    with pytest.raises(InputError, match="retrieval: policy: no 'all_compte'; did you mean 'all_compute'"):
        kvsweep.cluster.run(one, cluster(retrieval={"policy": "all_compte"}), profile())
    with pytest.raises(InputError, match="gateway: policy: no 'robin'; did you mean 'round_robin'"):
        kvsweep.cluster.run(one, cluster(gateway={"policy": "robin"}), profile())
    with pytest.raises(InputError, match="eviction: policy: no 'mru'; .*choose from lru, .*, gdsf, belady, tlru"):
        kvsweep.cluster.run(one, cluster(eviction={"policy": "mru"}), profile())
    with pytest.raises(InputError, match="the trace lasts 5e.06 s; allowed: at most 4000000 s"):
        kvsweep.cluster.run(trace([(0.0, 1, 1, ()), (5e6, 1, 1, ())]), cluster(), profile())
    with pytest.raises(InputError, match="the trace has no requests"):
        kvsweep.cluster.run(one.select(slice(0, 0)), cluster(), profile())
    named = trace([(0.0, 200, 1, (1, 2))], page=96)
    with pytest.raises(InputError, match="page_size: a block size of 64 tokens; allowed: a divisor or a multiple"):
        kvsweep.cluster.run(named, cluster(), profile())
    slow = profile(prefill={"boundary": "b", "token_seconds": 1.0, "token_pair_seconds": 1.0})
    with pytest.raises(InputError, match="make times the clock cannot hold"):
        kvsweep.cluster.run(trace([(0.0, 10**6, 1, ())]), cluster(), slow)


def test_operations_outside_the_measured_domain_are_counted() -> None:
    whole = {"low": 0, "high": 1e12}
    path = {"boundary": "b", "bytes_per_s": 64e6, "payload_bytes": whole}
    decode = {"boundary": "b", "batch": [1], "base_seconds": [1e-3], "context_token_seconds": [0.0],
              "batch_range": whole, "context_tokens": {"low": 0, "high": 103}}  # fmt: skip
    prefill = {"boundary": "b", "token_seconds": 1e-6, "tokens": {"low": 64, "high": 4096}, "context_tokens": whole}
    made = profile(prefill=prefill, decode=decode, handoff=path, h2d=path, d2h=path)
    ds = kvsweep.cluster.run(trace([(0.0, 100, 8, ()), (1.0, 10, 2, ())]), cluster(), made)
    # Two prefill steps (one of 10 tokens), a write-back, two chunks, ten decode steps (four of them above 103 tokens).
    assert ds.attrs["kvsweep_operations"] == 15
    assert ds.attrs["kvsweep_extrapolated_ratio"] == pytest.approx(5 / 15)
    assert np.isfinite(ds["finish"].values).all()
