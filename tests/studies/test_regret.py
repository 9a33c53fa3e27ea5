"""Regret against the oracle: by hand, shared by the cells it is the same for, and run for all when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report.plots.studies.study import map_figure
from kvsweep.report.studies.study_payload import pack_study
from kvsweep.results.analysis.studies import table
from kvsweep.studies.running import run as module
from kvsweep.trace.write import native_lines
from tests.cli_runner import done, run
from tests.cluster.samples import pages, trace
from tests.studies.samples import FIDELITIES, cluster, study, written

PAGE = 64
NEVER = float("inf")
ORACLE, LRU, NOTHING = 965, 1157, 1285
"""Prompt tokens that are computed of the five prompts of `by_hand`, by next use, by LRU, and when nothing is kept."""


def by_hand(folder: Path, **changes: Any) -> dict[str, Any]:
    """Return a study of prompts a, b, c, a, b of 4 pages and a token on a device of 10 pages, a second apart.

    c needs 5 pages of which 2 are free. The oracle takes 3 of b, finds a whole (1 token computed), and has one page of
    b left at the end: 3 x 257 + 1 + 193. LRU takes 3 of a, then 3 of b: 3 x 257 + 2 x 193.
    """
    requests: list[Any] = [(float(i), 4 * PAGE + 1, 1, pages(10 * name, 4)) for i, name in enumerate((0, 1, 2, 0, 1))]
    (folder / "by_hand.jsonl").write_text("\n".join(native_lines(trace(requests))) + "\n")
    small = cluster(1, page_size=PAGE, write={"policy": "none"}, retention={"check_seconds": 0.1})
    small["workers"][0] |= {"device_tokens": 10 * PAGE, "host_tokens": 0, "chunk_tokens": 8 * PAGE}
    return study(cluster=small, trace=str(folder / "by_hand.jsonl"), **changes)


def count_runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that grows by the eviction policy of each simulation."""
    found: list[str] = []
    real = module.finish

    def noted(made: Any, config: Any, *others: Any, **named: Any) -> Any:
        if len(made) > 1:  # else it is run to compile
            found.append(config.eviction.policy)
        return real(made, config, *others, **named)

    monkeypatch.setattr(module, "finish", noted)
    return found


def test_cells_share_an_oracle_that_is_run_once_when_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count_runs(monkeypatch)
    axes = {"ttl": [0.5, NEVER], "eviction.xi_tokens": [0, 9]}
    ds = kvsweep.cluster.sweep(by_hand(tmp_path, axes=axes, regret=True))
    assert sorted(runs) == ["belady", "lru", "lru"]  # xi_tokens is of another policy
    assert (ds["oracle_uncached_tokens"] == ORACLE).all()
    expected = [[NOTHING / ORACLE - 1, LRU / ORACLE - 1]] * 2
    assert np.allclose(ds.kvsweep.regret.transpose("eviction_xi_tokens", "ttl"), expected, rtol=1e-12)
    assert "no strict bound" in ds.attrs["comment"] and "regret: true" in ds.attrs["kvsweep_config"]


def test_an_oracle_among_the_cells_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = count_runs(monkeypatch)
    axes = {"eviction": ["lru", "belady"], "ttl": [0.5, NEVER]}
    ds = kvsweep.cluster.sweep(by_hand(tmp_path, axes=axes))
    assert sorted(runs) == ["belady", "belady", "lru", "lru"]
    regret = ds.kvsweep.regret
    assert float(regret.sel(eviction="belady", ttl=NEVER)) == 0.0
    assert float(regret.sel(eviction="belady", ttl=0.5)) == pytest.approx(NOTHING / ORACLE - 1)
    assert ds.attrs["kvsweep_foresight"] == "- 'eviction belady: the next use of everything'\n"


