"""Analytic predictions beside cluster results: what each restore-or-recompute policy should do, and what it did.

The analytic model sees a lone request and overlaps restore and recompute; the cluster retrieves, then computes (by the
rules of engines layer by layer, at once), and queues. Both get the same profile, pages and requests: those that found
KV in host memory when all of it was retrieved.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.cluster.inputs.config import ClusterConfig, config_mapping, parse_config
from kvsweep.cluster.inputs.service_profile import PathModel, Profile, profile_mapping
from kvsweep.cluster.simulation.run import run
from kvsweep.errors import InputError
from kvsweep.policies.context import SIDES, Context
from kvsweep.policies.registry import Policy, load_policies
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import in_threads
from kvsweep.trace.model import Trace

WAITS = {
    "paper": ("prefill", "prefill_slots", "prefill_capacity", "h2d"),
    "engine": ("prefill", "prefill_slots", "prefill_capacity", "decode_capacity"),
}
"""Causes of waiting up to the end of prefill, by fidelity: engines reserve room first, and load while they compute."""
EXPECTED = {"paper": "predicted_serial_time", "engine": "predicted_time"}
"""The prediction a cluster should meet when nothing else runs, by fidelity."""
Pages = NDArray[np.float64]


def beside(trace: Trace, config: ClusterConfig, profile: Profile, policy_files: Sequence[Path] = ()) -> xr.Dataset:
    """Return prediction and result of every policy for the requests that have KV on the host.

    Dims: policy, request. Raises InputError without ``slo.ttft_seconds``, by which policies decide, and where no
    request finds anything on the host.
    """
    if config.slo.ttft_seconds is None:
        raise InputError("slo: ttft_seconds: missing; policies decide by it; allowed: a time")
    policies = load_policies(policy_files)
    names = list(policies)

    def one(name: str) -> xr.Dataset:
        values = {**config_mapping(config), "retrieval": {**config_mapping(config)["retrieval"], "policy": name}}
        return run(trace, parse_config(values, "cluster"), profile, policy_files=policy_files)

    runs = dict(zip(names, in_threads(one, names), strict=True))
    base = runs["default_policy"]
    chosen = np.flatnonzero(base["hit_tokens"].values[:, 1] > 0)
    if not len(chosen):
        raise InputError("no request found KV on the host; allowed: a smaller device, or a trace with more reuse")
    rate = len(trace) / trace.duration / config.n_prefill if trace.duration else 1.0
    pages = _pages(base, chosen, config.page_size)
    found = [_columns(policies[name], runs[name], chosen, pages, (config, profile, rate)) for name in names]
    ds = _dataset(found, [policies[name] for name in names], runs, chosen, (config, profile, trace))
    return ds.assign(host_pages=xr.Variable("request", pages[1], attributes("host_pages")))


def _pages(ds: xr.Dataset, chosen: NDArray[np.int64], page: int) -> tuple[Pages, Pages, Pages]:
    """Return pages on the device, pages on the host, and missing ones of each request [page]."""
    hits = ds["hit_tokens"].values[chosen] / page
    total = -(-ds["prompt_tokens"].values[chosen] // page)
    return hits[:, 0], hits[:, 1], total - hits[:, 0] - hits[:, 1]


def _columns(
    policy: Policy, ds: xr.Dataset, chosen: NDArray[np.int64], pages: tuple[Pages, Pages, Pages],
    about: tuple[ClusterConfig, Profile, float],
) -> dict[str, Pages]:  # fmt: skip
    """Return prediction and result of one policy for the chosen requests."""
    config, profile, rate = about
    rows = [
        _predicted(policy, each, config, profile, rate) for each in zip(*(part.tolist() for part in pages), strict=True)
    ]
    reassigned, overlapped, serial = (np.array(column) for column in zip(*rows, strict=True))
    waits = np.isin(ds["cause"].values.astype(str), WAITS[config.fidelity])
    waited = ds["queue_delay"].values[chosen][:, waits].sum(axis=1)
    spent = (ds["prefill_end"] - ds["arrival"]).values[chosen]
    retrieved = ds["hit_tokens"].values[chosen, 1] / config.page_size
    return {
        "predicted_reassigned": reassigned,
        "predicted_time": overlapped,
        "predicted_serial_time": serial,
        "simulated_reassigned": pages[1] - retrieved,
        "simulated_time": spent - waited,
        "simulated_wait": waited,
        "ttft": ds["ttft"].values[chosen],
    }


def _predicted(
    policy: Policy, pages: tuple[float, float, float], config: ClusterConfig, profile: Profile, rate: float
) -> tuple[float, float, float]:
    """Return k [page], the time with restore and recompute overlapped, and that of one after the other [s]."""
    on_device, on_host, missing = pages
    size = config.page_size
    total = on_host + missing
    restore = on_host / _copy_seconds(profile.h2d, on_host * size * profile.kv_bytes_per_token)
    recompute = total / _prefill_seconds(profile, total * size, on_device * size)
    assert config.slo.ttft_seconds is not None
    ctx = Context(
        total, missing, on_host, rate, config.slo.ttft_seconds, restore, recompute, 0.0, on_host, 0.0, math.inf,
        restore, restore, float(size), profile.prefill.token_seconds, profile.prefill.token_pair_seconds,
        float(SIDES.index(policy.recomputes)),
    )  # fmt: skip
    k = policy.choose(ctx)[0]
    restoring, computing = (on_host - k) / restore, (missing + k) / recompute
    return k, max(restoring, computing), restoring + computing


def _copy_seconds(path: PathModel, n_bytes: float) -> float:
    return path.setup_seconds + n_bytes / path.bytes_per_s


def _prefill_seconds(profile: Profile, tokens: float, context: float) -> float:
    model = profile.prefill
    pairs = (context + tokens) ** 2 - context**2
    return max(
        model.least_seconds, model.fixed_seconds + model.token_seconds * tokens + model.token_pair_seconds * pairs / 2
    )


def _dataset(
    found: list[dict[str, Pages]], policies: list[Policy], runs: dict[str, xr.Dataset], chosen: NDArray[np.int64],
    about: tuple[ClusterConfig, Profile, Trace],
) -> xr.Dataset:  # fmt: skip
    config, profile, trace = about
    variables: dict[str, Any] = {
        name: xr.Variable(("policy", "request"), np.stack([each[name] for each in found]), attributes(name))
        for name in found[0]
    }
    means = np.array([float(runs[policy.name]["ttft"].mean()) for policy in policies])
    variables["mean_ttft"] = xr.Variable("policy", means, attributes("mean_ttft"))
    texts = {"policy_label": "label", "policy_color": "color", "policy_description": "description"}
    coords: dict[str, Any] = {"policy": xr.Variable("policy", text_array([policy.name for policy in policies]),
                                                    attributes("policy"))}  # fmt: skip
    for name, field in texts.items():
        values = text_array([str(getattr(policy, field)) for policy in policies])
        coords[name] = xr.Variable("policy", values, attributes(name))
    kind = {
        "title": "Restore or recompute: the analytic model beside the cluster",
        "history": f"{timestamp()} kvsweep study analytic",
        "kvsweep_result": "analytic_beside_cluster",
        "kvsweep_config": config_mapping(config),
        "kvsweep_profile": profile_mapping(profile),
        "kvsweep_profile_kind": profile.kind,
        "kvsweep_fidelity": config.fidelity,
        "kvsweep_expected": EXPECTED[config.fidelity],
        "kvsweep_trace": trace.source,
        "kvsweep_requests": len(trace),
        "kvsweep_deciding_requests": len(chosen),
    }
    return xr.Dataset(variables, coords).assign_attrs(to_attrs(common_attrs() | kind))
