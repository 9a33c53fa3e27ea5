"""Hostile traces, clusters, profiles and policies given to ``kvsweep cluster run``: one line, exit code 2, no file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import kvsweep
from kvsweep.cluster.setup import overflow as bounds
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.shared.state import State
from kvsweep.cluster.simulation import run as simulation
from tests.cli_runner import GOOD_POLICY, done, refused

RUN = ("cluster", "run", "t.jsonl", "--config", "c.yaml", "--profile", "p.yaml", "-o", "r.nc", "--events", "e.nc", "-q")


def row(time: Any = 0, n_input: Any = 600, n_output: Any = 5, ids: Any = (0, 1)) -> dict[str, Any]:
    return {"timestamp": time, "input_length": n_input, "output_length": n_output, "hash_ids": ids}


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(one) + "\n" for one in rows)


TRACE = lines(row(0), row(3000), row(6000, 1100, 6, (0, 1, 3)))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fidelity: str) -> Path:
    """Work in a folder that holds a good trace, cluster file and profile."""
    monkeypatch.chdir(tmp_path)
    done("cluster", "init", "--fidelity", fidelity, "-o", "c.yaml", "--profile", "p.yaml")
    Path("t.jsonl").write_text(TRACE)
    return tmp_path


def change(file: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    values = yaml.safe_load(Path(file).read_text())
    edit(values)
    Path(file).write_text(yaml.safe_dump(values))


def nothing_written() -> bool:
    return sorted(path.name for path in Path().iterdir() if path.suffix != ".py") == ["c.yaml", "p.yaml", "t.jsonl"]


def refusal() -> str:
    """Return the message of the run, which must fail and write nothing."""
    message = refused(*RUN)
    assert nothing_written()
    return message


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TRACE[:-20], "t.jsonl: line 3: not JSON: Unterminated string"),
        (TRACE[:-2], "t.jsonl: line 3: not JSON: "),
        (TRACE.encode()[:-20] + b"\xff\xfe", "t.jsonl: line 3: not UTF-8 text"),
        ("", "t.jsonl: holds no requests"),
        (TRACE.replace("3000", "NaN"), "t.jsonl: line 2: not JSON: NaN is no number JSON allows"),
        (TRACE.replace("3000", "Infinity"), "t.jsonl: line 2: not JSON: Infinity is no number JSON allows"),
        (TRACE.replace("3000", "1e999"), "t.jsonl: line 2: "),
        (TRACE.replace("3000", "-1"), "t.jsonl: line 2: timestamp: -1 is out of range; allowed: 0 to"),
        (TRACE.replace("6000", "9e12"), "the trace lasts 9e+09 s; allowed: at most 4000000 s"),
        (TRACE.replace("600,", "-600,"), "t.jsonl: line 1: input_length: -600 is out of range"),
        (TRACE.replace("600,", "600.5,"), "t.jsonl: line 1: input_length: 600.5 is not a whole number"),
        (TRACE.replace("600,", "1e18,"), "t.jsonl: line 1: input_length: "),
        (TRACE.replace(": 5", ": -5"), "t.jsonl: line 1: output_length: -5 is out of range"),
        (TRACE.replace("[0, 1]", "[0, null]"), "t.jsonl: line 1: hash_ids: "),
        (
            lines(row(n_input=0, ids=())),
            "t.jsonl: holds no requests that could be replayed: dropped (1): requests with",
        ),
    ],
)
def test_bad_traces(text: str | bytes, said: str) -> None:
    Path("t.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert refusal().startswith(said)


def results(*arguments: str) -> Any:
    """Return the result of the run, which must succeed."""
    assert done(*RUN, *arguments).stderr == ""
    with kvsweep.open("r.nc") as ds:
        return ds.load()


@pytest.mark.parametrize("epoch", ["x", "", "1e3", "99999999999999999999"])
def test_a_date_that_is_none(epoch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    assert refusal() == f"SOURCE_DATE_EPOCH: {epoch!r}; allowed: seconds since 1970"


@pytest.mark.parametrize("option", ["--output", "--events"])
@pytest.mark.parametrize("given", ["t.jsonl", "c.yaml", "p.yaml", "mine.py"])
def test_no_input_is_overwritten(option: str, given: str) -> None:
    """Even with --force, and under another name."""
    Path("mine.py").write_text(GOOD_POLICY)
    before = {path.name: path.read_bytes() for path in Path().iterdir()}
    os.link(given, "out.nc")
    out = {"--output": "r.nc", option: "out.nc"}
    arguments = [
        *RUN[:7],
        "--policy-file",
        "mine.py",
        "--force",
        "-q",
        *(part for pair in out.items() for part in pair),
    ]
    assert refused(*arguments) == f"{option}: out.nc is an input, too; allowed: another name"
    Path("out.nc").unlink()
    assert {path.name: path.read_bytes() for path in Path().iterdir()} == before


def test_unsorted_times_are_sorted_and_said() -> None:
    Path("t.jsonl").write_text("".join(reversed(TRACE.splitlines(keepends=True))))
    assert "assumed (2): requests out of order, sorted by time" in done(*RUN[:-1]).stderr
    with kvsweep.open("r.nc") as ds:
        assert ds["arrival"].values.tolist() == [0.0, 3.0, 6.0]
        assert ds["prompt_tokens"].values.tolist() == [600, 600, 1100]


def test_no_output_is_one_token_and_said() -> None:
    Path("t.jsonl").write_text(lines(row(n_output=0), row(5)))
    assert "assumed (1): output length 0 taken as 1: prefill itself yields a token" in done(*RUN[:-1]).stderr
    with kvsweep.open("r.nc") as ds:
        assert ds["output_tokens"].values.tolist() == [1, 5] and ds["finish"].notnull().all()


@pytest.mark.parametrize("n_input", [262_145, 10**6, 10**8])
def test_a_prompt_larger_than_every_pool_is_rejected_and_the_others_run(n_input: int) -> None:
    Path("t.jsonl").write_text(lines(row(0, n_input, 5, ()), row(5), row(9, 600, 10**8)))
    ds = results("--check")
    assert ds["rejected"].values.tolist() == [1, 0, 1]
    assert ds["finish"].notnull().values.tolist() == [False, True, False]
    assert ds["uncached_tokens"].values.tolist() == [0, 600, 0]


@pytest.mark.parametrize("worker", [0, 1])
def test_pools_that_hold_nobody_reject_all(worker: int) -> None:
    change("c.yaml", lambda config: config["workers"][worker].update(device_tokens=64))
    assert refused(*RUN, code=1).startswith("all 3 requests were rejected: ")
    with kvsweep.open("r.nc") as ds:
        assert ds["rejected"].values.all() and ds["ttft"].isnull().all()


def test_a_host_of_no_capacity_keeps_nothing() -> None:
    change("c.yaml", lambda config: config["workers"][0].update(host_tokens=0))
    ds = results("--check")
    assert not ds["rejected"].any() and not ds["bytes_in"].sel(tier="l2").any()


@pytest.mark.parametrize(
    ("worker", "field", "value", "said"),
    [
        (0, "device_tokens", 0, "workers[0]: device_tokens: 0 is out of range"),
        (0, "device_tokens", float("nan"), "workers[0]: device_tokens: nan is out of range"),
        (0, "host_tokens", -1, "workers[0]: host_tokens: -1 is out of range"),
        (0, "chunk_tokens", 0, "workers[0]: chunk_tokens: 0 is out of range"),
        (0, "max_running", 0, "workers[0]: max_running: 0 is out of range"),
        (1, "device_tokens", 0, "workers[1]: device_tokens: 0 is out of range"),
        (1, "max_running", 0, "workers[1]: max_running: 0 is out of range"),
        (1, "graph_buckets", [], "workers[1]: graph_buckets: []; allowed: "),
    ],
)
def test_workers_without_capacity(worker: int, field: str, value: Any, said: str) -> None:
    change("c.yaml", lambda config: config["workers"][worker].update({field: value}))
    assert refusal().startswith(f"c.yaml: {said}")


@pytest.mark.parametrize(("kept", "missing"), [(0, "decode"), (1, "prefill")])
def test_a_cluster_without_workers_of_a_role(kept: int, missing: str) -> None:
    change("c.yaml", lambda config: config.update(workers=[config["workers"][kept]]))
    assert refusal().startswith(f"c.yaml: workers: no {missing} worker; allowed: ")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "c.yaml:2: broken YAML"),
        ("- 1\n", "c.yaml: [1] is not a mapping"),
        ("", "c.yaml: "),
        ("\x00", "c.yaml: not readable as YAML"),
    ],
)
def test_broken_cluster_files(text: str, said: str) -> None:
    Path("c.yaml").write_text(text)
    assert refusal().startswith(said)


@pytest.mark.parametrize(
    ("part", "field", "value", "said"),
    [
        ("prefill", "token_seconds", float("nan"), "prefill: token_seconds: nan is out of range"),
        ("prefill", "token_seconds", -1e-6, "prefill: token_seconds: -1e-06 is out of range"),
        ("handoff", "bytes_per_s", 0, "handoff: bytes_per_s: 0 is out of range"),
        ("h2d", "bytes_per_s", float("inf"), "h2d: bytes_per_s: inf is out of range"),
        ("d2h", "setup_seconds", "soon", "d2h: setup_seconds: 'soon' is not a number"),
        ("decode", "base_seconds", [float("inf")], "decode: base_seconds: [inf]; allowed: one number of 0 to 100 s"),
        (
            "prefill",
            "tokens",
            {"low": 5, "high": 1},
            "prefill: tokens: low 5 is above high 1; allowed: low at most high",
        ),
        ("d2h", "payload_bytes", {"low": 2, "high": 1}, "d2h: payload_bytes: low 2 is above high 1"),
    ],
)
def test_bad_profiles(part: str, field: str, value: Any, said: str) -> None:
    change("p.yaml", lambda profile: profile[part].update({field: value}))
    assert refusal().startswith(f"p.yaml: {said}")


def test_times_the_clock_cannot_hold() -> None:
    change("p.yaml", lambda profile: profile["prefill"].update(token_pair_seconds=1.0))
    assert "make times the clock cannot hold; allowed: shorter requests" in refusal()


# -- retrieval policies; the third request finds eight pages on the host


def ask(answer: str) -> None:
    """Set up a cluster that asks a policy with this answer."""
    Path("mine.py").write_text(GOOD_POLICY.replace("0.5 * ctx.hit_blocks", answer))
    # The second prompt fills the device; the engine asks for a page more.
    pools = {"paper": 640, "engine": 704}
    prefill = {"count": 1, "host_tokens": 64_000}
    change("c.yaml", lambda c: c["workers"][0].update(prefill, device_tokens=pools[c["fidelity"]]))
    change("c.yaml", lambda config: config.update(retrieval={"policy": "mine"}, slo={"ttft_seconds": 1.0}))
    Path("t.jsonl").write_text(lines(row(0, 513, 1, (0, 9)), row(1000, 640, 1, (5, 6)), row(2000, 513, 1, (0, 8))))


REFUSED_ANSWERS = {
    "float('nan') * ctx.hit_blocks": "request 2 at 2.000000 s: decide returned NaN blocks; allowed: a number",
    "'many'": "decide failed: ValueError: could not convert string to float: 'many'",
    "[][0]": "decide failed: IndexError: list index out of range",
    "None": "decide failed: TypeError: ",
    "(1.0,)": "decide failed: TypeError: ",
    "1j": "decide failed: TypeError: ",
    "float(len(globals()))": "cannot be compiled: ",
}
REFUSED_MODES = {
    "1": "request 2 at 2.000000 s: decide returned mode 1; allowed: half or an index of these",
    "-1": "request 2 at 2.000000 s: decide returned mode -1; allowed: half or an index of these",
    "0.5": "request 2 at 2.000000 s: decide returned mode 0.5; allowed: half or an index of these",
    "0 if ctx.hit_blocks < 8 else 7": "request 2 at 2.000000 s: decide returned mode 7; allowed: half or an index of",
    "'most'": "decide returned mode 'most'; allowed: half or an index of these",
    "None": "decide failed: TypeError: ",
    "'half' if ctx.hit_blocks < 8 else 'most'": "cannot be compiled: Cannot unify ",
}


@pytest.mark.parametrize("mode", REFUSED_MODES)
def test_policies_that_name_no_mode_of_theirs(mode: str) -> None:
    ask("0.5 * ctx.hit_blocks")
    Path("mine.py").write_text(Path("mine.py").read_text().replace('ctx.hit_blocks, "half"', f"ctx.hit_blocks, {mode}"))
    message = refused(*RUN, "--policy-file", "mine.py")
    assert message.startswith("policy mine (policy file mine.py): ") and REFUSED_MODES[mode] in message
    assert nothing_written()


@pytest.mark.parametrize("mode", ["0", "0.0", "False", "'half'"])
def test_a_mode_is_a_label_or_its_index(mode: str) -> None:
    ask("0.5 * ctx.hit_blocks")
    before = results("--policy-file", "mine.py", "--force")
    Path("mine.py").write_text(Path("mine.py").read_text().replace('ctx.hit_blocks, "half"', f"ctx.hit_blocks, {mode}"))
    assert results("--policy-file", "mine.py", "--force").equals(before)


FAILING = """
    if ctx.hit_blocks > 7:
        raise ValueError("too many")
