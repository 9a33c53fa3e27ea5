"""Kernel profiles: times of single layers by tokens, sequences and contexts, as LLMServingSim profiles them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvsweep.calibrate.sources.columns import Row, digest, read_lines, read_rows
from kvsweep.errors import InputError, shown
from kvsweep.yamlfile import read_yaml_file

MICRO = 1e-6
SKEW_REPEATS = 3.0
"""Iterations that a time of skew.csv holds; those of attention.csv are of one."""

Curve = dict[float, float]


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """Times of one rank, of one layer [s]; `files` and `sha256` by part: dense, per_sequence, attention, skew, moe."""

    folder: Path
    model: str
    gpu: str
    tp: int
    dense: dict[str, Curve]
    """By layer, then tokens of the step."""
    per_sequence: dict[str, Curve]
    """By layer, then requests of the step."""
    attention: dict[tuple[float, float, float, float], float]
    """By (prompt chunk, tokens before it, decodes, tokens before each)."""
    skew: list[Row] = field(default_factory=list)
    moe: dict[tuple[float, float], float] = field(default_factory=dict)
    """By (tokens, experts activated)."""
    ladder: float = 0.0
    """Factor between the points of the attention grid that meta.yaml states, 0 for none."""
    files: dict[str, str] = field(default_factory=dict)
    sha256: dict[str, str] = field(default_factory=dict)
    measured_before: float | None = None
    """Most tokens before a prompt that were measured, where `attention` has more by physics."""
    complete: bool = True
    """Whether every kernel of a layer was timed, each started on its own."""
    attention_boundary: str = "kernels of attention and of writing KV, taken eagerly, one layer times its number"
    weight_bytes: float = 2.0
    """Bytes of a weight."""

    @property
    def shortest_kernel(self) -> float:
        """Return the least time any layer takes [s]: a kernel that starts, does next to nothing and drains."""
        return min(min(curve.values()) for curve in (*self.dense.values(), *self.per_sequence.values()))


def read_kernels(folder: Path, tp: int | None = None) -> KernelProfile:
    """Return the kernel profile in `folder`: meta.yaml, and tpN/ or the CSV files beside it, which are those of TP 1.

    Raises InputError for files missing or broken, and for a TP degree that was not profiled.
    """
    meta_file = folder / "meta.yaml"
    if not meta_file.is_file():
        raise InputError(f"{folder}: no meta.yaml; allowed: a folder of a kernel profile, or of a database's .parquet")
    meta = read_yaml_file(meta_file)
    place, degree = _place(folder, tp)
    dense = _curves(place / "dense.csv", "tokens")
    skew_file, moe_file = place / "skew.csv", place / "moe.csv"
    names = ("n", "pc", "kp", "kvs", "kv_big", "kv_mean", "t_mean_us", "t_max_us", "t_skew_us")
    axes = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    names_of = ("dense", "per_sequence", "attention", "skew", "moe")
    files = {name: place / f"{name}.csv" for name in names_of if (place / f"{name}.csv").is_file()}
    return KernelProfile(
        folder=folder,
        model=_text(meta, "model", meta_file),
        gpu=_text(meta, "gpu", meta_file),
        tp=degree,
        dense=dense,
        per_sequence=_curves(place / "per_sequence.csv", "sequences"),
        attention=_attention(place / "attention.csv", axes),
        skew=[row for _, row in read_rows(skew_file, names)] if skew_file.is_file() else [],
        moe=_moe(moe_file) if moe_file.is_file() else {},
        ladder=_ladder(meta),
        files={name: path.name for name, path in files.items()},
        sha256={name: digest(path) for name, path in files.items()},
    )


def _place(folder: Path, tp: int | None) -> tuple[Path, int]:
    degrees = sorted(int(path.name[2:]) for path in folder.glob("tp*") if path.name[2:].isdecimal() and path.is_dir())
    if (folder / "dense.csv").is_file():
        degrees = sorted({1, *degrees})
    if not degrees:
        raise InputError(f"{folder}: no dense.csv; allowed: the CSV files beside meta.yaml, or folders tp1, tp2, …")
    degree = degrees[0] if tp is None else tp
    if degree not in degrees:
        raise InputError(f"--tp: {folder} has no profile of TP {degree}; allowed: {', '.join(map(str, degrees))}")
    inside = folder / f"tp{degree}"
    return (inside if inside.is_dir() else folder), degree


def _text(meta: dict[str, Any], name: str, path: Path) -> str:
    value = meta.get(name)
    if not isinstance(value, str):
        raise InputError(f"{path}: {name}: {shown(value)}; allowed: text")
    return value


def _ladder(meta: dict[str, Any]) -> float:
    stated = meta.get("attention_grid")
    factor = stated.get("kv_factor") if isinstance(stated, dict) else None
    return float(factor) if isinstance(factor, int | float) and not isinstance(factor, bool) and factor > 1.0 else 0.0


def _curves(path: Path, axis: str) -> dict[str, Curve]:
    curves: dict[str, Curve] = {}
    for where, texts, row in read_lines(path, (axis, "time_us"), ("layer",)):
        curve = curves.setdefault(texts["layer"], {})
        curve[row[axis]] = _seconds(row, row[axis] in curve, where)
    return curves


def _attention(path: Path, axes: tuple[str, ...]) -> dict[tuple[float, float, float, float], float]:
    found: dict[tuple[float, float, float, float], float] = {}
    for where, _, row in read_lines(path, (*axes, "time_us")):
        chunk, prior, decodes, context = (row[axis] for axis in axes)
        point = chunk, prior, decodes, context
        found[point] = _seconds(row, point in found, where)
    return found


def _moe(path: Path) -> dict[tuple[float, float], float]:
    found: dict[tuple[float, float], float] = {}
    for where, _, row in read_lines(path, ("tokens", "activated_experts", "time_us")):
        point = row["tokens"], row["activated_experts"]
        found[point] = _seconds(row, point in found, where)
    return found


def _seconds(row: Row, known: bool, where: str) -> float:
    """Return the time of a row [s]; raises InputError for 0, and for a size that is `known` already."""
    if known:
        raise InputError(f"{where}: measured twice; allowed: one row a kernel and size")
    if row["time_us"] == 0.0:
        raise InputError(f"{where}: time_us: 0; allowed: more")
    return row["time_us"] * MICRO
