"""A kernel profile composed to the step times of a model: a `StepProfile`, with its error on rows held out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import log

import numpy as np
from numpy.typing import NDArray

from kvsweep.calibrate.curves import FEW, filled, held_out, monotone_curve, monotone_grid, thinned
from kvsweep.calibrate.fits.skew import Rest, skew_table
from kvsweep.calibrate.kernels.layers import Parallel, head_seconds, kernel_count, measured_tokens, token_seconds
from kvsweep.calibrate.kernels.profile import Curve, KernelProfile
from kvsweep.catalog.models import kv_bytes_per_token_moved
from kvsweep.catalog.specs import Model
from kvsweep.cluster.inputs.step_profile import StepProfile, Table
from kvsweep.errors import InputError

Floats = NDArray[np.float64]
Point = tuple[float, float, float, float]
CurveFit = Callable[[Curve], tuple[Floats, Floats]]

EAGER = "sum of kernel times, taken eagerly, one layer times its number"
PRODUCTS = "sum of the matrix products, one layer times its number; no other kernels"
PROCESSORS = {
    "RTX 4090": 128, "RTX PRO 6000": 188, "H100 PCIe": 114, "H100": 132, "H200": 132, "A100": 108, "L40S": 142,
    "L40": 142, "L4": 58, "A10": 72, "RTX 5090": 170, "RTX 6000 Ada": 142,
}  # fmt: skip
"""Streaming multiprocessors by the name of a GPU (NVIDIA's data sheets and architecture papers); the first match."""
MEMORY = {"RTX 4090": 25250627584.0, "RTX PRO 6000": 102641958912.0}
"""Memory as the driver shows it [byte]: a run of LLMServingSim; AIConfigurator's system file."""
CURVE_TOLERANCE = 0.004
"""Curves keep the points they need to stay as close to all of them, relative."""


def compose(
    kernels: KernelProfile, model: Model, parallel: Parallel | None = None, processors: int = 0, thin: float = 0.0
) -> StepProfile:
    """Return the step times of `model` on the GPUs that `kernels` were measured on.

    Parameters
    ----------
    processors
        Streaming multiprocessors of the GPU, which decide where decode splits its KV; by default known by its name.
    thin
        Points of the attention grid are left out where their neighbours give a step within this error, relative.
    """
    parallel = parallel or Parallel()
    if model.shape is None or model.weights is None:
        raise InputError(f"--model: {model.key} has no shape and weights in the catalog; allowed: a model that has")
    if model.shape.layers_full_attention != model.shape.layers:
        raise InputError(f"--model: {model.key} has window or linear layers; allowed: full attention in all layers")
    layers, tp = model.shape.layers, kernels.tp
    tokens = _curve(kernels, model, parallel)
    saving = layers * kernel_count(kernels, model) * kernels.shortest_kernel
    sequences = _head(kernels, tokens)
    rest = Rest(tokens, sequences)
    attention = attention_table(kernels, layers, rest, thin)
    return StepProfile(
        name=f"{model.key} on {kernels.gpu}, tp{tp}",
        model=model.key,
        gpu=kernels.gpu,
        tp=tp,
        kv_bytes_per_token=kv_bytes_per_token_moved(model.shape),
        weights_bytes=weights_bytes(kernels, model, parallel),
        memory_bytes=next((size for name, size in MEMORY.items() if name in kernels.gpu), 0.0),
        note=f"dp {parallel.dp}, ep {parallel.ep}" if (parallel.dp, parallel.ep) != (1, 1) else "",
        tokens=tokens,
        sequences=sequences,
        attention=attention,
        skew=skew_table(kernels, layers, rest),
        split_below=_split_below(kernels, processors, -(-model.shape.kv_heads // tp)),
        captured_saving_seconds=saving if kernels.complete else 0.0,
    )


def weights_bytes(kernels: KernelProfile, model: Model, parallel: Parallel) -> float:
    """Return the bytes of weights that one group of tensor-parallel ranks holds: of the experts its ranks' share."""
    assert model.shape is not None and model.weights is not None
    shape = model.shape
    experts = (
        3.0 * shape.hidden_size * shape.moe_intermediate_size * shape.experts * (shape.layers - shape.dense_layers)
    )
    kept = experts * min(kernels.tp / parallel.ep, 1.0)
    return (model.weights.total - experts + kept) * kernels.weight_bytes


def _split_below(kernels: KernelProfile, processors: int, kv_heads: int) -> float:
    """Return the decode batch from which KV is not split: 0.8 · 2 · processors / KV heads of a rank [requests]."""
    known = processors or next((count for name, count in PROCESSORS.items() if name in kernels.gpu), 0)
    return 0.8 * 2.0 * known / kv_heads


def _curve(kernels: KernelProfile, model: Model, parallel: Parallel) -> Table:
    most = measured_tokens(kernels, model, parallel)
    x = np.array([at for at in sorted(set.intersection(*map(set, kernels.dense.values()))) if at <= most])
    if len(x) < 2:
        raise InputError(f"{kernels.folder}: layers share {len(x)} token counts up to {most:g}; allowed: two or more")
    y = token_seconds(kernels, model, x, parallel)
    boundary = EAGER if kernels.complete else PRODUCTS
    return _monotone_table(kernels, dict(zip(x.tolist(), y.tolist(), strict=True)), boundary, ("dense", "moe"))


def _head(kernels: KernelProfile, tokens: Table) -> Table:
    x = np.array(sorted(set.union(*(set(curve) for curve in kernels.per_sequence.values()))))
    y = head_seconds(kernels, x)
    points = dict(zip(x.tolist(), y.tolist(), strict=True))
    return _monotone_table(kernels, points, "sum of the head's and the sampler's kernels", ("per_sequence",), tokens)


def _monotone_table(
    kernels: KernelProfile, points: dict[float, float], boundary: str, parts: Iterable[str], rest: Table | None = None
) -> Table:
    """Return the monotone curve through `points`, with the error of the same fit without the rows held out.

    With `rest`, what else a step of as many tokens takes, the error is that of the step.
    """
    x, y = monotone_curve(points)
    keep = thinned(x, y, CURVE_TOLERANCE)
    errors = apart(points, rest)
    parts = [name for name in parts if name in kernels.sha256]
    return Table(
        boundary=boundary,
        source=f"{kernels.gpu}: {', '.join(kernels.files[name] for name in parts)}",
        sha256=" ".join(kernels.sha256[name] for name in parts),
        rows=len(points),
        held_out_rows=len(errors),
        held_out_error=float(np.mean(errors)) if errors else 0.0,
        axes=(tuple(x[keep].tolist()),),
        seconds=tuple(y[keep].tolist()),
    )


def apart(points: Curve, rest: Table | None = None, fit: CurveFit = monotone_curve) -> list[float]:
    """Return the relative errors of `fit` at the rows held out: one in ten, or each by turns where rows are few."""
    inner = sorted(points)[1:-1]
    turns = [{at} for at in inner] if len(points) < FEW else [{at for at in inner if held_out((at,))}]
    errors = []
    for out in turns:
        x, y = fit({at: value for at, value in points.items() if at not in out})
        for at in sorted(out):
            other = float(np.interp(at, rest.axes[0], rest.seconds)) if rest else 0.0
            errors.append(abs((float(np.interp(at, x, y)) + other) / (points[at] + other) - 1.0))
    return errors


def attention_table(kernels: KernelProfile, layers: int, rest: Rest, thin: float = 0.0) -> Table:
    """Return the attention of all layers on the largest regular grid of the rows; the others are held out, too."""
    rows = {point: seconds * layers for point, seconds in kernels.attention.items()}
    axes = regular_axes([row for row in rows if _on_ladder(row, kernels.ladder)])
    out = {
        point for point in rows if held_out(point) or any(at not in axis for at, axis in zip(point, axes, strict=True))
    }
    fit = grid_of({point: value for point, value in rows.items() if point not in out}, axes)
    points = np.array(sorted(out))
    measured = np.array([rows[tuple(point)] for point in points.tolist()])
    other = rest.seconds(points)
    errors = np.abs((interpolated(fit, axes, points) + other) / (measured + other) - 1.0)
    grid = grid_of(rows, axes)
    if thin > 0.0:
        axes, grid = thinned_grid(axes, grid, rest, thin)
    return Table(
        boundary=kernels.attention_boundary,
        source=f"{kernels.gpu}: {kernels.files['attention']}; error of a whole step, rows held out or off the grid",
        sha256=kernels.sha256["attention"],
        rows=len(rows),
        held_out_rows=len(points),
        held_out_error=float(errors.mean()),
        axes=tuple(tuple(axis) for axis in axes),
        seconds=tuple(grid.ravel().tolist()),
        measured_to=_measured_to(kernels, axes),
    )


def _measured_to(kernels: KernelProfile, axes: list[list[float]]) -> tuple[float, ...]:
    if kernels.measured_before is None:
        return ()
    return tuple(kernels.measured_before if dim == 1 else axis[-1] for dim, axis in enumerate(axes))


def _on_ladder(row: Point, factor: float) -> bool:
    """Return whether tokens and contexts of a row are points of the grid its profile states: 16, 16·f, 16·f², …"""
    if factor == 0.0:
        return True
    steps = [log(value / 16.0, factor) for value in (row[0], row[1], row[3]) if value > 0.0]
    return all(abs(step - round(step)) < 1e-6 for step in steps)


def regular_axes(rows: Iterable[Point]) -> list[list[float]]:
    """Return the axes of the regular grid that holds most of the rows; a profile may hold several grids."""
    rows = list(rows)
    by_chunk: dict[float, set[float]] = {}
    by_prior: dict[float, set[float]] = {}
    for chunk, prior, decodes, context in rows:
        if decodes > 0 and chunk > 0:
            by_chunk.setdefault(chunk, set()).add(context)
            by_prior.setdefault(prior, set()).add(context)
    best: tuple[int, list[list[float]]] | None = None
    for contexts in {frozenset(found) for found in by_chunk.values()}:
        chunks = {0.0} | {chunk for chunk, found in by_chunk.items() if contexts <= found}
        priors = {0.0} | {prior for prior, found in by_prior.items() if contexts <= found}
        inside = [row for row in rows if row[0] in chunks and row[1] in priors and row[3] in contexts | {0.0}]
        axes = [sorted(chunks), sorted(priors), sorted({0.0} | {row[2] for row in inside}), sorted({0.0} | contexts)]
        if best is None or len(inside) > best[0]:
            best = len(inside), axes
    if best is None or min(map(len, best[1])) < 2:
        raise InputError("attention.csv: no grid of prompt chunks and decodes; allowed: rows of both together")
    return best[1]


def grid_of(rows: dict[Point, float], axes: list[list[float]]) -> Floats:
    """Return the measured times on the grid, monotone along tokens before, decodes and context.

    Without decodes the context does not matter, nor tokens before an empty chunk; decodes after nothing take what the
    shortest measured context takes. Other gaps are filled from neighbours.
    """
    places = [{value: i for i, value in enumerate(axis)} for axis in axes]
    grid = np.full([len(axis) for axis in axes], np.nan)
    for point, value in rows.items():
        if all(at in place for at, place in zip(point, places, strict=True)):
            grid[tuple(place[at] for at, place in zip(point, places, strict=True))] = value
    grid[0, 0, 0, 0] = 0.0
    # Gaps first along tokens before and contexts, within one kind of step.
    grid[:, :, 1:, 0] = np.where(np.isnan(grid[:, :, 1:, 0]), grid[:, :, 1:, 1], grid[:, :, 1:, 0])
    grid[:, :, 0, :] = grid[:, :, 0, :1]
    grid[0, 1:] = grid[0, :1]
    grid = filled(grid, [np.array(axis) for axis in axes])
    empty = grid[0, :, 0, :].copy()
    smooth = monotone_grid(grid, (1, 3, 2))
    smooth[0, :, 0, :] = np.maximum(empty, 0.0)
    return smooth


def interpolated(grid: Floats, axes: list[list[float]], points: Floats) -> Floats:
    """Return the grid at `points` (n, 4), linear along each axis and continued beyond it."""
    total = np.zeros(len(points))
    cells = []
    for dim, axis in enumerate(np.array(a) for a in axes):
        i = np.clip(np.searchsorted(axis, points[:, dim]) - 1, 0, len(axis) - 2)
        cells.append((i, (points[:, dim] - axis[i]) / (axis[i + 1] - axis[i])))
    for corner in range(16):
        ups = [corner >> dim & 1 for dim in range(4)]
        weight = np.ones(len(points))
        for up, (_, share) in zip(ups, cells, strict=True):
            weight = weight * (share if up else 1.0 - share)
        total += weight * grid[tuple(i + up for up, (i, _) in zip(ups, cells, strict=True))]
    return np.maximum(total, 0.0)


def thinned_grid(
    axes: list[list[float]], grid: Floats, rest: Rest, tolerance: float
) -> tuple[list[list[float]], Floats]:
    """Return the grid without the points that their neighbours give within `tolerance` of a step, on the mean."""
    full_axes, full = [list(axis) for axis in axes], grid
    points = np.stack([part.ravel() for part in np.meshgrid(*full_axes, indexing="ij")], axis=1)
    other = rest.seconds(points)
    for dim in (3, 1, 2, 0):
        for value in full_axes[dim][1:-1]:
            place = axes[dim].index(value)
            fewer = [[v for v in axis if d != dim or v != value] for d, axis in enumerate(axes)]
            less = np.delete(grid, place, axis=dim)
            error = np.abs((interpolated(less, fewer, points) + other) / (full.ravel() + other) - 1.0)
            if error.mean() <= tolerance and error.max() <= 4.0 * tolerance + 0.1:
                axes, grid = fewer, less
    return axes, grid
