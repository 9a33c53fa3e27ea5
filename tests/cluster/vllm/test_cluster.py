"""vLLM workers as a cluster: the same worker as alone, what is refused, results, the checker, the command line."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import kvsweep
from kvsweep.cluster.inputs.config import config_mapping, parse_config
from kvsweep.cluster.inputs.step_profile import step_profile_text, step_times
from kvsweep.cluster.outcome.dataset import dataset
from kvsweep.cluster.outcome.summary import RESOURCES, summarize
from kvsweep.cluster.outcome.vllm import CAUSES
from kvsweep.cluster.setup.vllm import contents, initial_fleet
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.cores import compiled_run, plain_run
from kvsweep.cluster.simulation.lone_worker import Arrival, run
from kvsweep.cluster.simulation.run import finish
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.audit import RULES, broken_rule
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.loop import advance
from kvsweep.cluster.vllm.state import Fleet
from kvsweep.errors import InputError
from kvsweep.policies import load_policies
from kvsweep.trace.model import Trace, offsets_of
from tests.cli_runner import done, refused
from tests.cluster.samples import profile as service_profile
from tests.cluster.samples import trace
from tests.cluster.vllm.naive_cluster import names
from tests.cluster.vllm.samples import COST, cluster_case, step_profile, table

POLICY = load_policies()["default_policy"]
WORKER = {"role": "vllm", "tp": 1, "n_blocks": 60, "token_budget": 64, "max_sequences": 4, "graph_buckets": [1, 2, 4]}


def cluster(count: int = 2, **changes: Any) -> dict[str, Any]:
    """Return a cluster file of equal workers; fields of the worker may be changed as well as those of the file."""
    worker = {**WORKER, "count": count, **{name: changes.pop(name) for name in list(changes) if name in WORKER}}
    return {"page_size": 4, "workers": [worker], **changes}


def started(seed: int, instants: int = 0) -> Fleet:
    """Return the fleet of a fuzzed case after some instants."""
    case, values = cluster_case(seed)
    values["gateway"]["policy"] = "kv_cost"
    fleet = initial_fleet(case, parse_config(values, "cluster"), step_profile())
    advance(fleet, instants, None)  # type: ignore[arg-type]  # nothing is asked
    return fleet


def arrivals(case: Trace, page: int) -> list[Arrival]:
    """Return the requests of a trace as a replay has them."""
    tokens = case.input_tokens + case.output_tokens
    keys, ends = contents(case, page, 10**9), offsets_of(tokens // page)
    return [
        Arrival(float(case.arrival[i]), int(case.input_tokens[i]), int(case.output_tokens[i]),
                keys[ends[i] : ends[i + 1]].tolist())
        for i in range(len(case))
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(12))
def test_one_worker_of_a_cluster_is_the_worker_alone(seed: int) -> None:
    case, values = cluster_case(seed)
    values |= {"workload": {"mode": "open"}, "gateway": {"policy": "kv_cost"}}
    group = values["workers"][0] | {"count": 1, "n_blocks": 80}
    found = finish(case, values | {"workers": [group]}, step_profile()).state.request
    names = ("n_blocks", "token_budget", "max_sequences", "reserve_full", "steps_in_flight", "prefix_cache")
    limits = Limits(block_tokens=values["page_size"], **{name: group[name] for name in names})
    alone = run(arrivals(case, values["page_size"]), limits, step_times(step_profile(), group["graph_buckets"])).request
    columns = [column for column in range(c.N_REQUEST)
               if column not in (col.SESSION, *range(col.DRAW, col.DRAW + 4), c.BASE)]  # fmt: skip
    np.testing.assert_array_equal(found[:, columns], alone[:, columns])


def test_the_compiled_cluster_is_the_plain_one() -> None:
    for seed in range(8):
        compiled, plain = (drive(started(seed), POLICY) for drive in (compiled_run, plain_run))
        for name in ("request", "prefill", "windows", "real"):
            np.testing.assert_array_equal(getattr(compiled.state, name), getattr(plain.state, name))
        np.testing.assert_array_equal(compiled.block, plain.block)


def test_the_gateway_sees_what_step_ends_free_and_not_the_pass_after() -> None:
    """Two equal prompts, the second when the first step has ended: its blocks are seen, and decide."""
    first = finish(trace([(0.0, 40, 2, range(10))], page=4), cluster(), step_profile()).state.request[0]
    end = float(first[col.FIRST_TOKEN]) * 1e-12
    requests = [(0.0, 40, 9, range(10)), (0.0, 40, 9, range(20, 30)), (end, 40, 1, range(10))]
    for policy in ("round_robin", "cache_aware", "kv_cost"):
        ds = kvsweep.cluster.run(trace(requests, page=4), cluster(gateway={"policy": policy}), step_profile())
        first_worker, _, worker = ds["prefill_worker"].values.tolist()
        assert worker == first_worker and ds["hit_tokens"].values[2, 0] == 36
    early = [*requests[:2], (0.0, 40, 1, range(10))]  # nothing is computed yet; loads are equal
    ds = kvsweep.cluster.run(trace(early, page=4), cluster(gateway={"policy": "cache_aware"}), step_profile())
    assert int(ds["prefill_worker"][2]) == 0  # the least loaded, not one with blocks


def test_answers_are_nobodys_prefix() -> None:
    """The next turn names the answer's blocks, as engines would: what was computed as an answer is computed again."""
    turns = trace([(0.0, 16, 16, range(4)), (5.0, 40, 4, range(10))], page=4)
    ds = kvsweep.cluster.run(turns, cluster(1), step_profile())
    assert ds["hit_tokens"].values[:, 0].tolist() == [0, 16]


