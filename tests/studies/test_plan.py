"""The fewest workers: the search equals brute force, and says what binds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.inputs.presets import profile_file
from kvsweep.errors import InputError
from kvsweep.studies import plan as module
from kvsweep.studies.plan import Search, Tried, make_search, plan
from kvsweep.trace.convert import scale_to_rate
from kvsweep.trace.generate import generate
from kvsweep.trace.model import Trace
from kvsweep.trace.write import lines
from tests.cli_runner import done, refused, run
from tests.studies import samples as study_samples
from tests.studies.samples import cluster


def questions(rate: float, seed: int = 0) -> Trace:
    return scale_to_rate(generate("qa", 40, seed, input_tokens=9000.0), rate)


def search(trace: Trace, limits: dict[str, float], attainment: float, most: int = 6, **changes: Any) -> Search:
    config = parse_config(cluster(1, **changes), "cluster")
    return make_search(trace, config, study_samples.profile(), limits, attainment, most)


@pytest.mark.parametrize("gateway", ["round_robin", "cache_aware", "session_affinity"])
@pytest.mark.parametrize(("rate", "limits", "attainment"), [
    (4.0, {"ttft": 1.5}, 0.9), (8.0, {"ttft": 2.0, "tpot": 0.02}, 0.95), (12.0, {"e2e": 4.0}, 0.8),
    (2.0, {"ttft": 0.8, "tpot": 0.006}, 0.7),
])  # fmt: skip
def test_the_answer_is_that_of_brute_force(
    gateway: str, rate: float, limits: dict[str, float], attainment: float
) -> None:
    trace = questions(rate)
    found = plan(search(trace, limits, attainment, gateway={"policy": gateway}))
    brute = search(trace, limits, attainment, gateway={"policy": gateway})
    brute.run(list(itertools.product(range(1, 7), repeat=2)))
    good = [each for each in brute.tried.values() if each.attainment >= attainment]
    if not good:
        assert found.found is None
        return
    least = min(sum(each.counts) for each in good)
    best = max((each for each in good if sum(each.counts) == least), key=lambda each: (each.attainment, each.counts))
    assert found.found is not None and found.found.counts == best.counts
    assert found.certain and found.found.attainment == best.attainment


def fake(attained: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let simulations answer with a function of the counts."""

    def one(self: Search, counts: tuple[int, ...]) -> Tried:
        share = attained(*counts)
        return Tried(counts, share, {"ttft": share}, {"ttft": 1.0}, "prefill", {})

    monkeypatch.setattr(Search, "_one", one)


def test_large_answers_take_few_simulations(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(lambda p, d: min(p / 37, d / 11, 1.0), monkeypatch)
    found = plan(search(questions(1.0), {"ttft": 1.0}, 1.0, most=64))
    assert found.found is not None and found.found.counts == (37, 11)
    assert found.simulations < 40 and found.monotone and not found.certain


def test_a_trade_between_roles_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(lambda p, d: min(1.0, p * d / 400), monkeypatch)
    found = plan(search(questions(1.0), {"ttft": 1.0}, 1.0, most=64))
    assert found.found is not None and sum(found.found.counts) == 40


def test_where_more_workers_are_worse_every_smaller_total_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    fake(lambda p, d: 1.0 if (p, d) == (3, 2) or (p >= 30 and d >= 30) else 0.0, monkeypatch)
    monkeypatch.setattr(module, "CERTIFIED", 0)
    found = plan(search(questions(1.0), {"ttft": 1.0}, 1.0, most=64))
    assert found.found is not None and found.found.counts in ((30, 30), (3, 2))
    monkeypatch.setattr(module, "CERTIFIED", 10_000)
    found = plan(search(questions(1.0), {"ttft": 1.0}, 1.0, most=64))
    assert found.found is not None and found.found.counts == (3, 2) and not found.monotone


def files(folder: Path, trace: Trace) -> list[str]:
    import yaml

    (folder / "trace.jsonl").write_text("".join(f"{line}\n" for line in lines(trace, "kvsweep")))
    (folder / "cluster.yaml").write_text(yaml.safe_dump(cluster(1)))
    (folder / "profile.yaml").write_text(profile_file(study_samples.profile()))
    options = ["--config", folder / "cluster.yaml", "--profile", folder / "profile.yaml"]
    return [str(part) for part in (folder / "trace.jsonl", *options)]


def test_the_command_names_what_binds(tmp_path: Path) -> None:
    arguments = files(tmp_path, questions(6.0))
    slo = ("--slo", "ttft=2s,tpot=50ms", "--most", "12")
    text = done("cluster", "plan", *arguments, *slo, "-q").stdout
    assert (
        "one prefill worker less: TTFT binds" in text and "of the requests meet ttft <= 2 s and tpot <= 0.05 s" in text
    )
    record = json.loads(done("cluster", "plan", *arguments, *slo, "-q", "--format", "json").stdout)
    assert record["met"] and record["attainment"] >= 0.95 and record["workers"]["prefill"] > 1
    assert record["total_workers"] == sum(record["workers"].values())


def test_an_slo_that_cannot_be_met_is_told(tmp_path: Path) -> None:
    arguments = files(tmp_path, questions(6.0))
    result = run("cluster", "plan", *arguments, "--slo", "ttft=1ms", "--most", "3", "-q")
    assert result.exit_code == 1 and "not met with 3 workers of each role" in result.stderr
    assert "even 3 prefill, 3 decode workers: TTFT binds" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "--slo: missing; allowed: ttft=, tpot=, e2e="),
        (("--slo", "ttft=2s", "--attainment", "0"), "--attainment: 0; allowed: more than 0, at most 1"),
        (("--slo", "p95=2s"), "--slo: 'p95=2s'; allowed: ttft="),
        (("--slo", "ttft=2s", "--request-rate", "0"), "--request-rate: 0; allowed"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in refused("cluster", "plan", *files(tmp_path, questions(1.0)), *options, "-q")


def test_a_role_needs_one_group() -> None:
    values = cluster(1)
    values["workers"].append(dict(values["workers"][0]))
    config = parse_config(values, "cluster")
    with pytest.raises(InputError, match="several groups of a role"):
        plan(make_search(questions(1.0), config, study_samples.profile(), {"ttft": 1.0}, 0.9))
