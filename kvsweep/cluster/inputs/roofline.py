"""Profiles without measurements: rooflines of the catalog's figures, so that a cluster can be run on day one."""

from __future__ import annotations

from math import ceil

from kvsweep.catalog.load import Catalog
from kvsweep.catalog.models import kv_bytes_per_token_moved
from kvsweep.catalog.specs import Gpu, Link, Model
from kvsweep.cluster.inputs.service_profile import DecodeModel, PathModel, PrefillModel, Profile
from kvsweep.costs.decode import context_bytes, weight_bytes_read
from kvsweep.costs.deployment import Deployment, deploy
from kvsweep.costs.memory import stored_bytes
from kvsweep.errors import InputError

STEP_SECONDS = 2e-3
"""Assumed time of launching a decode step and of its sampling, and the least time of a step of prefill [s].

The kernels of a longer step of prefill run while it is launched."""
HANDOFF_SECONDS = 2e-3
"""Assumed time of coordinating the handoff of a chunk in software [s]."""
L3_SECONDS = 1e-3
"""Assumed time of issuing a batch of L3 pages in software [s]."""
L3_QUERY_SECONDS = 5e-4
"""Assumed time of looking up a batch of L3 pages [s]."""
BATCHES = (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


def roofline(catalog: Catalog, model: str, gpu: str, tp: int, link: str = "rdma-400g") -> Profile:
    """Return the `assumed` profile of `model` on `tp` GPUs, one `link` a worker for handoff.

    Computing and the path from host memory cost what the analytic model says of the same parts (`costs.deployment`):
    ``kvsweep simulate`` has the same times of recomputing and restoring. A decode step takes the longer of its
    arithmetic and the reading of weights, plus the reading of KV and `STEP_SECONDS`. Nothing was measured, so every
    operation counts as extrapolated.
    """
    entry, part = catalog.part("models", model, "--model"), catalog.part("gpus", gpu, "--gpu")
    path = catalog.part("links", link, "--link")
    if entry.shape is None or entry.weights is None:
        raise InputError(f"--model: {model} has no shape and weights in the catalog; allowed: a model that has")
    _check_fit(entry, part, tp)
    deployment = deploy(catalog, {"model": model, "gpu": gpu, "gpu_count": float(tp)})
    prefill, decode = _compute(entry, deployment)
    _, from_host, _ = deployment.throughputs()
    copies = {
        "boundary": "from dispatch of the copy to its completion",
        "setup_seconds": deployment.setup_seconds,
        "bytes_per_s": from_host * deployment.bytes_per_block,
        "source": f"{tp} x {deployment.link}, blocks of {deployment.tokens_per_block:g} tokens",
    }
    return Profile(
        name=f"roofline {model} {gpu} tp{tp}",
        model=model,
        gpu=gpu,
        tp=tp,
        kv_bytes_per_token=kv_bytes_per_token_moved(entry.shape),
        note="assumed: a roofline of catalog figures, nothing of it was measured",
        prefill=prefill,
        decode=decode,
        handoff=_handoff(path),
        h2d=PathModel(**copies),  # type: ignore[arg-type]
        d2h=PathModel(**copies),  # type: ignore[arg-type]
        l3_read=_shared_tier(path, "read"),
        l3_write=_shared_tier(path, "write"),
        l3_query_seconds=L3_QUERY_SECONDS,
        n_layers=entry.shape.layers,
    )


def _check_fit(model: Model, gpu: Gpu, tp: int) -> None:
    weights = stored_bytes(model)
    if weights >= gpu.hbm_capacity * tp:
        least = ceil(weights / gpu.hbm_capacity)
        raise InputError(f"--tp: the weights of {model.key} do not fit on {tp} x {gpu.key}; allowed: at least {least}")


def _compute(model: Model, of: Deployment) -> tuple[PrefillModel, DecodeModel]:
    where, memory = f"{of.gpu} x {of.gpu_count:g}", of.hbm_bandwidth * of.gpu_count
    token, pair = of.token_costs()
    reading = weight_bytes_read(model) / memory
    context = context_bytes(model) / memory
    prefill = PrefillModel(
        boundary="from launch of a step to the end of its kernels",
        source=f"cost model {of.cost_model}, {of.gpu_eta:.3g} of the peak of {where}, attention {of.attention_eta:.3g}",
        token_seconds=token,
        token_pair_seconds=pair,
        least_seconds=STEP_SECONDS + reading,
    )
    decode = DecodeModel(
        boundary="from launch of a step to its tokens",
        source=f"reading of weights and KV at the memory rate of {where}, or arithmetic where that is longer",
        batch=BATCHES,
        base_seconds=tuple(STEP_SECONDS + max(reading, n * token) for n in BATCHES),
        context_token_seconds=(context,) * len(BATCHES),
    )
    return prefill, decode


def _shared_tier(link: Link, what: str) -> PathModel:
    return PathModel(
        boundary=f"from issue of the {what} of a batch of pages to its completion",
        setup_seconds=L3_SECONDS,
        bytes_per_s=link.bandwidth / 2,
        source=f"assumed: half the rate of one {link.key}",
    )


def _handoff(link: Link) -> PathModel:
    return PathModel(
        boundary="from prefill completion of a chunk to its completion on the prefill host",
        setup_seconds=HANDOFF_SECONDS,
        bytes_per_s=link.bandwidth,
        source=f"one {link.key} a worker",
    )
