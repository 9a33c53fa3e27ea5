"""Made-up kernel profiles whose step times are known by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import yaml

TOKENS = (1, 2, 4, 8, 16, 64, 256, 1024)
CHUNKS = (0, 16, 64, 256)
CONTEXTS = (0, 16, 64, 256)
DECODES = (0, 1, 4, 16)

DENSE = {
    "embedding": 1.0, "layernorm": 2.0, "qkv_proj": 10.0, "rotary_emb": 3.0, "o_proj": 8.0, "gate_up_proj": 20.0,
    "act_fn": 4.0, "down_proj": 12.0, "final_layernorm": 2.0,
}  # fmt: skip
"""Layers with the µs they take for one token; a token more takes a hundredth of that."""


def layer_us(base: float, tokens: float) -> float:
    """Return the time of a layer [µs]."""
    return base * (1.0 + (tokens - 1.0) / 100.0)


def attention_us(chunk: float, prior: float, decodes: float, context: float) -> float:
    """Return the attention of a layer [µs]: what is linear along every axis, so that interpolation is exact."""
    return 5.0 + 0.01 * chunk + (0.001 * prior if chunk else 0.0) + 0.1 * decodes + 0.0005 * decodes * context


def write_profile(
    folder: Path,
    layers: dict[str, float] | None = None,
    tp: tuple[int, ...] = (),
    moe: Callable[[float, float], float] | None = None,
    skew: bool = False,
) -> Path:
    """Write a kernel profile with the CSV files in `folder`, or in tpN/ for each of `tp`; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    meta = {"model": "meta-llama/Llama-3.1-8B", "gpu": "Test GPU", "attention_grid": {"kv_factor": 4.0}}
    (folder / "meta.yaml").write_text(yaml.safe_dump(meta))
    for place in [folder / f"tp{degree}" for degree in tp] or [folder]:
        place.mkdir(exist_ok=True)
        rows = [(name, t, layer_us(base, t)) for name, base in (layers or DENSE).items() for t in TOKENS]
        _write(place / "dense.csv", "layer,tokens,time_us", rows)
        heads = [(name, n, layer_us(base, n)) for name, base in (("lm_head", 50.0), ("sampler", 5.0)) for n in TOKENS]
        _write(place / "per_sequence.csv", "layer,sequences,time_us", heads)
        points = [
            (chunk, prior, decodes, context)
            for chunk in CHUNKS
            for prior in (CONTEXTS if chunk else (0,))
            for decodes in DECODES
            for context in (CONTEXTS[1:] if decodes else (0,))
            if chunk or decodes
        ]
        times = [(*point, attention_us(*point)) for point in points]
        _write(place / "attention.csv", "prefill_chunk,kv_prefill,n_decode,kv_decode,time_us", times)
        if moe:
            grid = [(t, e, moe(t, e)) for t in TOKENS for e in (1, 2, 4, 8)]
            _write(place / "moe.csv", "tokens,activated_experts,time_us", grid)
        if skew:
            _write_skew(place / "skew.csv")
    return folder


def _write_skew(path: Path) -> None:
    """Write a skew.csv in which a quarter of the way is gone at four decodes, nothing at sixteen."""
    rows = []
    for n, share in ((4, 0.25), (16, 0.0)):
        for chunk in (0, 16, 64):
            for small in (16, 64):
                mean, longest = small * 1.75, small * 4
                equal, most = (3.0 * attention_us(chunk, 0, n, at) for at in (mean, longest))
                rows.append((n, chunk, 0, small, longest, mean, equal, most * 2, equal + share * (2 * most - equal)))
    _write(path, "n,pc,kp,kvs,kv_big,kv_mean,t_mean_us,t_max_us,t_skew_us", rows)


def _write(path: Path, header: str, rows: list[tuple[object, ...]]) -> None:
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
