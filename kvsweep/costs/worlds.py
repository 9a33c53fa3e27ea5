"""Two worlds of figures: the reference's and that of real machines. Parts say which one a deployment is in.

In the *reference* world figures, the linear model and placement are those of published results, wrong ones included. In
the *real* one a GPU of the data sheets serves a model of known shape: recompute has its attention term, hops of a path
overlap, and the link to the host is the one the GPU has. A deployment is real where all of its GPU and model are.
"""

from __future__ import annotations

from typing import NamedTuple

from kvsweep.catalog.load import Catalog
from kvsweep.catalog.specs import Gpu, Model

REFERENCE, REAL = "reference", "real"

REFERENCE_SOURCE = "kvc-tiersim"
"""Source of the rows of the reference."""
PROBABLY = "probably meant:"

REAL_PARTS = {
    "gpu": "h100-sxm",
    "dram": "srv-12ch-ddr5-4800",
    "disk": "micron-9550-pro-7.68t",
    "link": "pcie5-x16",
    "model": "llama-3.1-8b",
}
"""Parts of a real deployment that nobody named."""
HOST_LINKS = {
    "PCIe 3.0 x16": "pcie3-x16", "PCIe 4.0 x16": "pcie4-x16", "PCIe 5.0 x16": "pcie5-x16", "PCIe 6.0 x16": "pcie6-x16",
    "NVLink-C2C": "nvlink-c2c-h2d",
}  # fmt: skip
"""Rows of the catalog for the paths that GPUs name as theirs to the host."""
MEANT = {
    "H200": "h200-sxm", "High-End": "h200-sxm", "H100": "h100-sxm", "A100": "a100-80-sxm", "Mid-Range": "a100-80-sxm",
    "RTX6000": "rtx-6000-ada", "V100": "v100-sxm-32", "A5000": "rtx-a5000", "llama3-8b": "llama-3.1-8b",
    "llama3-70b": "llama-3.1-70b", "mistral-7b": "mistral-7b-v0.3", "qwen2-32b": "qwen3-32b",
}  # fmt: skip
"""Real rows that users of reference rows probably mean."""


class World(NamedTuple):
    """Which world a deployment is in, and why in words; `warning` tells of parts of two worlds, or is empty."""

    name: str
    why: str
    warning: str = ""


def world_of(gpu: Gpu, model: Model | None) -> World:
    """Return the world of a GPU that serves `model`, None for one stated by figures alone."""
    shaped = model is not None and model.shape is not None and model.weights is not None
    served = f"model {model.key}" if model is not None else "a model of plain figures"
    if shaped and gpu.source != REFERENCE_SOURCE:
        return World(REAL, f"GPU {gpu.key} is of a data sheet, {served} has a shape")
    if shaped:
        meant = f"--gpu {MEANT[gpu.key]}" if gpu.key in MEANT else "a GPU of the data sheets"
        why = f"GPU {gpu.key} is a row of the reference"
        return World(
            REFERENCE, why, f"{why}, whose figures published results need, but {served} has a shape; {PROBABLY} {meant}"
        )
    why = f"{served} has no shape"
    if gpu.family != "datasheet":
        of = "is a row of the reference" if gpu.source == REFERENCE_SOURCE else "has flat figures"
        return World(REFERENCE, f"GPU {gpu.key} {of}, {why}")
    meant = f"--model {MEANT.get(model.key if model else '', REAL_PARTS['model'])}"
    return World(
        REFERENCE, why, f"GPU {gpu.key} is a data sheet's but {why}, so attention costs nothing; {PROBABLY} {meant}"
    )


def host_link(catalog: Catalog, gpu: Gpu) -> str | None:
    """Return the key of the link between `gpu` and its host, None where the catalog has none (unified memory)."""
    key = HOST_LINKS.get(gpu.host_link.path) if gpu.host_link else None
    return key if key in catalog.links else None
