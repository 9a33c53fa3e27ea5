"""Maps, winner maps and curves of cluster studies."""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
import pytest
import xarray as xr

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report.plots.studies.study import curve_figure, map_figure, winner_figure
from kvsweep.results.netcdf import write_netcdf
from tests.cli_runner import done, refused
from tests.studies.samples import study

matplotlib.use("Agg")

from matplotlib import pyplot


@pytest.fixture(scope="module")
def ds() -> xr.Dataset:
    axes = {"gateway": ["round_robin", "session_affinity"], "host_tokens": [0, 262144], "seed": [0, 1, 2],
            "ttl": [1, 60, float("inf")]}  # fmt: skip
    return kvsweep.cluster.sweep(study(axes=axes, slo={"ttft_seconds": 1.0}))


def test_a_map_has_a_panel_a_point_and_a_number_a_cell(ds: xr.Dataset) -> None:
    made = map_figure(ds, ("ttl", "host_tokens"), ("ttft", "p95"), "gateway")
    *panels, bar = made.axes
    assert [ax.get_title(loc="left") for ax in panels] == ["gateway round_robin", "gateway session_affinity"]
    wanted = ds["ttft"].sel(statistic="p95", gateway="round_robin").mean("seed").transpose("host_tokens", "ttl")
    assert np.allclose(panels[0].get_images()[0].get_array(), wanted)
    assert len(panels[0].texts) == 6 and bar.get_ylabel() == "TTFT p95 [s]"
    assert [text.get_text() for text in panels[1].get_xticklabels()] == ["1", "60", "never"]


def test_a_winner_map_shows_the_best(ds: xr.Dataset) -> None:
    best = ds.kvsweep.winner("gateway", "token_hit_ratio")
    ratio = ds["token_hit_ratio"].mean("seed")
    assert (best == ratio.argmax("gateway")).all() and best.attrs["flag_meanings"].startswith("none round_robin ")
    least = ds.kvsweep.winner("gateway", "uncached_tokens")
    assert (least == ds["uncached_tokens"].mean("seed").argmin("gateway")).all()
    made = winner_figure(ds, ("ttl", "host_tokens"), "gateway", ("token_hit_ratio", None))
    letters = {text.get_text() for text in made.axes[0].texts}
    assert letters <= {"R", "S"} and "S" in letters


def test_a_cell_without_result_wins_nothing_and_is_drawn_empty(ds: xr.Dataset) -> None:
    lost = ds.copy()
    lost["ttft"] = ds["ttft"].where((ds["ttl"] > 1) | (ds["host_tokens"] > 0))
    assert (lost.kvsweep.winner("gateway").sel(ttl=1, host_tokens=0) == -1).all()
    text = [text.get_text() for text in map_figure(lost, ("ttl", "host_tokens"), panel="gateway").axes[0].texts]
    assert text[0] == "–" and "–" not in text[1:]


def test_a_curve_has_a_line_a_point_and_bands_over_seeds(ds: xr.Dataset) -> None:
    made = curve_figure(ds, "ttl", ("slo_attainment", None), "gateway", {"host_tokens": 0})
    (ax,) = made.axes
    assert len(ax.get_lines()) == 2 and len(ax.collections) == 2
    assert "bands: 95 % intervals of the mean over" in ax.get_title() and "service models assumed" in ax.get_title()
    lowest = min(path.vertices[:, 1].min() for band in ax.collections for path in band.get_paths())
    assert lowest >= 0.0  # a share is not negative, nor is its interval
    one = curve_figure(ds, "ttl", ("occupancy", "l2"), None, {"host_tokens": 0, "gateway": "round_robin", "seed": 1})
    assert not one.axes[0].collections and one.axes[0].get_ylabel() == "Occupancy L2 [token]"


def test_the_command_takes_axes_as_studies_call_them(ds: xr.Dataset, tmp_path: Path) -> None:
    path = tmp_path / "study.nc"
    write_netcdf(ds.rename(host_tokens="prefill_max_running"), path)
    ways = ("--x", "ttl", "--y", "prefill.max_running")
    done("figures", "winner", path, *ways, "--over", "gateway.policy", "-o", tmp_path / "w.png")
    done(
        "figures",
        "map",
        path,
        *ways,
        "--select",
        "gateway.policy=round_robin",
        "--panel",
        "seed",
        "-o",
        tmp_path / "m.svg",
    )
    assert "no dim prefill_chunk_tokens" in refused(
        "figures", "map", path, *ways[:3], "prefill.chunk_tokens", "-o", tmp_path / "n.png"
    )