@pytest.mark.parametrize("page", [4, 8, 2])
def test_answers_that_the_trace_names_are_found_by_the_next_turn(page: int) -> None:
    """Of 16 tokens of a prompt and 16 of its answer, the last is never fed back: its block is not computed."""
    turns = trace([(0.0, 16, 16, range(8)), (5.0, 40, 4, range(11))], page=4)
    ds = kvsweep.cluster.run(turns, cluster(1, page_size=page), step_profile(), check=True)
    assert ds["hit_tokens"].values[1, 0] == 31 // page * page
    assert [names(turns, 1, page)[: 32 // page]] == [names(turns, 0, page)]


def test_requests_too_large_are_rejected_and_others_run() -> None:
    huge = trace([(0.0, 240, 1, ()), (0.0, 10**8, 1, ()), (0.1, 20, 10**8, ()), (0.2, 20, 3, ())], page=4)
    ds = kvsweep.cluster.run(huge, cluster(), step_profile(), check=True)
    assert ds["rejected"].values.tolist() == [1, 1, 1, 0]
    assert ds["finish"].notnull().values.tolist() == [False, False, False, True]
    assert np.isnan(ds["queue_delay"].values[:3]).all() and ds["uncached_tokens"].values.tolist() == [0, 0, 0, 20]
    none = kvsweep.cluster.run(huge.select(slice(0, 2)), cluster(), step_profile(), check=True)
    assert none["rejected"].all() and float(none["utilization"].max()) == 0.0


def test_a_file_of_several_groups_rejects_by_the_largest() -> None:
    config = cluster()
    config["workers"].append({**WORKER, "count": 1, "n_blocks": 100})
    ds = kvsweep.cluster.run(trace([(0.01 * i, 300, 1, ()) for i in range(4)], page=4), config, step_profile())
    assert ds["prefill_worker"].values.tolist() == [2, 2, 2, 2] and not ds["rejected"].any()


def test_results_say_what_made_them() -> None:
    case, values = cluster_case(3)
    values["gateway"]["policy"] = "least_loaded"
    finished = finish(case, values, step_profile())
    ds = dataset(finished)
    assert ds.attrs["kvsweep_fidelity"] == "engine" and "vLLM" in ds.attrs["comment"]
    assert ds.attrs["kvsweep_profile_kind"] == "measured" and "kvsweep_retrieval" not in ds.attrs
    assert yaml.safe_load(ds.attrs["kvsweep_profile"])["format"] == "kvsweep step profile 1"
    assert yaml.safe_load(ds.attrs["kvsweep_config"]) == config_mapping(finished.config)
    assert tuple(ds["cause"].values) == CAUSES and set(CAUSES) <= set(RESOURCES)
    assert set(ds["worker_role"].values) == {"colocated"} and ds["hit_tokens"].values[:, 1:].sum() == 0
    assert ds.attrs["kvsweep_operations"] == finished.state.prefill[:, col.STEPS].sum()
    again = kvsweep.cluster.run(case, yaml.safe_load(ds.attrs["kvsweep_config"]),
                                yaml.safe_load(ds.attrs["kvsweep_profile"]))  # fmt: skip
    assert again.drop_attrs().equals(ds.drop_attrs())
    assert summarize(ds)["bottleneck"] in (*CAUSES, "none")


def test_steps_outside_the_tables_are_counted() -> None:
    small = step_profile(tokens=table([1.0, 20.0], seconds=[1e-3, 2e-3]))
    ds = kvsweep.cluster.run(trace([(0.0, 30, 4, ())], page=4), cluster(1), small)
    assert ds.attrs["kvsweep_operations"] == 4 and ds.attrs["kvsweep_extrapolated_ratio"] == 0.25
    assumed = step_profile(tokens=table([1.0, 20.0], seconds=[1e-3, 2e-3], rows=0))
    assert assumed.kind == "assumed" and small.kind == "measured"


def test_blocks_and_graphs_left_out_are_the_engines() -> None:
    known = step_profile(memory_bytes=20e9, weights_bytes=1e6)
    run = finish(trace([(0.0, 30, 4, ())], page=4), cluster(n_blocks=None, graph_buckets=None), known)
    (group,) = run.config.vllm
    # The usual largest step of Llama-3.1-8B: tokens of two hidden vectors and a gated MLP, logits, the runtime.
    step = 2048 * 2 * (2 * 4096 + 3 * 14336) + 256 * 128256 * 12 + 0.5e9
    blocks = (0.9 * 20e9 - 1e6 - step) // (4 * 131072)
    assert group.n_blocks == blocks
    assert group.graph_buckets == (1, 2, 4, 8)
    assert any(f"n_blocks: {blocks:.0f}, (0.9 x GPU memory - weights" in str(note) for note in run.trace.notes)
    with pytest.raises(InputError, match="memory_bytes: not known.*cluster file: n_blocks"):
        finish(trace([(0.0, 30, 4, ())], page=4), cluster(n_blocks=None), step_profile())


@pytest.mark.parametrize(
    ("rule", "corrupt"),
    [
        (1, lambda f: f.block[0, 0].__setitem__(c.HOLDERS, f.block[0, 0, c.HOLDERS] + 1)),
        (1, lambda f: f.run[0].__setitem__(c.N_FREE, f.run[0, c.N_FREE] - 1)),
        (1, lambda f: f.run[0].__setitem__(c.N_IDLE, f.run[0, c.N_IDLE] + 1)),
        (2, lambda f: f.block[0, f.limits[0, c.N_BLOCKS]].__setitem__(c.AFTER, f.limits[0, c.N_BLOCKS])),
        (3, lambda f: f.bucket[0, :, c.FIRST].fill(-1)),
        (4, lambda f: f.state.request[running(f)].__setitem__(c.COMPUTED, 10**6)),
        (5, lambda f: f.run[0].__setitem__(c.N_WAITING, 99)),
        (6, lambda f: f.state.request[running(f)].__setitem__(c.HIT, f.state.request[running(f), col.PROMPT])),
        (7, lambda f: f.flight_end[0].fill(0)),
        (8, lambda f: f.state.prefill[0].__setitem__(col.LOAD, 99)),
    ],
)
def test_the_checker_sees_what_is_broken(rule: int, corrupt: Callable[[Fleet], Any]) -> None:
    fleet = started(1, 12)
    assert broken_rule(fleet) == 0 and fleet.run[0, c.N_FLIGHT] > 0 and fleet.run[0, c.N_RUNNING] > 0
    corrupt(fleet)
    assert broken_rule(fleet) == rule and RULES[rule]


def running(fleet: Fleet) -> int:
    return int(fleet.running[0, 0])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("eviction",), {"policy": "lru"}, "file: eviction: unknown to vllm workers; allowed: a file without it"),
        (("retention",), {"policy": "none"}, "file: retention: unknown to vllm workers"),
        (("retrieval",), {"policy": "all_compute"}, "file: retrieval: unknown to vllm workers"),
        (("write",), {"policy": "none"}, "file: write: unknown to vllm workers"),
        (("handoff_sharing",), "none", "file: handoff_sharing: unknown to vllm workers"),
        (("engine",), {"overlap": True}, "file: engine: unknown to vllm workers"),
        (("l3",), {"pool_tokens": 1000}, "file: l3: unknown to vllm workers"),
        (("gateway",), {"tree_tokens": 1000}, "file: gateway: tree_tokens: unknown to vllm workers"),
        (("gateway",), {"host_credit": 0.5}, "file: gateway: host_credit: unknown to vllm workers"),
        (("fidelity",), "paper", "file: fidelity: paper: vllm workers have one; allowed: engine"),
        (("vllm",), [], "file: vllm: workers are a list"),
        (("workers", 0, "host_tokens"), 64, "workers[0]: field: no 'host_tokens'"),
        (("workers", 0, "device_tokens"), 64, "workers[0]: field: no 'device_tokens'"),
        (("workers", 0, "watermark_blocks"), 1, "workers[0]: field: no 'watermark_blocks'"),
        (("workers", 0, "n_blocks"), 1, "n_blocks: 1 is out of range; allowed: 2 to 1e+07 blocks"),
        (("workers", 0, "token_budget"), 0, "token_budget: 0 is out of range"),
        (("workers", 0, "max_sequences"), 2.5, "max_sequences: 2.5 is not a whole number"),
        (("workers", 0, "steps_in_flight"), 3, "steps_in_flight: 3 is out of range; allowed: 1 to 2 steps"),
        (("workers", 0, "prefix_cache"), "yes", "prefix_cache: 'yes' is neither true nor false"),
        (("workers", 0, "graph_buckets"), [4, 2], "graph_buckets: [4, 2]; allowed: ascending whole numbers"),
        (("workers", 0, "tp"), None, "workers[0]: tp: missing"),
        (("workers", 0, "role"), "vlm", "role: no 'vlm'; did you mean 'vllm'"),
        (
            ("workers",),
            [WORKER, {"role": "decode", "tp": 1, "device_tokens": 640}],
            "workers: vllm workers beside others; allowed: only those",
        ),
        (
            ("workers",),
            [WORKER, {"role": "colocated", "tp": 1, "device_tokens": 640}],
            "workers: vllm workers beside others; allowed: only those",
        ),
    ],
)
def test_hostile_files_are_refused_in_one_line(place: tuple[Any, ...], value: Any, message: str) -> None:
    values = copy.deepcopy(cluster())
    inner: Any = values
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(InputError) as error:
        parse_config(values, "file")
    assert message in str(error.value) and "\n" not in str(error.value)


