"""Maps of cells: every cell drawn as the Dataset says, readable axes, policies of users, hostile names."""

from __future__ import annotations

import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch

import kvsweep
from kvsweep.errors import InputError
from kvsweep.report.page import asset
from kvsweep.report.plots import cells, labels, style
from kvsweep.report.plots.sweeps import heatmap, sufficient
from kvsweep.results.analysis.slices import take_slice
from tests.results.sweep_samples import ALL, policy_file, small, wide


def drawn_codes(ax: object, shape: tuple[int, int], states: object) -> np.ndarray:
    """Read the code of each cell back from the filled paths that cover its centre."""
    codes = np.full(shape, -9)
    by_color = {to_hex(state.color): code for code, state in enumerate(states)}  # type: ignore[attr-defined]
    centres = [(column, row) for row in range(shape[0]) for column in range(shape[1])]
    for patch in ax.patches:  # type: ignore[attr-defined]
        assert isinstance(patch, PathPatch)
        for polygon in patch.get_path().to_polygons():
            inside = patch.get_path().__class__(polygon).contains_points(centres).reshape(shape)
            assert np.all(codes[inside] == -9), "a cell is drawn twice"
            codes[inside] = by_color[to_hex(patch.get_facecolor())]
    return codes


def test_heatmap_draws_every_cell_as_its_verdict() -> None:
    ds = small()
    figure = heatmap.figure(ds, {"hit_ratio": 0.8})
    expected = ds.kvsweep.verdict.sel(hit_ratio=0.8).transpose("policy", "p95_seconds", "request_rate").values
    assert set(np.unique(expected)) == {0, 1, 2, 3}
    assert len(figure.axes) == 4
    for ax, codes in zip(figure.axes, expected, strict=True):
        np.testing.assert_array_equal(drawn_codes(ax, codes.shape, style.VERDICT_STATES), codes)
        letters = {(text.get_position()): text.get_text() for text in ax.texts}
        assert letters == {
            (column, row): style.VERDICT_STATES[code].letter for (row, column), code in np.ndenumerate(codes)
        }  # fmt: skip


def test_heatmap_says_what_it_shows() -> None:
    ds = small()
    figure = heatmap.figure(ds, {})
    caption = figure.get_suptitle().split("\n")[1]
    assert caption == "h200 · prompt of 3.2M tokens · placement auto · hit ratio 0.4 (default)"
    assert "default" not in heatmap.figure(ds, {"hit_ratio": 0.6}).get_suptitle()
    passed = ds["meets_slo"].sel(hit_ratio=0.4).mean(("request_rate", "p95_seconds"), dtype="f8").values
    titles = [f"{label}: {share:.0%} pass" for label, share in zip(ds["policy_label"].values, passed, strict=True)]
    assert [ax.get_title(loc="left") for ax in figure.axes] == titles
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["F  fail", "S  too slow", "O  overloaded", "P  pass"]
    assert figure.axes[2].get_xlabel() == "Request rate [1/s]"
    assert figure.axes[0].get_ylabel() == "Latency target P95 [s]"


def test_states_of_a_large_map_differ_by_hatch_and_lightness() -> None:
    figure = heatmap.figure(wide(), {"stack": "h200", "placement": "disk", "policy": "default_policy"})
    (ax,) = figure.axes
    assert not ax.texts
    drawn = {to_hex(patch.get_facecolor()): patch.get_hatch() for patch in ax.patches}
    assert drawn == {state.color: state.hatch for state in style.VERDICT_STATES if state.color in drawn}
    lightness = [255 * np.dot(to_rgb(state.color), (0.299, 0.587, 0.114)) for state in style.VERDICT_STATES]
    assert np.all(np.diff(lightness) < -25), "grey prints must keep the states apart"


def test_states_look_and_are_called_alike_on_pages_and_in_figures() -> None:
    script = asset("maps/palette.js")
    light = script[script.index("const LIGHT") : script.index("const DARK")]
    assert re.findall(r'"(#\w+)"', light[light.index("states:") : light.index("ink:")]) == [
        state.color for state in style.VERDICT_STATES
    ]
    for name, told in (("LETTERS", [state.letter for state in style.VERDICT_STATES]),
                       ("TEXTS", [state.name.capitalize() for state in style.VERDICT_STATES])):  # fmt: skip
        line = next(line for line in script.splitlines() if line.startswith(f"const STATE_{name} "))
        assert re.findall(r'"([^"]+)"', line) == told