"""


def test_policies_that_raise_for_some_requests(capfd: pytest.CaptureFixture[str]) -> None:
    """Compiled code in C functions would print it, and go on with anything."""
    ask("0.5 * ctx.hit_blocks")
    Path("mine.py").write_text(Path("mine.py").read_text().replace("(ctx):\n", f"(ctx):{FAILING}"))
    said = "policy mine (policy file mine.py): request 2 at 2.000000 s: decide failed: ValueError: too many"
    assert refused(*RUN, "--policy-file", "mine.py") == said
    assert nothing_written() and capfd.readouterr() == ("", "")
    plain = subprocess.run(
        [sys.executable, "-m", "kvsweep", *RUN, "--policy-file", "mine.py"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (plain.returncode, plain.stderr) == (2, f"kvsweep: error: {said}\n")
    assert nothing_written()


@pytest.mark.parametrize(("kind", "name", "function"), [("gateway", "last", "cost"), ("eviction", "odd", "key")])
def test_gateways_and_evictions_that_raise(
    kind: str, name: str, function: str, capfd: pytest.CaptureFixture[str]
) -> None:
    ask("0.5 * ctx.hit_blocks")
    source = f"kind, name = {kind!r}, {name!r}\ndef {function}(ctx):\n    if ctx.seconds > 1.5:\n"
    Path("odd.py").write_text(f"{source}        raise ValueError('too late')\n    return 1.0\n")
    change("c.yaml", lambda config: config.update({kind: {"policy": name}}))
    message = refused(*RUN, "--policy-file", "mine.py", "--policy-file", "odd.py")
    who = f"{kind} policy {name} (policy file odd.py): at 2.000000 s: "
    assert message == f"{who}{function} failed or returned NaN; allowed: a number"
    assert nothing_written() and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("answer", REFUSED_ANSWERS)
def test_policies_that_answer_no_number(answer: str) -> None:
    ask(answer)
    message = refused(*RUN, "--policy-file", "mine.py")
    assert message.startswith("policy mine (policy file mine.py): ") and REFUSED_ANSWERS[answer] in message
    assert nothing_written()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("float('nan') * ctx.hit_blocks", "decide returned NaN blocks"),
        ("'many'", "decide failed: ValueError: could not convert string to float"),
        ("[][0]", "decide failed: IndexError"),
        ("1.0 / (ctx.hit_blocks - ctx.hit_blocks)", "decide failed: ZeroDivisionError"),
    ],
)
def test_policies_that_fail_as_plain_python(answer: str, said: str) -> None:
    ask(answer)
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "kvsweep", *RUN, "--policy-file", "mine.py"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(
        f"kvsweep: error: policy mine (policy file mine.py): request 2 at 2.000000 s: {said}"
    )
    assert len(result.stderr.splitlines()) == 1 and nothing_written()


@pytest.mark.parametrize(
    ("answer", "retrieved"),
    [
        ("float('inf') * ctx.hit_blocks", 0),
        ("-float('inf') * ctx.hit_blocks", 512),
        ("-5.0", 512),
        ("1e300", 0),
        ("3", 320),
        ("2.5", 320),
        ("2.49", 384),
    ],
)
def test_answers_beyond_what_is_there_are_brought_to_it(answer: str, retrieved: int) -> None:
    """Blocks to recompute, rounded to the nearest page: none of eight is the least, all of them the most."""
    ask(answer)
    ds = results("--policy-file", "mine.py", "--check")
    assert ds["hit_tokens"].values[2].tolist() == [0, retrieved, 0]


def test_a_policy_needs_its_objective() -> None:
    ask("1.0")
    change("c.yaml", lambda config: config.pop("slo"))
    message = refused(*RUN, "--policy-file", "mine.py")
    assert message.startswith("slo: ttft_seconds: missing; retrieval policy mine decides by it") and nothing_written()


# -- what only a fault of kvsweep can cause


def test_a_run_without_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that has lost its pages admits nobody: no endless loop, but a failure with exit code 1."""

    def broken(*arguments: Any) -> State:
        state = initial_state(*arguments)
        state.prefill[0, col.FREE] = 1
        return state

    initial_state = simulation.initial_state
    monkeypatch.setattr(simulation, "initial_state", broken)
    message = refused(*RUN, code=1)
    assert message.startswith("no progress: nothing is due and 3 requests are not done; request 0 ")
    assert "waits for its admission" in message and nothing_written()