def test_what_does_not_go_together_is_refused() -> None:
    one = trace([(0.0, 100, 1, ())], page=4)
    with pytest.raises(InputError, match="vllm workers: tp: 2; allowed: 1, as profile 'made up' has"):
        kvsweep.cluster.run(one, cluster(tp=2), step_profile())
    with pytest.raises(InputError, match="profile 'round figures': service models, and cluster 'cluster' has vllm"):
        kvsweep.cluster.run(one, cluster(), service_profile())
    pair = [{"role": role, "tp": 1, "device_tokens": 640} for role in ("prefill", "decode")]
    with pytest.raises(InputError, match="profile 'made up': step times, and cluster 'cluster' has no vllm workers"):
        kvsweep.cluster.run(one, {"workers": pair}, step_profile())
    with pytest.raises(InputError, match="n_blocks: 40000000 of all together; allowed: at most 33554432"):
        kvsweep.cluster.run(one, cluster(4, n_blocks=10**7), step_profile())
    with pytest.raises(InputError, match="the trace has no requests"):
        kvsweep.cluster.run(one.select(slice(0, 0)), cluster(), step_profile())
    with pytest.raises(InputError, match="the trace lasts 5e.06 s; allowed: at most 4000000 s"):
        kvsweep.cluster.run(trace([(0.0, 1, 1, ()), (5e6, 1, 1, ())], page=4), cluster(), step_profile())
    with pytest.raises(InputError, match="page_size: a block size of 6 tokens; allowed: a divisor or a multiple"):
        kvsweep.cluster.run(trace([(0.0, 9, 1, (1, 2))], page=4), cluster(page_size=6), step_profile())
    slow = step_profile(tokens=table([1.0, 20.0], seconds=[1e11, 1e12]))
    with pytest.raises(InputError, match="the run lasts longer than 4.61e.06 s, what the clock can hold"):
        kvsweep.cluster.run(one, cluster(), slow)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    done("cluster", "init", "--preset", "vllm")
    done("trace", "generate", "--preset", "qa", "--sessions", "8", "--seed", "1", "-o", "trace.jsonl", "-q")
    return tmp_path


