"""All permutations of parts: one violin of 1764 stacks at seven block counts beside the compute line of each GPU."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from kvsweep.catalog.load import Catalog
from kvsweep.costs.deployment import DEFAULT_MODEL
from kvsweep.costs.roofline import (
    BLOCKS,
    PERMUTED_GPUS,
    Machine,
    compute_seconds,
    permuted_machines,
    storage_compute_seconds,
)
from kvsweep.report.plots import style
from kvsweep.report.plots.deployments.shapes import Array, log_violin
from kvsweep.report.plots.labels import plain
from kvsweep.report.plots.scales import count_axis, count_text, seconds_axis


@style.in_style
def figure(catalog: Catalog) -> Figure:
    """Return the figure; both panels share the axis of seconds, so a line reads against the violin."""
    made = style.new_figure(3.6)
    lines, violin = made.subplots(1, 2, sharey=True, width_ratios=(3.2, 1.0))
    machines = permuted_machines(catalog)
    names = [catalog.part("gpus", key, "gpu").name for key in PERMUTED_GPUS]
    draw_lines(lines, names, machines)
    storage = storage_compute_seconds(BLOCKS, machines)
    draw_violin(violin, storage.ravel())
    handles, _ = lines.get_legend_handles_labels()
    made.legend(handles=handles, loc="outside lower center", ncols=6)
    counts = ", ".join(count_text(count * DEFAULT_MODEL["tokens_per_block"]) for count in BLOCKS)
    stacks = storage.size // len(BLOCKS)
    made.suptitle(f"Computing on six GPUs beside computing + reading on {stacks} stacks\nprompts of {counts} tokens")
    return made


def draw_lines(ax: Axes, names: list[str], machines: Machine) -> None:
    """Draw the compute line of each GPU, the first axis of `machines`, into `ax`."""
    # With another DRAM or disk the compute line is the same; of the links, which only matter past the HBM where
    # arithmetic is not the limit, the slowest is the safe one to draw.
    seconds = compute_seconds(BLOCKS, machines)[:, 0, 0].max(axis=1)
    for i, (name, line) in enumerate(zip(names, seconds, strict=True)):
        ax.plot(
            BLOCKS, line, label=plain(name), color=style.SERIES[i], marker=style.MARKERS[i],
            linestyle=style.DASHES[i], markersize=4,
        )  # fmt: skip
    ax.set_xscale("log")
    seconds_axis(ax)
    count_axis(ax.xaxis, each=DEFAULT_MODEL["tokens_per_block"])
    ax.set_xlabel("Prompt [token]")
    ax.set_ylabel("Time [s]")
    ax.set_title("Compute alone")
    ax.grid(True)


def draw_violin(ax: Axes, seconds: Array) -> None:
    """Draw the violin of pooled `seconds` into `ax` with its quartiles."""
    levels, density = log_violin(seconds)
    ax.fill_betweenx(levels, -density, density, facecolor="#c9d3dd", edgecolor=style.INK, lw=0.6)
    low, median, high = np.quantile(seconds, [0.25, 0.5, 0.75])
    ax.plot([0, 0], [low, high], color=style.INK, lw=3, solid_capstyle="butt")
    ax.plot([0], [median], "o", color=style.PAPER, mec=style.INK, markersize=5, zorder=5)
    ax.set_xticks([])
    values = f"{seconds.size:,}".replace(",", "\u202f")
    ax.set_xlabel(f"{values} values,\nmedian {median:.0f} s,\nbar: quartiles")
    ax.set_title("Compute + storage")
    ax.spines["bottom"].set_visible(False)
    ax.tick_params(labelleft=False)
    ax.grid(True, axis="y")