def test_the_notebook_draws_them_into_axes_that_pyplot_knows(ds: xr.Dataset, tmp_path: Path) -> None:
    pyplot.close("all")
    plot = ds.kvsweep.plot
    panels = plot.map("ttl", "host_tokens", panel="gateway")
    drawn = [panels[1], plot.winner("ttl", "host_tokens", "gateway"),
             plot.curve("ttl", "e2e", "p99", "gateway", host_tokens=0)]  # fmt: skip
    assert len(panels) == 2 and [ax.figure.number for ax in drawn] == pyplot.get_fignums()
    pyplot.savefig(tmp_path / "last.png")
    figure, (left, middle, right) = pyplot.subplots(1, 3)
    assert plot.map("ttl", "host_tokens", gateway="round_robin", ax=left) == [left]
    assert plot.winner("ttl", "host_tokens", "gateway", ax=middle) is middle
    assert plot.curve("ttl", lines="gateway", host_tokens=0, ax=right) is right
    assert left.get_images() and middle.patches and right.get_lines()
    with pytest.raises(InputError, match="panel: gateway; allowed: a map into ax has none"):
        plot.map("ttl", "host_tokens", panel="gateway", ax=left)
    with pytest.raises(InputError, match="no 'tft'"):
        plot.curve("ttl", "tft")
    assert pyplot.get_fignums()[-1] == figure.number, "what could not be drawn leaves no figure"
    pyplot.close("all")
    assert ds.kvsweep.figure("ttft").dims == ("gateway", "host_tokens", "ttl", "seed")


def test_regret_is_against_the_oracle(ds: xr.Dataset) -> None:
    best = 0.8 * ds["uncached_tokens"].sel(ttl=np.inf, drop=True).broadcast_like(ds["uncached_tokens"])
    known = ds.assign(oracle_uncached_tokens=best)
    regret = known.kvsweep.regret
    assert np.allclose(regret.sel(ttl=np.inf), 0.25) and (regret.sel(ttl=1) >= 0.25).all()
    made = curve_figure(known, "ttl", ("regret", None), "gateway", {"host_tokens": 0})
    assert made.axes[0].get_ylabel() == "Regret"
    none = ds.assign(oracle_uncached_tokens=xr.zeros_like(best))
    assert none.kvsweep.regret.isnull().all()
    with pytest.raises(InputError, match="regret: the study has no oracle"):
        _ = ds.kvsweep.regret


def test_what_cannot_be_drawn_is_one_line(ds: xr.Dataset, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no 'tft'; did you mean 'ttft'"):
        ds.kvsweep.figure("tft")
    with pytest.raises(InputError, match="of: no 'p96'; did you mean 'p9"):
        ds.kvsweep.figure("ttft", "p96")
    with pytest.raises(InputError, match="goodness|has nothing to choose"):
        ds.kvsweep.figure("gpus", "mean")
    with pytest.raises(InputError, match="no axis 'evictions'"):
        ds.kvsweep.winner("evictions")
    with pytest.raises(InputError, match="not a study of clusters"):
        kvsweep.sweep(hit_ratio=0.5).kvsweep.figure("ttft")
    write_netcdf(ds, tmp_path / "study.nc")
    file, out = tmp_path / "study.nc", ("-o", tmp_path / "f.png")
    for arguments, message in [
        (("map", file, "--x", "ttl", "--y", "ttl", *out), "--y: ttl is drawn over twice"),
        (("map", file, "--x", "ttl", "--y", "host_tokens", *out), "choose one, as in --select gateway=round_robin"),
        (("curve", file, "--x", "tll", *out), "no dim tll; it has gateway"),
        (("curve", file, "--x", "ttl", "--select", "ttl", *out), "--select: 'ttl' is not AXIS=VALUE"),
        (("winner", file, "--x", "ttl", "--y", "host_tokens", "-o", tmp_path / "f.txt"), "suffix .txt"),
    ]:  # fmt: skip
        assert message in refused("figures", *arguments)
    done("figures", "winner", file, "--x", "ttl", "--y", "host_tokens", *out)
    assert (tmp_path / "f.png").stat().st_size > 10_000


def test_a_title_is_no_formula_and_winners_have_letters(ds: xr.Dataset) -> None:
    drawn = map_figure(ds.assign_attrs(title="a $x_{ b"), ("ttl", "host_tokens"), select={"gateway": "round_robin"})
    drawn.canvas.draw()
    many = ds.isel(ttl=[0] * 36).assign_coords(ttl=np.arange(36.0))
    with pytest.raises(InputError, match="over: ttl has 36 points; allowed: at most 35"):
        winner_figure(many, ("gateway", "host_tokens"), "ttl")
    winner_figure(many.isel(ttl=slice(35)), ("gateway", "host_tokens"), "ttl")
