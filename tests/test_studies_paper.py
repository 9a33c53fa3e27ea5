"""The paper's studies on stand-ins: what must hold, what is stated beside, and the commands."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr
from cli_runner import done, refused
from study_samples import FIDELITIES

import kvsweep
from kvsweep.cluster.simulation import run
from kvsweep.report.plots.paper_studies import affinity_figure, retention_figure
from kvsweep.studies import affinity as affinities
from kvsweep.studies import retention as retentions
from kvsweep.studies.published import cluster, coding_trace, profiles, rate_of
from kvsweep.studies.replay import cases, replay, workloads
from kvsweep.studies.traces import MadeTrace, arriving

matplotlib.use("Agg")
SPEC = MadeTrace("coding", 40, "few", 0, {}, 40_960, 12)


@pytest.fixture(scope="module", params=FIDELITIES)
def affinity(request: pytest.FixtureRequest) -> xr.Dataset:
    return affinities.affinity(profiles({}), SPEC, (0, 1), request.param)


@pytest.fixture(scope="module", params=FIDELITIES)
def retention(request: pytest.FixtureRequest) -> xr.Dataset:
    return retentions.retention(profiles({}), SPEC, (0,), request.param)


def test_affinity_saves_prefill_and_sessions_add_up(affinity: xr.Dataset) -> None:
    assert all(affinities.checks(affinity).values())
    total = affinity["session_uncached_tokens"].sum("session")
    assert np.array_equal(total, affinity["uncached_tokens"])
    ratio = affinity["uncached_tokens"].sel(gateway="session_affinity") / affinity["uncached_tokens"].sel(
        gateway="round_robin"
    )
    assert np.allclose(affinity["uncached_change"], ratio - 1.0) and affinity.sizes["session"] == 12
    assert affinity.attrs["kvsweep_paper"].count("-0.503") == 1


def test_a_figure_of_the_study_is_the_single_run(affinity: xr.Dataset, request: pytest.FixtureRequest) -> None:
    trace = arriving(SPEC.make(Path(), 1), rate_of("paper", "8B"), 1.0)
    ds = run(
        trace,
        cluster(3, request.node.callspec.params["affinity"], gateway={"policy": "session_affinity"}),
        profiles({})["8B"],
    )
    at = {"profile": "8B", "load": "paper", "seed": 1, "gateway": "session_affinity"}
    assert float(affinity["mean_e2e"].sel(at)) == float(ds["e2e"].mean())
    assert int(affinity["uncached_tokens"].sel(at)) == int(ds["uncached_tokens"].sum())


def test_the_control_is_exact_and_occupancy_grows_with_the_ttl(retention: xr.Dataset) -> None:
    assert all(retentions.checks(retention).values()), retentions.checks(retention)
    assert (retention["occupancy_change"].sel(ttl=np.inf) == 0).all()
    worse = retention.copy()
    worse["mean_occupancy"] = retention["mean_occupancy"].where(retention["ttl"] != 300, 1.0)
    worse["control_is_exact"] = 0 * retention["control_is_exact"]
    assert not any(retentions.checks(worse).values())


def test_the_figures_state_what_the_paper_found(affinity: xr.Dataset, retention: xr.Dataset) -> None:
    for made in (affinity_figure(affinity), retention_figure(retention)):
        stars = [line.get_xydata()[0] for ax in made.axes for line in ax.get_lines() if line.get_marker() == "*"]
        assert made.get_suptitle() and len(made.axes) == 2 and stars
    assert stars[0].tolist() == pytest.approx([-86.9, 7.4])


def test_the_matrix_has_the_paper_s_26_cases() -> None:
    listed = cases()
    assert len(listed) == len(set(listed)) == 26
    assert sum(case.workload == "coding" for case in listed) == 10
    assert str(listed[0]) == "8B 1P-1D papers 1/s"


def test_replay_reports_every_case(monkeypatch: pytest.MonkeyPatch) -> None:
    traces = {name: trace.select(np.arange(30)) for name, trace in workloads(0).items()}
    assert all((trace.output_tokens == 128).all() for name, trace in traces.items() if name != "coding")
    ds = replay(profiles({}), traces)
    assert ds.sizes["case"] == 26 and np.isfinite(ds["ttft"]).all() and (ds["turnaround"] > 0).all()
    assert ((ds["host_hit_ratio"] >= 0) & (ds["host_hit_ratio"] <= 1)).all()
    for name in ds.variables:
        assert ds[name].attrs["long_name"]


def test_sessions_fit_the_models_context() -> None:
    spec = coding_trace(None)
    assert isinstance(spec, MadeTrace) and spec.longest_tokens == 40_960
    trace = spec.make(Path(), 0)
    assert int((trace.input_tokens + trace.output_tokens).max()) <= 40_960 and trace.session.max() == 49


def recorded(folder: Path) -> Path:
    """Write a few sessions in the layout of recorded ones."""
    (folder / "weka").mkdir()
    path = folder / "weka" / "sessions.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for session in range(8):
            turns = [
                {
                    "t": 20.0 * turn,
                    "in": 640 * (turn + 1),
                    "out": 20,
                    "api": 1.0,
                    "think": 5.0,
                    "h": [1, 10 * turn + 10],
                }
                for turn in range(4 + session % 2)
            ]
            file.write(json.dumps({"id": f"s{session}", "bs": 64, "requests": turns}) + "\n")
    return path


def test_the_commands_run_on_recorded_sessions_too(tmp_path: Path) -> None:
    recorded(tmp_path)
    target = tmp_path / "ttl.png"
    environment = {"KVSWEEP_DATA": str(tmp_path)}
    text = done("study", "ttl", "-o", target, "--data", tmp_path / "ttl.nc", env=environment).stdout
    assert "generated" in text and "sessions" in text and "-86.90" in text
    assert "holds: a TTL that never expires gives LRU to the last bit" in text
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"ttl.png", "ttl.nc", "ttl_sessions.png", "ttl_sessions.nc"}
    with kvsweep.open(tmp_path / "ttl.nc") as ds:
        assert ds.attrs["kvsweep_result"] == "retention_study"
    rows = json.loads(done("study", "affinity", "--trace", tmp_path / "weka" / "sessions.jsonl.gz",
                           "--format", "json", "-q").stdout)  # fmt: skip
    assert len(rows) == 4 and rows[0]["uncached_change_paper_measured"] == -0.482


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("affinity", "-o", "a.txt"), "--output: a.txt has no known suffix; allowed: .pdf, .svg, .png"),
        (("ttl", "--data", "a.csv"), "--data: a.csv has no known suffix; allowed: .nc"),
        (("ttl", "--trace", "none.jsonl"), "none.jsonl: No such file"),
        (("replay", "--profile-8b", "none.yaml"), "none.yaml: No such file"),
        (("affinity", "--fidelity", "papr"), "fidelity: no 'papr'"),
    ],
)
def test_bad_input_is_one_line(arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch,
                               tmp_path: Path) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("KVSWEEP_DATA", raising=False)
    assert message in refused("study", *arguments)
    assert not list(tmp_path.iterdir())


def test_a_data_folder_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("KVSWEEP_DATA", str(tmp_path / "none"))
    assert "KVSWEEP_DATA" in refused("study", "ttl")
