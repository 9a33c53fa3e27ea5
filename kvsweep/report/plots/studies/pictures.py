"""The pictures people expect of a KV hierarchy: sources, the cliff, capacity, and throughput against speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from numpy.typing import NDArray

from kvsweep.report.plots import style
from kvsweep.report.plots.labels import plain, tick_text
from kvsweep.report.plots.scales import count_axis, count_text, keep_scale, seconds_axis
from kvsweep.report.plots.studies.study import draw_line, said
from kvsweep.results.analysis import studies
from kvsweep.results.analysis.slices import value_text
from kvsweep.results.attrs import mapping_attr
from kvsweep.units import format_quantity

HEIGHT = 3.9
MOST_TTFT = 10.0
"""Mean time to first token [s] on a Pareto front, where the study has no target."""
SOURCE_LABELS = {"recompute": "recompute", "device": "on the device (HBM)", "host": "in host memory", "disk": "on disk",
                 "remote": "at another machine"}  # fmt: skip


@style.in_style
def sources_figure(ds: xr.Dataset) -> Figure:
    """Return the time to first token against the prompt and what of it is handoff, a line for each source of its KV."""
    made = style.new_figure(HEIGHT)
    axes = made.subplots(1, 2, width_ratios=(3, 2))
    lengths, sources = ds["prompt_tokens"].values, ds["source"].values
    shares = 100.0 * ds["handoff"] / ds["ttft"]
    for ax, array in zip(axes, (ds["ttft"], shares), strict=True):
        for i, source in enumerate(sources):
            values = array.sel(source=source).values
            label = SOURCE_LABELS.get(str(source), str(source))
            draw_line(ax, (i, len(sources)), lengths, values, np.full(len(values), np.nan), label)
        ax.set_xscale("log")
        count_axis(ax.xaxis, lengths.tolist())
        ax.set_xlabel("Prompt [token]")
        ax.grid(True, axis="y")
    seconds_axis(axes[0])
    axes[0].set_ylabel("Time to first token [s]")
    axes[1].set(ylabel="Share of it that is handoff to decode [%]", ylim=(-3, 103))
    behind = mapping_attr(ds, "kvsweep_sources").values()
    lines = [plain(str(ds.attrs["title"]), 100)]
    lines.append(f"a lone request, {ds.attrs['kvsweep_profile_kind']} profile, fidelity {ds.attrs['kvsweep_fidelity']}")
    if behind:
        lines.append(plain(f"behind the host: {', '.join(map(str, behind))}", 100))
    made.legend(handles=axes[0].get_lines(), loc="outside lower center", ncols=len(sources))
    made.suptitle("\n".join(lines))
    return made


@style.in_style
def cliff_figure(ds: xr.Dataset, device_tokens: float) -> Figure:
    """Return time to first token and throughput against the working set, a line for each size of host memory."""
    made = style.new_figure(HEIGHT)
    axes = made.subplots(1, 2)
    sets = ds["working_set"].values
    figures = (
        (studies.figure(ds, "ttft", "mean"), "Mean time to first token [s]"),
        (ds["tokens_per_second"] / ds["gpus"], "Tokens delivered per GPU [1/s]"),
    )
    for ax, (array, title) in zip(axes, figures, strict=True):
        hosts = ds["host_tokens"].values.tolist()
        for i, tokens in enumerate(hosts):
            part = array.sel(host_tokens=tokens).transpose("working_set").values
            label = "device only" if not tokens else f"host {count_text(float(f'{tokens:.3g}'))}"
            draw_line(ax, (i, len(hosts)), sets, part, np.full(len(part), np.nan), label)
        for i, tokens in enumerate(hosts):
            # The host holds copies of what is on the device, so the larger of both is what fits.
            room = max(device_tokens, tokens)
            if sets.min() < room < sets.max():
                ax.axvline(room, color=style.SERIES[i], lw=0.7, ls=":")
        ax.set_xscale("log")
        ax.xaxis.set_major_formatter(FuncFormatter(count_text))
        ax.set_xlabel("Working set [token]")
        ax.set_ylabel(title)
        ax.grid(True, axis="y")
    seconds_axis(axes[0])
    axes[1].set_ylim(bottom=0.0)
    made.legend(handles=axes[0].get_lines()[: ds.sizes["host_tokens"]], loc="outside lower center", ncols=4)
    made.suptitle(f"{plain(str(ds.attrs['title']), 100)}\ndotted: the larger of device and host")
    return made


@style.in_style
def capacity_figure(ds: xr.Dataset, lru: Sequence[float], infinite: float, kv_bytes_per_token: float) -> Figure:
    """Return hit ratio against host memory, a line for each eviction policy, one cache of all room, an infinite one.

    Host memory is told in tokens and in the bytes they take, `kv_bytes_per_token` [byte] each.
    """
    made = style.new_figure(HEIGHT)
    ax = made.subplots()
    points = ds["host_tokens"].values
    places = np.arange(len(points))
    sizes = [format_quantity(float(f"{tokens * kv_bytes_per_token:.2g}"), "byte") for tokens in points.tolist()]
    texts = [tick_text("host_tokens", tokens) for tokens in points.tolist()]
    ax.set_xticks(places, [f"{text}\n{size}" for text, size in zip(texts, sizes, strict=True)])
    ax.set_xlabel("Host KV of a worker [token, and what it takes]")
    policies = ds["eviction"].values if "eviction" in ds.dims else [None]
    for i, policy in enumerate(policies):
        array = ds["token_hit_ratio"] if policy is None else ds["token_hit_ratio"].sel(eviction=policy)
        mean, half = studies.over_seeds(array)
        name = f"{policy or 'lru'}, each worker its own"
        draw_line(ax, (i, len(policies)), places, 100 * mean.values, 100 * half.values, name)
    ax.plot(places, 100 * np.array(lru), color=style.INK, lw=1.0, ls="--", label="one LRU of all room")
    ax.axhline(100 * infinite, color="#777777", lw=0.8, label="infinite")
    ax.set_ylabel("Prompt tokens reused [%]")
    ax.set_ylim(0, 105 * max(infinite, float(np.nanmax(ds["token_hit_ratio"])), *lru))
    ax.grid(True, axis="y")
    handles = ax.get_legend_handles_labels()[0]
    style.head(ax, f"{plain(str(ds.attrs['title']), 100)}\n{plain(value_text(ds['trace'].values))}", handles)
    return made


@style.in_style
def pareto_figure(ds: xr.Dataset, most_ttft: float | None = None) -> Figure:
    """Return throughput per GPU against tokens per second and user, a point a cell, with the Pareto front.

    On the front is what has a mean TTFT of at most `most_ttft` [s], by default as `ttft_limit` says: without a limit
    settings that make every request wait would come first.
    """
    studies.require_study(ds)
    limit = ttft_limit(ds) if most_ttft is None else most_ttft
    made = style.new_figure(4.4)
    ax = made.subplots()
    speed, rate = front_axes(ds)
    dims = [str(dim) for dim in speed.dims]
    x, y = speed.values.ravel(), rate.values.ravel()
    known = np.isfinite(x) & np.isfinite(y)
    ttft = studies.over_seeds(studies.figure(ds, "ttft", "mean"))[0].transpose(*dims).values.ravel()
    meets = known & (ttft <= limit)
    if (known & ~meets).any():
        ax.plot(x[known & ~meets], y[known & ~meets], "x", color="#b9a39a", ms=4, label=f"mean TTFT over {limit:g} s")
    ax.plot(x[meets], y[meets], "o", color="#9aa7b5", ms=3.5, label="a setting")
    front = pareto(np.where(meets, x, np.nan), y)
    ax.plot(x[front], y[front], color=style.SERIES[0], marker="o", ms=5, label="Pareto front")
    ax.margins(x=0.08, y=0.1)
    ax.autoscale_view()
    keep_scale(ax, "x", "y")
    named: list[tuple[float, float]] = []
    for index in reversed(front):
        at = ax.transAxes.inverted().transform(ax.transData.transform((x[index], y[index])))
        # A label takes about a quarter of the width and a twentieth of the height.
        if any(abs(at[0] - other[0]) < 0.27 and abs(at[1] - other[1]) < 0.05 for other in named):
            continue
        named.append((at[0], at[1]))
        place = np.unravel_index(index, speed.shape)
        words = ", ".join(said(dim, ds[dim].values[i].item()) for dim, i in zip(dims, place, strict=True))
        # Nothing on the front's side of it is above and to the right.
        ax.annotate(
            plain(words), (x[index], y[index]), (4, 5), textcoords="offset points", fontsize=6,
            ha="left" if at[0] < 0.62 else "right",
        )  # fmt: skip
    ax.set_xlabel("Tokens per second and user, 1 / mean TPOT [1/s]")
    ax.set_ylabel("Tokens per second and GPU [1/s]")
    ax.grid(True)
    told = f"{meets.sum()} of {known.sum()} settings have a mean TTFT of at most {limit:g} s"
    style.head(ax, f"{plain(str(ds.attrs.get('title', '')), 100)}\n{told}", ax.get_lines())
    return made


def ttft_limit(ds: xr.Dataset) -> float:
    """Return the mean TTFT [s] beyond which a setting is of no use: the target of the study's SLO, or `MOST_TTFT`."""
    slos = mapping_attr(ds, "kvsweep_config").get("slo") or []
    targets = [slo.get("ttft_seconds") for slo in (slos if isinstance(slos, list) else [slos])]
    return max((float(target) for target in targets if target is not None), default=MOST_TTFT)


def front_axes(ds: xr.Dataset) -> tuple[xr.DataArray, xr.DataArray]:
    """Return tokens per second of a user, and of a GPU, of each cell, seeds averaged."""
    tpot = studies.over_seeds(studies.figure(ds, "tpot", "mean"))[0]
    rate = studies.over_seeds(ds["tokens_per_second"] / ds["gpus"])[0]
    return 1.0 / tpot, rate.transpose(*tpot.dims)


def pareto(x: NDArray[np.float64], y: NDArray[Any]) -> list[int]:
    """Return the points no other one exceeds in both, by descending `x`; NaN belongs to none."""
    order = sorted((i for i in range(len(x)) if np.isfinite(x[i]) and np.isfinite(y[i])), key=lambda i: (-x[i], -y[i]))
    front: list[int] = []
    for index in order:
        if not front or y[index] > y[front[-1]]:
            front.append(index)
    return front
