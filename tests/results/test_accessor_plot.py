"""``ds.kvsweep.plot`` in notebooks: own figures through pyplot, given axes, matplotlib loaded only when asked for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import matplotlib
import pytest

matplotlib.use("Agg")

from matplotlib import pyplot

from kvsweep.errors import InputError
from tests.results.sweep_samples import small, wide


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    pyplot.close("all")  # the README's page leaves its figure open
    yield
    pyplot.close("all")


def test_heatmap_returns_a_panel_a_policy() -> None:
    axes = small().kvsweep.plot.heatmap(hit_ratio=0.8)
    assert [ax.get_title(loc="left").split(":")[0] for ax in axes] == small()["policy_label"].values.tolist()
    assert pyplot.get_fignums() == [axes[0].figure.number]


def test_figures_go_into_given_axes() -> None:
    figure, (left, middle, right) = pyplot.subplots(1, 3)
    plot = small().kvsweep.plot
    assert plot.heatmap(ax=left, policy="all_compute", hit_ratio=0.8) == [left]
    assert plot.success_rate(ax=middle) is middle
    assert plot.sufficient(ax=right, hit_ratio=0.8) is right
    assert left.patches and middle.get_lines() and right.patches
    assert pyplot.get_fignums() == [figure.number]
    with pytest.raises(InputError, match="one panel shows one policy"):
        plot.heatmap(ax=left)


def test_success_rate_and_sufficient_make_their_own_figure() -> None:
    ax = wide().kvsweep.plot.success_rate(x="stack", placement="auto")
    assert ax.get_xlabel() == "Stack"
    ax = wide().kvsweep.plot.sufficient(x="request_rate", y="stack", placement="auto", p95_seconds=30)
    assert ax.get_ylabel() == "Stack"
    assert len(pyplot.get_fignums()) == 2


def test_a_dim_left_open_is_named() -> None:
    with pytest.raises(InputError, match="stack is open: h200, a5000; choose one, as in stack=h200"):
        wide().kvsweep.plot.heatmap(placement="disk")


def test_the_style_stays_inside_the_figure() -> None:
    with matplotlib.rc_context({"font.size": 17.0}):
        small().kvsweep.plot.heatmap()
        assert matplotlib.rcParams["font.size"] == 17.0


def test_matplotlib_is_loaded_when_a_figure_is_asked_for() -> None:
    code = (
        "import sys, kvsweep; ds = kvsweep.sweep(request_rate=0.1, p95_seconds=10); ds.kvsweep.verdict\n"
        "assert 'matplotlib' not in sys.modules\n"
        "ds.kvsweep.plot\n"
        "assert 'matplotlib' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