def test_every_retention_has_a_regret(tmp_path: Path) -> None:
    """The 8 pages of a and b come back after 3 s, a use of a page saves 1, and 3 s cost 0.3 for each of all 20 uses."""
    kept = "kind, name = 'retention', 'all_day'\ndef ttl(ctx):\n    return 86400.0\n"
    (tmp_path / "all_day.py").write_text(kept)
    axes = {"retention": ["none", "idle_ttl", "hazard_ttl", "all_day"], "retention.seconds": [0.5],
            "retention.cost_per_second": [0.1]}  # fmt: skip
    ds = kvsweep.cluster.sweep(
        by_hand(tmp_path, axes=axes, regret=True), policy_files=[tmp_path / "all_day.py"], threads=1
    )
    wanted = np.array([LRU, NOTHING, LRU, LRU]) / ORACLE - 1
    assert np.allclose(ds.kvsweep.regret, wanted)
    assert ds["chosen_ttl"].values.tolist() == pytest.approx([np.nan, np.nan, 3.0, np.nan], nan_ok=True)
    assert "the gaps between uses in the whole trace" in ds.attrs["kvsweep_foresight"]


def test_without_an_oracle_there_is_no_regret(tmp_path: Path) -> None:
    ds = kvsweep.cluster.sweep(by_hand(tmp_path, axes={"ttl": [0.5, NEVER]}))
    assert "oracle_uncached_tokens" not in ds and "chosen_ttl" not in ds
    assert "regret" not in table(ds)[0]
    with pytest.raises(InputError, match="regret: the study has no oracle; allowed: one with `regret: true`"):
        _ = ds.kvsweep.regret
    with pytest.raises(InputError, match="no 'regret'"):
        ds.kvsweep.figure("regret")


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_regret_of_real_policies(fidelity: str) -> None:
    small = cluster(1, fidelity=fidelity)
    small["workers"][0] |= {"device_tokens": 32_768, "host_tokens": 0}
    axes = {"eviction": ["lru", "fifo", "belady"], "host_tokens": [0, 65_536]}
    ds = kvsweep.cluster.sweep(study(cluster=small, trace={"generate": "qa", "sessions": 20, "turns": 6}, axes=axes))
    regret = ds.kvsweep.regret
    assert (regret.sel(eviction="belady") == 0).all() and (regret.sel(eviction=["lru", "fifo"]) > 0).all()


def test_pictures_tables_and_reports_show_it(tmp_path: Path) -> None:
    ds = kvsweep.cluster.sweep(by_hand(tmp_path, axes={"ttl": [0.5, NEVER]}, regret=True))
    assert [row["regret"] for row in table(ds)] == pytest.approx([NOTHING / ORACLE - 1, LRU / ORACLE - 1])
    assert "regret" in pack_study(ds).header["quantities"]
    two = xr.concat([ds, ds], "host_tokens", data_vars="all", coords="minimal", compat="override")
    two = two.assign_coords(host_tokens=[0, 1]).assign_attrs(ds.attrs)
    drawn = map_figure(two, ("ttl", "host_tokens"), ("regret", None))
    assert np.allclose(drawn.axes[0].get_images()[0].get_array()[0], ds.kvsweep.regret)


def test_what_is_known_of_the_oracle_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, output = written(tmp_path, regret=True), tmp_path / "study.nc"
    expected = done("cluster", "sweep", path, "--dry-run").stdout
    assert "4 simulations" in expected and "4 more of the oracle" in expected
    with monkeypatch.context() as patch:
        patch.setattr(module, "study_dataset", lambda outcome: (_ for _ in ()).throw(KeyboardInterrupt))
        assert run("cluster", "sweep", path, "-o", output).exit_code == 130
    runs = count_runs(monkeypatch)
    written(tmp_path, regret=True, axes={"gateway": ["round_robin", "session_affinity"],
                                         "host_tokens": [0, 262144], "ttl": [1, NEVER]})  # fmt: skip
    assert "resuming: 8 of 12 simulations are done" in done("cluster", "sweep", path, "-o", output).stderr
    assert runs == ["lru"] * 4
    with kvsweep.open(output) as ds:
        assert np.isfinite(ds.kvsweep.regret).all()


def test_it_is_asked_for_by_yes_or_no(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="study: regret: 'belady'; allowed: true or false"):
        kvsweep.cluster.sweep(by_hand(tmp_path, regret="belady"))