def test_maps_over_names_and_other_dims() -> None:
    chosen = {"request_rate": 0.05, "p95_seconds": 30, "policy": "default_policy"}
    (ax,) = heatmap.figure(wide(), chosen, x="stack", y="placement").axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["h200", "a5000"]
    assert [text.get_text() for text in ax.get_yticklabels()] == ["disk", "auto"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Stack", "Placement")


def test_sufficient_draws_the_simplest_policy_in_its_own_colour() -> None:
    ds = small()
    figure = sufficient.figure(ds, {"hit_ratio": 0.8})
    (ax,) = figure.axes
    expected = ds.kvsweep.sufficient.sel(hit_ratio=0.8).transpose("p95_seconds", "request_rate").values
    states = sufficient.policy_states(ds)
    assert [state.color for state in states[1:]] == ds["policy_color"].values.tolist()
    assert len({state.letter for state in states}) == len({state.hatch for state in states[1:]}) + 1 == 5
    np.testing.assert_array_equal(drawn_codes(ax, expected.shape, states), expected + 1)
    legend = [text.get_text()[3:] for text in ax.get_legend().get_texts()]
    assert legend == ["Restore", "Recompute", "IO-aware policy", "Slowest tier first", "none passes"]


def test_outline_covers_exactly_the_mask() -> None:
    mask = np.random.default_rng(3).random((7, 9)) < 0.5
    path = cells.outline(mask)
    covered = np.zeros_like(mask)
    for polygon in path.to_polygons():
        (left, low), (right, high) = polygon.min(axis=0), polygon.max(axis=0)
        columns, rows = slice(round(left + 0.5), round(right + 0.5)), slice(round(low + 0.5), round(high + 0.5))
        assert not covered[rows, columns].any()
        covered[rows, columns] = True
    np.testing.assert_array_equal(covered, mask)


@pytest.mark.parametrize(
    ("points", "places", "values"),
    [
        ([5.0, 10.0, 60.0], [0, 1, 2], [5.0, 10.0, 60.0]),
        (np.arange(1, 31) / 100, [4, 9, 14, 19, 24, 29], [0.05, 0.1, 0.15, 0.2, 0.25, 0.3]),
        (np.arange(60, 0, -5), [0, 2, 4, 6, 8, 10], [60, 50, 40, 30, 20, 10]),
        (np.geomspace(1e9, 1e12, 31), [0, 10, 20, 30], [1e9, 1e10, 1e11, 1e12]),
        ([f"s{i}" for i in range(9)], list(range(9)), [f"s{i}" for i in range(9)]),
        ([1, 9, 2, 8, 3, 7, 4, 6, 5, 0], [0, 2, 4, 6, 8], [1, 2, 3, 4, 5]),
    ],
)
def test_ticks_stand_on_round_values(points: object, places: list[float], values: list[object]) -> None:
    listed = points.tolist() if isinstance(points, np.ndarray) else points
    got_places, got_values = cells.ticks(listed)  # type: ignore[arg-type]
    pairs = sorted(zip(got_places, got_values, strict=True))
    np.testing.assert_allclose([place for place, _ in pairs], places, atol=1e-6)
    assert [value for _, value in pairs] == values


def test_units_of_bandwidths_stand_in_the_ticks() -> None:
    assert labels.tick_text("link_bandwidth", 6.4e10) == "64 GB/s"
    assert labels.axis_title("link_bandwidth") == "Bandwidth of the link to the GPU"
    assert labels.axis_title("p95_seconds") == "Latency target P95 [s]"


HOSTILE = ["</script><b>$x_2^", "_hidden", "quote \" and ' 漢字", "very long " * 20, "$\\frac{"]


@pytest.mark.parametrize("label", HOSTILE)
def test_a_policy_of_a_user_appears_and_its_label_stays_text(label: str, tmp_path: Path) -> None:
    mine = policy_file(tmp_path, "mine", label)
    ds = kvsweep.sweep(hit_ratio=0.5, request_rate="0.1:0.3:0.1", policy_files=[mine], policies=[*ALL, "mine"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        panels = heatmap.figure(ds, {})
        panels.savefig(tmp_path / "panels.png")
        one = sufficient.figure(ds, {})
        one.savefig(tmp_path / "one.png")
    titles = [ax.get_title(loc="left") for ax in panels.axes]
    legend = [text.get_text() for text in one.axes[0].get_legend().get_texts()]
    assert (len(titles), len(legend)) == (5, 6)
    assert max(map(len, [*titles, *legend])) < 45
    assert "#ffe600" in [state.color for state in sufficient.policy_states(ds)]


def test_panels_are_laid_out_in_rows_of_at_most_three() -> None:
    for count, shape in {1: (1, 1), 3: (1, 3), 4: (2, 2), 5: (2, 3), 7: (3, 3)}.items():
        figure = Figure()
        axes = style.panels(figure, count)
        grid = axes[0].get_subplotspec().get_gridspec()  # type: ignore[union-attr]
        assert (len(figure.axes), grid.nrows, grid.ncols) == (count, *shape)


def test_one_panel_asks_for_one_policy() -> None:
    part = take_slice(small(), (heatmap.X, heatmap.Y), {})
    with pytest.raises(InputError, match="choose with policy=NAME from performance_aware, "):
        heatmap.draw_one(Figure().subplots(), part)


@pytest.mark.parametrize("count", [1, 2, 4, 5, 7, 8])
def test_every_column_of_panels_has_tick_labels_at_its_foot(count: int) -> None:
    axes = style.panels(style.new_figure(3.0), count)
    for ax in axes:
        ax.set(xlabel="x", ylabel="y")
    style.outer_labels(axes)
    columns = axes[0].get_subplotspec().get_gridspec().ncols
    for index, ax in enumerate(axes):
        foot = index + columns >= count
        assert bool(ax.get_xlabel()) == foot and ax.xaxis.get_tick_params()["labelbottom"] == foot
        assert bool(ax.get_ylabel()) == (index % columns == 0)