RUN = ("cluster", "run", "trace.jsonl", "--config", "cluster.yaml", "--profile", "profile.yaml", "-o", "run.nc")


def test_init_run_and_summary(folder: Path) -> None:
    text = (folder / "cluster.yaml").read_text()
    assert "# KV blocks as the engine reports them" in text
    # The largest step: 8192 tokens of two hidden vectors and a gated MLP, logits of 1024 sequences, the runtime.
    step = 8192 * 2 * (2 * 4096 + 3 * 14336) + 1024 * 128256 * 12 + 0.5e9
    fits = (0.9 * 85520809984 - 16060522496 - step) // 2**21
    assert parse_config(yaml.safe_load(text), "file").vllm[0].n_blocks == fits
    assert "pages of 16 tokens are shared as whole blocks" in done(*RUN, "--check").stderr
    named = done(*RUN[:6], "h100-sxm-llama-3.1-8b", "-o", "named.nc", "--events", "events.json", "-q")
    assert named.stdout == ""
    with kvsweep.open(folder / "run.nc") as ds, kvsweep.open(folder / "named.nc") as other:
        assert ds.drop_attrs().equals(other.drop_attrs()) and ds["finish"].notnull().all()
    found = json.loads(done("cluster", "summary", "run.nc", "--format", "json").stdout)
    assert found["hit_tokens"]["l1"] > 0 and list(found["utilization"]) == [f"worker{i}" for i in range(4)]
    spans = json.loads((folder / "events.json").read_text())["traceEvents"]
    assert {span["name"] for span in spans if span["ph"] == "X"} >= {"prefill", "decode"}


