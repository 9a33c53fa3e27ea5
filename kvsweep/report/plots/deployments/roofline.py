"""Roofline of stacks: computing alone, and computing plus the cache read through its tiers, over block counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from kvsweep.catalog.load import Catalog
from kvsweep.costs.deployment import Deployment, deploy
from kvsweep.costs.roofline import compute_seconds, cost_dollars, machine, storage_compute_seconds
from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain
from kvsweep.report.plots.scales import count_axis, seconds_axis

FEWEST, MOST = 500.0, 500_000.0
"""Ends [block] of the block axis."""
COMPUTE_DASH = (0, (2.0, 1.4))


@style.in_style
def figure(catalog: Catalog, stacks: Sequence[str]) -> Figure:
    """Return the figure of `stacks`, keys of the catalog."""
    made = style.new_figure(4.2 + 0.16 * len(stacks))
    draw(
        made.subplots(),
        catalog,
        [deploy(catalog, {"stack": catalog.part("stacks", key, "--stack").key}) for key in stacks],
    )
    return made


def draw(ax: Axes, catalog: Catalog, deployments: Sequence[Deployment]) -> None:
    """Draw both curves of each of `deployments` into `ax`, with what its parts cost in the legend."""
    handles = [_draw_stack(ax, catalog, deployment, i) for i, deployment in enumerate(deployments)]
    handles += [
        Line2D([], [], color=style.INK, label="compute + storage; marks where HBM, then DRAM, is full"),
        Line2D([], [], color=style.INK, linestyle=COMPUTE_DASH, label="compute alone"),
    ]
    ax.set_xscale("log")
    seconds_axis(ax)
    sizes = {deployment.tokens_per_block for deployment in deployments}
    if len(sizes) == 1:
        count_axis(ax.xaxis, each=sizes.pop())
        ax.set_xlabel("Prompt [token]")
    else:
        count_axis(ax.xaxis)
        ax.set_xlabel("Blocks of the request [block]")
    ax.set_ylabel("Time [s]")
    ax.grid(True)
    style.head(ax, "Roofline of the stacks: computing, and computing plus reading the cache", handles)


def _draw_stack(ax: Axes, catalog: Catalog, deployment: Deployment, i: int) -> Line2D:
    """Draw both curves of the i-th stack and return its legend entry."""
    of = machine(deployment)
    filled = np.cumsum(deployment.capacities()[:2])
    ends = filled[(filled > FEWEST) & (filled < MOST)]
    blocks = np.union1d(np.geomspace(FEWEST, MOST, 200), ends)
    color, marker = style.SERIES[i % len(style.SERIES)], style.MARKERS[i % len(style.MARKERS)]
    # Stacks with the same GPU share a curve up to where HBM is full: later ones are thinner and leave a rim.
    width = max(1.1, 2.9 - 0.45 * i)
    ax.plot(blocks, storage_compute_seconds(blocks, of), color=color, lw=width)
    ax.plot(blocks, compute_seconds(blocks, of), color=color, lw=width, linestyle=COMPUTE_DASH)
    ax.plot(ends, storage_compute_seconds(ends, of), marker, mfc=style.PAPER, mec=color, zorder=5)
    return Line2D([], [], color=color, lw=width, marker=marker, mfc=style.PAPER, label=_label(catalog, deployment))


def _label(catalog: Catalog, deployment: Deployment) -> str:
    cost = cost_dollars(catalog, deployment)
    price = "price unknown" if cost is None else f"{cost:,.0f} USD".replace(",", "\u202f")
    gpus = deployment.gpu if deployment.gpu_count == 1 else f"{deployment.gpu_count:g} × {deployment.gpu}"
    parts = f"{gpus} + {deployment.dram_count:g} × {deployment.dram} + {deployment.disk} + {deployment.link}"
    return f"{plain(deployment.stack)}: {plain(parts)}, {price}"
