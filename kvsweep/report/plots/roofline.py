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


@style.in_style
def figure(catalog: Catalog, stacks: Sequence[str]) -> Figure:
    """Return the figure of `stacks`, keys of the catalog."""
    made = style.new_figure(4.2 + 0.16 * len(stacks))
    draw(made.subplots(), catalog, [deploy(catalog, {"stack": key}) for key in stacks])
    return made


def draw(ax: Axes, catalog: Catalog, deployments: Sequence[Deployment]) -> None:
    """Draw both curves of each of `deployments` into `ax`, with what its parts cost in the legend."""
    handles = []
    for i, deployment in enumerate(deployments):
        look = {"color": style.SERIES[i % len(style.SERIES)], "linewidth": 1.3 + 0.5 * (len(deployments) - 1 - i)}
        of = machine(deployment)
        filled = np.cumsum(deployment.capacities()[:2])
        ends = filled[(filled > FEWEST) & (filled < MOST)]
        blocks = np.union1d(np.geomspace(FEWEST, MOST, 200), ends)
        ax.plot(blocks, storage_compute_seconds(blocks, of), **look)
        ax.plot(blocks, compute_seconds(blocks, of), linestyle=(0, (2.0, 1.4)), **look)
        marker = style.MARKERS[i % len(style.MARKERS)]
        ax.plot(ends, storage_compute_seconds(ends, of), marker, mfc=style.PAPER, mec=look["color"], zorder=5)
        handles.append(Line2D([], [], marker=marker, mfc=style.PAPER, label=_label(catalog, deployment), **look))
    handles += [
        Line2D([], [], color=style.INK, label="compute + storage; marks where HBM, then DRAM, is full"),
        Line2D([], [], color=style.INK, linestyle=(0, (2.0, 1.4)), label="compute alone"),
    ]
    ax.set_xscale("log")
    seconds_axis(ax)
    count_axis(ax.xaxis)
    ax.set_xlabel("Blocks of the request [block]")
    ax.set_ylabel("Time [s]")
    ax.grid(True)
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ax.figure.suptitle("Roofline of the stacks")  # type: ignore[union-attr]


def _label(catalog: Catalog, deployment: Deployment) -> str:
    cost = cost_dollars(catalog, deployment)
    price = "price unknown" if cost is None else f"{cost:,.0f} USD".replace(",", "\u202f")
    gpus = deployment.gpu if deployment.gpu_count == 1 else f"{deployment.gpu_count:g} × {deployment.gpu}"
    parts = f"{gpus} + {deployment.dram_count:g} × {deployment.dram} + {deployment.disk} + {deployment.link}"
    return f"{plain(deployment.stack)}: {plain(parts)}, {price}"