def test_a_policy_file_chooses_the_worker(folder: Path) -> None:
    (folder / "mine.py").write_text(COST)
    values = yaml.safe_load((folder / "cluster.yaml").read_text())
    (folder / "cluster.yaml").write_text(yaml.safe_dump({**values, "gateway": {"policy": "mine"}}))
    done(*RUN, "--policy-file", "mine.py", "-q", "--check")
    (folder / "mine.py").write_text(COST.replace("return ", "return float('nan') * "))
    assert "gateway policy mine (policy file mine.py): at 0.000000 s: cost failed or returned NaN" in refused(
        *RUN, "--policy-file", "mine.py", "-q", "--force"
    )


def test_a_sweep_has_axes_of_the_workers(folder: Path) -> None:
    study = {
        "cluster": "cluster.yaml", "profile": "h100-sxm-llama-3.1-8b", "trace": "trace.jsonl",
        "axes": {"n_vllm": [1, 2], "vllm.n_blocks": [1000, 9000], "vllm.token_budget": [512, 2048]},
    }  # fmt: skip
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    done("cluster", "sweep", "study.yaml", "-o", "study.nc", "--report", "study.html", "-q")
    with kvsweep.open(folder / "study.nc") as ds:
        assert dict(ds.sizes) | {"n_vllm": 2, "vllm_n_blocks": 2, "vllm_token_budget": 2} == dict(ds.sizes)
        one = ds.isel(n_vllm=1, vllm_n_blocks=0, vllm_token_budget=1)
        values = yaml.safe_load((folder / "cluster.yaml").read_text())
        values["workers"][0] |= {"count": 2, "n_blocks": 1000}
        single = kvsweep.cluster.run("trace.jsonl", values, "h100-sxm-llama-3.1-8b")
        assert float(one["ttft"].sel(statistic="mean")) == float(single["ttft"].mean())
        assert float(one["gpus"]) == 2.0
        again = kvsweep.cluster.sweep(yaml.safe_load(ds.attrs["kvsweep_config"]))
        assert again["ttft"].equals(ds["ttft"])
    for axis, said in (
        ("eviction=lru,fifo", "eviction: unknown to vllm workers"),
        ("device_tokens=64,128", "no workers of the cluster file have device_tokens"),
        ("link=rdma-400g,rdma-200g", "vllm workers hand nothing off"),
        ("fidelity=paper", "fidelity: paper: vllm workers have one"),
        ("n_colocated=1", "0 groups of colocated workers"),
    ):
        assert said in refused("cluster", "sweep", "study.yaml", "--axis", axis, "-q")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--fidelity", "paper"), "--fidelity: paper; vllm workers have one; allowed: engine"),
        (("--link", "rdma-400g"), "--link: rdma-400g; vllm workers hand nothing off"),
        (("--tp", "2"), "--tp: no step profile of llama-3.1-8b on 2 x h100-sxm comes with kvsweep; allowed: 1"),
        (("--gpu", "h100"), "memory_bytes: not known, nor num_gpu_blocks; allowed: KV blocks"),
        (("--preset", "vlm"), "--preset: no 'vlm'; did you mean 'vllm'"),
    ],
)
def test_init_refuses(folder: Path, arguments: tuple[str, ...], message: str) -> None:
    assert message in refused("cluster", "init", "--preset", "vllm", "--force", *arguments)