# -- what engine fidelity alone knows


def engine(**changes: Any) -> None:
    """Set up a cluster file of engine fidelity with these changes."""
    done("cluster", "init", "--fidelity", "engine", "-o", "c.yaml", "--profile", "p.yaml", "--force")
    change("c.yaml", lambda config: config.update(changes))


COLOCATED = {"role": "colocated", "tp": 2, "device_tokens": 262_144, "host_tokens": 524_352}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"workers": [{"role": ["prefill"]}]}, "c.yaml: workers[0]: role: no ['prefill']; did you mean "),
        ({"workers": [{"role": {}}]}, "c.yaml: workers[0]: role: no {}; choose from prefill, decode, colocated"),
        ({"fidelity": 1}, "c.yaml: fidelity: no 1; choose from engine, paper"),
        ({"engine": {"schedule": None, "overlap": "on"}}, "c.yaml: engine: overlap: 'on' is neither true nor false"),
        ({"engine": {"schedule": "sjf"}}, "c.yaml: engine: schedule: no 'sjf'; choose from fcfs, lpm"),
        ({"engine": {"conservativeness": float("nan")}}, "c.yaml: engine: conservativeness: nan is out of range"),
        ({"l3": {}}, "c.yaml: l3: pool_tokens: missing"),
        ({"l3": {"pool_tokens": 0}}, "c.yaml: l3: pool_tokens: 0 is out of range"),
        ({"l3": {"pool_tokens": 10**7}, "write": {"policy": "write_back"}}, "c.yaml: l3: with write policy write_back"),
        ({"workers": [COLOCATED], "fidelity": "paper", "engine": None, "gateway": None}, "c.yaml: workers: role: "),
        ({"fidelity": "paper", "gateway": None}, "c.yaml: engine: unknown to fidelity paper; allowed: "),
        (
            {"fidelity": "paper", "engine": None, "gateway": {"tree_tokens": 1}},
            "c.yaml: gateway: tree_tokens: unknown to fidelity paper",
        ),
    ],
)
def test_options_of_the_engine(changes: dict[str, Any], said: str) -> None:
    engine(**changes)
    assert refusal().startswith(said)


