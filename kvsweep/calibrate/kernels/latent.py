"""Latent attention (MLA) in kernel databases: whole modules, attention with its projections, as engines run them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kvsweep.calibrate.kernels.profile import Curve
from kvsweep.calibrate.sources.parquet import least, read_table
from kvsweep.catalog.specs import Model
from kvsweep.errors import InputError

KV_DTYPE = "bfloat16"
COLUMNS = ("batch_size", "isl", "step", "latency")


def latent_times(
    paths: Mapping[str, Path], model: Model, tp: int, dtype: str
) -> tuple[Curve, dict[tuple[float, float], float]]:
    """Return the module's time of a lone prompt by its tokens, and of decodes by (requests, context), one layer [s].

    Its projections depend on sizes that heads do not tell, so the rows must be of `model` itself. Raises InputError
    naming what was not measured.
    """
    assert model.shape is not None
    measured = {str(row["model"]) for row in read_table(paths["attention"], ("model",))}
    names = [name for name in sorted(measured) if name.rpartition("/")[2].lower() == model.key]
    if not names:
        raise InputError(
            f"{paths['attention']}: latent attention of {', '.join(sorted(measured))}; {model.key} was not measured"
        )
    same = {
        "model": names[0], "num_heads": model.shape.heads // tp, "kv_cache_dtype": KV_DTYPE, "gemm_type": dtype,
    }  # fmt: skip
    prompts = least(read_table(paths["attention"], COLUMNS, batch_size=1, step=0, **same), "isl")
    decodes = least(read_table(paths["decode"], COLUMNS, **same), "batch_size", "step")
    return {tokens: seconds for (tokens, _), seconds in prompts.items()}, decodes