def test_the_command_refuses(folder: Path) -> None:
    assert "--profile: no 'h100-sxm'; did you mean" in refused(*RUN[:6], "h100-sxm", "-o", "x.nc")
    assert "none.yaml: No such file" in refused(*RUN[:6], "none.yaml", "-o", "x.nc")
    plan = ("cluster", "plan", *RUN[2:7], "--slo", "ttft=1")
    assert "workers: role: vllm: no plan is made of these" in refused(*plan)
    (folder / "profile.yaml").write_text(step_profile_text(step_profile()).replace("step profile 1", "step profile 2"))
    assert "profile.yaml: format: 'kvsweep step profile 2'; allowed: 'kvsweep step profile 1'" in refused(*RUN, "-q")
    assert not (folder / "x.nc").exists() and not (folder / "run.nc").exists()


def test_a_core_is_the_same_in_every_process() -> None:
    """Else it would be compiled anew in each."""
    code = (
        "from kvsweep.cluster.simulation.cores import _OPTIONS, CORES\nfrom kvsweep.jit.programs import Program\n"
        "print([Program(each, _OPTIONS).key for core in CORES.values() for each in (core.advance, core.broken_rule)])"
    )
    keys = {
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True,
                       env={**os.environ, "PYTHONHASHSEED": seed}).stdout
        for seed in ("1", "2")
    }  # fmt: skip
    assert len(keys) == 1