@pytest.mark.parametrize(
    ("part", "change_of_it", "said"),
    [
        ("l3_read", None, "profile: l3_read: missing; the cluster has l3; allowed: "),
        (
            "l3_write",
            {"boundary": "whole", "bytes_per_s": 1e9, "payload_bytes": {"low": 2, "high": 1}},
            "p.yaml: l3_write: payload_bytes: low 2 is above high 1; allowed: low at most high",
        ),
        (
            "l3_write",
            {"boundary": "whole", "bytes_per_s": 1e9, "setup_seconds": 100.0},
            "l3: batch_pages: 1; a request of 5001 tokens has 79 batches, whose times the clock cannot hold; allowed: ",
        ),
        ("d2h", {"boundary": "whole", "bytes_per_s": 1e6}, "copies of 5001 tokens at once, which pools of workers"),
    ],
)
def test_profiles_for_l3_and_writing_back(part: str, change_of_it: Any, said: str) -> None:
    engine(l3={"pool_tokens": 10**7, "batch_pages": 1})
    Path("t.jsonl").write_text(lines(row(0, 5000, 1, list(range(10)))))
    change("p.yaml", lambda profile: profile.update({part: change_of_it}))
    if part == "d2h":
        change("p.yaml", lambda profile: profile.update(kv_bytes_per_token=1e9))
    assert refusal().startswith(said)


