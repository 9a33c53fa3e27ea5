"""Restore against recompute: violins of all deployments of a GPU over the context length, and its prefill curve."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullFormatter, NullLocator

from kvsweep.catalog.load import Catalog
from kvsweep.catalog.specs import Gpu
from kvsweep.costs.curves import DEFAULT_CURVE_MODEL, TOKENS, comparable_parts, prefill_seconds, restore_grid
from kvsweep.costs.roofline import PERMUTED_GPUS
from kvsweep.report.plots import style
from kvsweep.report.plots.deployments.shapes import Array, log_violin
from kvsweep.report.plots.labels import plain
from kvsweep.report.plots.scales import count_axis, count_text, seconds_axis
from kvsweep.units import GB

DEFAULT_GPUS = PERMUTED_GPUS

FASTER, SLOWER = "#0072b2", "#dde3ea"
"""Fill of the deployments that restore faster, and slower, than the GPU recomputes."""
HALF_WIDTH = 0.12
"""Half the greatest width of a violin [decade]; lengths are 0.29 decades apart at the closest."""


@style.in_style
def figure(catalog: Catalog, gpus: Sequence[str] = DEFAULT_GPUS, compression: float = 1.0) -> Figure:
    """Return a panel for each of `gpus` (catalog keys); `compression` as in `kvsweep.costs.curves.restore_seconds`."""
    parts = comparable_parts(catalog)
    chosen = [catalog.part("gpus", key, "--gpu") for key in gpus]
    made = style.new_figure(1.5 + 2.1 * style.panel_rows(len(chosen)))
    axes = style.panels(made, len(chosen))
    for ax, gpu in zip(axes, chosen, strict=True):
        restore = restore_grid(gpu, parts, TOKENS, compression).reshape(parts.n_deployments, len(TOKENS))
        draw(ax, gpu, restore)
    for ax in axes:
        ax.set(xlabel="Context [token]", ylabel="Time [s]")
        if ax.get_subplotspec().is_first_row():  # type: ignore[union-attr]
            _kv_axis(ax)
    style.outer_labels(axes)
    made.legend(handles=_handles(), loc="outside lower center", ncols=4)
    sent = "" if compression == 1.0 else f", {1 / compression:.3g} × the KV bytes on the path"
    made.suptitle(f"Restore or recompute: {parts.n_deployments} deployments a GPU (DRAM × disk × link){sent}")
    return made


def draw(ax: Axes, gpu: Gpu, restore: Array) -> None:
    """Draw the violins of `restore` [s] (deployment, tokens) and the prefill curve of `gpu` into `ax`."""
    ax.set_xscale("log")
    seconds_axis(ax)
    for tokens, values, limit in zip(TOKENS, restore.T, prefill_seconds(TOKENS, gpu), strict=True):
        levels, density = log_violin(values)
        left, right = tokens * 10.0 ** (-HALF_WIDTH * density), tokens * 10.0 ** (HALF_WIDTH * density)
        ax.fill_betweenx(levels, left, right, color=SLOWER, lw=0)
        ax.fill_betweenx(levels, left, right, where=(levels <= limit).tolist(), color=FASTER, lw=0)
        ax.plot(np.concatenate([left, right[::-1]]), np.concatenate([levels, levels[::-1]]), color=style.INK, lw=0.5)
        ax.plot(
            [tokens], [np.median(values)], "o", color=style.PAPER, markeredgecolor=style.INK, markersize=3, zorder=5
        )
    lengths = np.geomspace(TOKENS[0] / 1.5, TOKENS[-1] * 1.5, 100)
    ax.plot(lengths, prefill_seconds(lengths, gpu), ":", color=style.SERIES[1], lw=1.6, zorder=4)
    ax.set_title(plain(gpu.name), fontweight="bold")
    ax.set_xlim(lengths[0], lengths[-1])
    count_axis(ax.xaxis, TOKENS[::2])
    ax.grid(True, axis="y")


def _kv_axis(ax: Axes) -> None:
    """Give `ax` a top axis that reads its context lengths as the size of their KV cache."""
    top = ax.secondary_xaxis("top")
    top.xaxis.set_major_locator(FixedLocator(list(TOKENS[::2])))
    top.xaxis.set_minor_locator(NullLocator())
    top.xaxis.set_minor_formatter(NullFormatter())
    sizes = DEFAULT_CURVE_MODEL.kv_bytes(TOKENS[::2]) / GB
    top.set_xticks(list(TOKENS[::2]), [count_text(float(size)) for size in sizes])
    top.set_xlabel("KV cache [GB]")


def _handles() -> list[Patch | Line2D]:
    return [
        Patch(facecolor=FASTER, label="restore faster", edgecolor=style.INK, lw=0.5),
        Patch(facecolor=SLOWER, label="restore slower", edgecolor=style.INK, lw=0.5),
        Line2D([], [], marker="o", ls="", mfc=style.PAPER, mec=style.INK, markersize=4, label="median restore"),
        Line2D([], [], ls=":", color=style.SERIES[1], lw=1.6, label="recompute (prefill)"),
    ]
