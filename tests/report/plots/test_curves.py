"""Curves and violins: lines and shapes hold the numbers, labels name them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

import kvsweep
from kvsweep.catalog.load import load
from kvsweep.costs import curves
from kvsweep.costs import roofline as costs
from kvsweep.costs.deployment import deploy
from kvsweep.report.plots import scales
from kvsweep.report.plots.deployments import permutations, roofline, violins
from kvsweep.report.plots.deployments.shapes import log_violin
from kvsweep.report.plots.sweeps import success
from tests.results.sweep_samples import small, wide

CATALOG = load()


def test_success_draws_a_line_a_policy_in_its_colour() -> None:
    ds = small()
    (ax,) = success.figure(ds, {}).axes
    rates = 100.0 * ds.kvsweep.success_rate().values
    lines = ax.get_lines()
    assert len(lines) == 4
    for line, rate, color in zip(lines, rates, ds["policy_color"].values, strict=True):
        np.testing.assert_allclose(line.get_xdata(), [0.4, 0.6, 0.8])
        np.testing.assert_allclose(line.get_ydata(), rate)
        assert line.get_color() == color
    looks = {(line.get_marker(), str(line.get_linestyle()), line.get_linewidth()) for line in lines}
    assert len(looks) == len({line.get_marker() for line in lines}) == 4
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ds["policy_label"].values.tolist()
    assert ax.get_ylabel().endswith("[%]") and ax.get_xlabel() == "Hit ratio [1]"
    assert ax.get_title().split("\n")[1] == "h200 · prompt of 3.2M tokens · placement auto"


def test_a_few_hit_ratios_lie_on_a_linear_axis_with_labels() -> None:
    ds = kvsweep.sweep(stack="h200", placement="auto", total_blocks=10_000, hit_ratio=[0.5, 0.9, 0.99])
    figure = success.figure(ds, {})
    (ax,) = figure.axes
    figure.draw_without_rendering()
    low, high = ax.get_xlim()
    shown = [text.get_text() for text in ax.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert ax.get_xscale() == "linear" and len([text for text in shown if text]) >= 4


def test_a_short_log_axis_names_each_of_its_points() -> None:
    ax = Figure().subplots()
    scales.point_axis(ax, np.array([0.25, 0.5, 1.0, 2.0, 4.0]), lambda value: f"{value:g}")
    ax.set_xlim(0.2, 5.0)
    assert ax.get_xscale() == "log"
    assert [text.get_text() for text in ax.get_xticklabels()] == ["0.25", "0.5", "1", "2", "4"]


def test_a_scale_is_never_narrower_than_a_tenth() -> None:
    low, high = scales.widened(99.9, 100.1)
    assert (high - low, (low + high) / 2) == (pytest.approx(10.01), pytest.approx(100.0))
    assert scales.widened(1.0, 3.0) == (1.0, 3.0)
    assert scales.widened(0.0, 0.0) == (0.0, 0.0) and scales.widened(-1.0, -1.0)[1] > -1.0


def test_success_over_names_and_of_streamed_rates() -> None:
    (ax,) = success.figure(wide(), {"placement": "disk"}).axes
    assert [text.get_text() for text in ax.get_xticklabels()] == ["h200", "a5000"]
    streamed = kvsweep.sweep(stack="h200", placement="auto", total_blocks=10_000, reduce="success_rate")
    full = kvsweep.sweep(stack="h200", placement="auto", total_blocks=10_000)
    lines = [success.figure(ds, {}).axes[0].get_lines() for ds in (streamed, full)]
    for ours, theirs in zip(*lines, strict=True):
        np.testing.assert_allclose(ours.get_ydata(), theirs.get_ydata())


def test_violins_hold_all_deployments_and_the_prefill_line() -> None:
    figure = violins.figure(CATALOG, ["H100", "A5000"], compression=0.1)
    panels = figure.axes
    assert [ax.get_title(loc="left") for ax in panels] == ["H100", "RTX A5000"]
    assert "1764 deployments a GPU" in figure.get_suptitle() and "10 × the KV bytes" in figure.get_suptitle()
    for ax, key in zip(panels, ("H100", "A5000"), strict=True):
        assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
        gpu = CATALOG.gpus[key]
        pooled = curves.restore_grid(gpu, curves.comparable_parts(CATALOG), compression=0.1).reshape(1764, -1)
        medians = [line.get_ydata()[0] for line in ax.get_lines() if line.get_marker() == "o"]
        np.testing.assert_allclose(medians, np.median(pooled, axis=0))
        outlines = [line.get_ydata() for line in ax.get_lines() if len(line.get_ydata()) > 200]
        np.testing.assert_allclose([data.min() for data in outlines], pooled.min(axis=0))
        np.testing.assert_allclose([data.max() for data in outlines], pooled.max(axis=0))
        (dotted,) = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
        np.testing.assert_allclose(dotted.get_ydata(), curves.prefill_seconds(dotted.get_xdata(), gpu))
        (top,) = ax.child_axes
        assert [text.get_text() for text in top.get_xticklabels()] == ["2", "8", "32", "125"]
        assert top.get_xlabel() == "KV cache [GB]"


def test_by_default_the_published_gpus_with_the_bytes_as_they_are() -> None:
    figure = violins.figure(CATALOG)
    assert len(figure.axes) == 6 and "×the" not in figure.get_suptitle().replace(" ", "")
    assert sum(bool(ax.child_axes) for ax in figure.axes) == 3, "KV sizes over the first row only"


def test_violin_is_the_density_of_logarithms() -> None:
    values = 10.0 ** np.random.default_rng(1).normal(1.0, 0.3, 4000)
    levels, density = log_violin(values)
    assert (levels[0], levels[-1]) == (np.float64(values.min()), np.float64(values.max())) or np.allclose(
        [levels[0], levels[-1]], [values.min(), values.max()]
    )
    assert density.max() == 1.0
    assert abs(np.log10(levels[density.argmax()]) - 1.0) < 0.1
    flat, width = log_violin(np.array([3.0, 3.0]))
    np.testing.assert_allclose(flat, 3.0)
    assert np.all(width == 1.0)


def test_roofline_draws_both_curves_with_cost_and_kinks() -> None:
    (ax,) = roofline.figure(CATALOG, ["h200", "a100_ddr4_sata"]).axes
    texts = [text.get_text() for text in ax.get_legend().get_texts()]
    assert texts[:2] == [
        "h200: H200 + 4 × DDR5 + NVMe + NVLink, 42\u202f650 USD",
        "a100_ddr4_sata: A100 + 4 × DDR4 + SATA + PCIe, 12\u202f890 USD",
    ]
    storage, compute, kinks = ax.get_lines()[:3]
    machine = costs.machine(deploy(CATALOG, {"stack": "h200"}))
    np.testing.assert_allclose(storage.get_ydata(), costs.storage_compute_seconds(storage.get_xdata(), machine))
    np.testing.assert_allclose(compute.get_ydata(), costs.compute_seconds(compute.get_xdata(), machine))
    np.testing.assert_allclose(kinks.get_xdata(), [62_500, 126_500])
    assert set(kinks.get_xdata()) <= set(storage.get_xdata())


def test_a_stack_without_prices_says_so() -> None:
    ax = Figure().subplots()
    roofline.draw(ax, CATALOG, [deploy(CATALOG, {"gpu": "h100-sxm", "gpu_count": 2})])
    assert ax.get_legend().get_texts()[0].get_text().startswith("custom: 2 × h100-sxm + 4 × DDR5")
    assert "price unknown" in ax.get_legend().get_texts()[0].get_text()


def test_permutations_pool_all_stacks_beside_six_lines() -> None:
    figure = permutations.figure(CATALOG)
    lines, violin = figure.axes
    assert len(lines.get_lines()) == len(figure.legends[0].get_texts()) == 6
    for line, key in zip(lines.get_lines(), costs.PERMUTED_GPUS, strict=True):
        machine = costs.machine(deploy(CATALOG, {"gpu": key}))
        np.testing.assert_allclose(line.get_ydata(), costs.compute_seconds(costs.BLOCKS, machine))
    assert "1764 stacks" in figure.get_suptitle()
    assert violin.get_xlabel().startswith("12\u202f348 values")
    assert lines.get_ylim() == violin.get_ylim()


def test_counts_and_seconds_are_written_for_people() -> None:
    assert [scales.count_text(count) for count in (2, 500, 16e3, 62_500, 2e6)] == ["2", "500", "16k", "62.5k", "2M"]
    assert [scales.seconds_text(value) for value in (0.001, 1.0, 1000.0, 1e5)] == ["0.001", "1", "1000", "100\u202f000"]


def test_success_over_a_log_spaced_dim_has_a_log_axis_with_units() -> None:
    ds = kvsweep.sweep(stack="h200", total_blocks=50_000, hit_ratio=0.5, link_bandwidth="log:1e9:1e12:n31")
    figure = success.figure(ds, {})
    (ax,) = figure.axes
    figure.draw_without_rendering()
    assert ax.get_xscale() == "log"
    assert {"1 GB/s", "100 GB/s", "1 TB/s"} <= {text.get_text() for text in ax.get_xticklabels()}
    assert all(line.get_markevery() == 2 for line in ax.get_lines())