def test_a_run_that_outlasts_the_clock() -> None:
    change(
        "p.yaml", lambda profile: profile["decode"].update(batch=[1], base_seconds=[100.0], context_token_seconds=[0])
    )
    change("c.yaml", lambda config: config["workers"][1].update(max_running=1))
    change("c.yaml", lambda config: config.update(context={"beyond": "serve"}))
    Path("t.jsonl").write_text(lines(row(n_output=100_000)))
    assert "make times the clock cannot hold" in refusal()
    Path("t.jsonl").write_text(lines(*(row(n_output=20_000) for _ in range(3))))
    assert refusal().startswith("the run lasts longer than 4.61e+06 s, what the clock can hold; allowed: ")


def test_decode_times_that_grow_beyond_all_sense() -> None:
    grows = {"batch": [1, 2], "base_seconds": [0.0, 100.0], "context_token_seconds": [0, 0]}
    change("p.yaml", lambda profile: profile["decode"].update(grows))
    change("c.yaml", lambda config: config["workers"][1].update(graph_buckets=[65_536]))
    assert refusal().startswith(
        "profile 'roofline qwen3-8b l20z tp2': decode: goes on to 6.55e+06 s for batches of 65536; allowed: "
    )


def test_workers_beyond_the_memory_that_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "available_memory", lambda: 1e8)
    large = {"count": 4096, "max_running": 4096}
    change("c.yaml", lambda config: [group.update(large) for group in config["workers"]])
    said = "4096 x 4096 workers with max_running 4096 and pages of 64 tokens need "
    assert refusal().startswith(said) and "GB of memory and 0.1 GB are free; allowed: fewer workers" in refusal()


def test_a_budget_above_all_prompts_is_none() -> None:
    change("c.yaml", lambda config: config["workers"][0].update(chunk_tokens=64 * 10**7))
    assert not results()["rejected"].any()
