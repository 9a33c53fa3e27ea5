"""The paper's studies on stand-ins: what must hold, what is stated beside, and the commands."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
import xarray as xr

import kvsweep
from benchmarks import paper_studies
from kvsweep.cluster.simulation.run import run
from kvsweep.report.plots.studies.paper_studies import affinity_figure, retention_figure
from kvsweep.studies.shipped import affinity as affinities
from kvsweep.studies.shipped import retention as retentions
from kvsweep.studies.shipped.beside import rows_of
from kvsweep.studies.shipped.published import cluster, coding_trace, profiles, rate_of
from kvsweep.studies.shipped.replay import cases, replay, shown, workloads
from kvsweep.studies.traces import MadeTrace, arriving
from tests.cli_runner import done, refused
from tests.studies.samples import FIDELITIES

matplotlib.use("Agg")
SPEC = MadeTrace("coding", 40, "few", 0, {}, 40_960, 12)


@pytest.fixture(scope="module", params=FIDELITIES)
def affinity(request: pytest.FixtureRequest) -> xr.Dataset:
    return affinities.affinity(profiles({}), SPEC, (0, 1), (request.param,))


@pytest.fixture(scope="module", params=FIDELITIES)
def retention(request: pytest.FixtureRequest) -> xr.Dataset:
    return retentions.retention(profiles({}), SPEC, (0,), (request.param,))


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
    fidelity = request.node.callspec.params["affinity"]
    trace = arriving(SPEC.make(Path(), 1), rate_of("paper", "8B"), 1.0)
    ds = run(
        trace,
        cluster(3, fidelity, gateway={"policy": "session_affinity"}),
        profiles({})["8B"],
    )
    at = {"profile": "8B", "fidelity": fidelity, "load": "paper", "seed": 1, "gateway": "session_affinity"}
    assert float(affinity["mean_e2e"].sel(at)) == float(ds["e2e"].mean())
    assert int(affinity["uncached_tokens"].sel(at)) == int(ds["uncached_tokens"].sum())


def test_the_control_is_exact_and_occupancy_grows_with_the_ttl(retention: xr.Dataset) -> None:
    assert all(retentions.checks(retention).values()), retentions.checks(retention)
    assert (retention["occupancy_change"].sel(ttl=np.inf) == 0).all()
    worse = retention.copy()
    worse["mean_occupancy"] = retention["mean_occupancy"].where(retention["ttl"] != 300, 1.0)
    worse["control_is_exact"] = 0 * retention["control_is_exact"]
    assert not any(retentions.checks(worse).values())


def test_both_fidelities_stand_side_by_side_and_seeds_become_intervals() -> None:
    ds = affinities.affinity(profiles({}), SPEC, (0, 1))
    assert ds["fidelity"].values.tolist() == ["paper", "engine"] and ds.attrs["kvsweep_fidelity"] == "paper, engine"
    assert len(affinity_figure(ds).axes) == 4
    rows = rows_of(ds, affinities.CHANGES, {})
    assert [row["fidelity"] for row in rows[:2]] == ["paper", "engine"] and len(rows) == 8
    values = ds["e2e_change"].sel(profile="8B", load="paper", fidelity="engine").values
    assert rows[1]["e2e_change"] == pytest.approx(values.mean())
    # Student's t of one degree of freedom.
    assert rows[1]["e2e_change_interval"] == pytest.approx(12.706 * values.std(ddof=1) / np.sqrt(2))
    one = rows_of(ds.isel(seed=[0]), affinities.CHANGES, {})[0]
    assert np.isnan(one["e2e_change_interval"])


def test_a_check_that_does_not_hold_is_told(affinity: xr.Dataset) -> None:
    worse = affinity.copy(deep=True)
    worse["uncached_change"][0, 0, 0, 0] = 1e-6
    assert not any(affinities.checks(worse).values())


def test_the_figures_state_what_the_paper_found(affinity: xr.Dataset, retention: xr.Dataset) -> None:
    for made in (affinity_figure(affinity), retention_figure(retention)):
        stars = [line.get_xydata()[0] for ax in made.axes for line in ax.get_lines() if line.get_marker() == "*"]
        assert made.get_suptitle() and len(made.axes) == 2 and stars
        assert "fidelity" in made.axes[0].get_title("left")
    assert stars[0].tolist() == pytest.approx([-86.9, 7.4])


def test_the_matrix_has_the_paper_s_26_cases() -> None:
    listed = cases()
    assert len(listed) == len(set(listed)) == 26
    assert sum(case.workload == "coding" for case in listed) == 10
    assert str(listed[0]) == "8B 1P-1D papers 1/s"


def test_replay_reports_every_case() -> None:
    traces = {name: trace.select(np.arange(30)) for name, trace in workloads(0, coding_trace(None)).items()}
    assert all((trace.output_tokens == 128).all() for name, trace in traces.items() if name != "coding")
    ds = replay(profiles({}), traces)
    assert dict(ds["ttft"].sizes) == {"fidelity": 2, "case": 26, "statistic": 5}
    assert ds.attrs["kvsweep_fidelity"] == "paper, engine"
    assert np.isfinite(ds["ttft"]).all() and (ds["turnaround"] > 0).all()
    assert ((ds["host_hit_ratio"] >= 0) & (ds["host_hit_ratio"] <= 1)).all()
    for name in ds.variables:
        assert ds[name].attrs["long_name"]
    # A cell is the single run of its case.
    case = cases()[3]
    trace = arriving(traces[case.workload], case.rate, 1.0)
    one = run(trace, cluster(case.n_prefill, "engine"), profiles({})[case.size])
    assert float(ds["e2e"].sel(fidelity="engine", case=str(case), statistic="mean")) == float(one["e2e"].mean())


def test_the_engine_is_told_where_it_differs_by_more_than_a_fiftieth() -> None:
    def row(case: str, fidelity: str, ttft: float) -> dict[str, Any]:
        return {"case": case, "fidelity": fidelity, "ttft_mean": ttft, "tpot_mean": 1.0, "e2e_mean": 1.0,
                "token_hit_ratio": 0.5}  # fmt: skip

    rows = [row("a", "paper", 1.0), row("a", "engine", 1.019), row("b", "paper", 1.0), row("b", "engine", 0.979)]
    assert shown(rows) == [rows[0], *rows[2:]]


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
    text = done("study", "ttl", "--seeds", "2", "-o", target, "--data", tmp_path / "ttl.nc", env=environment).stdout
    assert "generated" in text and "sessions" in text and "-86.90" in text
    assert "holds: generated: a TTL that never expires gives LRU to the last bit" in text
    assert "holds: sessions: occupancy grows with the TTL, within 1%" in text and " ± " in text
    names = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert names == {"ttl.png", "ttl.nc", "ttl_sessions.png", "ttl_sessions.nc"}
    with kvsweep.open(tmp_path / "ttl.nc") as ds:
        assert ds.attrs["kvsweep_result"] == "ttl_study"
    rows = json.loads(done("study", "affinity", "--trace", tmp_path / "weka" / "sessions.jsonl.gz",
                           "--seeds", "2", "--format", "json", "-q").stdout)  # fmt: skip
    assert len(rows) == 8 and rows[0]["uncached_change_paper_measured"] == -0.482
    rows = json.loads(done("study", "ttl", "--trace", tmp_path / "weka" / "sessions.jsonl.gz", "--fidelity", "engine",
                           "--seeds", "1", "--format", "json", "-q").stdout)  # fmt: skip
    assert {row["fidelity"] for row in rows} == {"engine"} and rows[0]["ttft_change_interval"] is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("affinity", "-o", "a.txt"), "--output: a.txt has no known suffix; allowed: .pdf, .svg, .png"),
        (("ttl", "--data", "a.csv"), "--data: a.csv has no known suffix; allowed: .nc"),
        (("ttl", "--trace", "none.jsonl"), "none.jsonl: No such file"),
        (("replay", "--profile-8b", "none.yaml"), "none.yaml: No such file"),
        (("affinity", "--fidelity", "papr"), "'--fidelity': 'papr' is not one of 'both', 'engine', 'paper'"),
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


def test_the_table_of_the_readme_is_that_of_the_last_run() -> None:
    found = json.loads(paper_studies.RESULTS.read_text())
    text = paper_studies.README.read_text()
    assert "<!-- studies -->" in text and paper_studies.filled(text, found) == text
    assert paper_studies.filled(text.replace("−59", "−12"), found) == text


def test_the_last_run_is_what_the_studies_give_today() -> None:
    """On generated sessions: the table would be stale otherwise."""
    kept = json.loads(paper_studies.RESULTS.read_text())["generated"]
    for now, then in zip(paper_studies.run(None), kept, strict=True):
        assert now.keys() == then.keys()
        for name, value in then.items():
            assert now[name] == (pytest.approx(value, rel=1e-9) if isinstance(value, float) else value), name


def test_without_recorded_sessions_there_is_no_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KVSWEEP_DATA", raising=False)
    monkeypatch.setattr(paper_studies, "RESULTS", tmp_path / "none.json")
    assert paper_studies.main() == 1 and not list(tmp_path.iterdir())


def test_profiles_may_be_named(tmp_path: Path) -> None:
    name = "h100-sxm-llama-3.1-8b-service"
    assert profiles({"8B": Path(name)})["8B"].model == "llama-3.1-8b"
    for command in (("ttl", "--profile-8b"), ("cliff", "--profile")):
        assert f"--profile: no 'h100'; did you mean '{name[:8]}" in refused("study", *command, "h100", "-q")
