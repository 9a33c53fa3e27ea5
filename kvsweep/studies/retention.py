"""Idle TTLs on top of LRU on coding sessions (paper §VI-B): KV held over time against time to first token."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.cluster.profile import Profile
from kvsweep.cluster.simulation import run
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import in_threads
from kvsweep.studies.published import LOADS, RETENTION, cluster, rate_of
from kvsweep.studies.traces import TraceSpec, arriving

TTLS = (1.0, 10.0, 60.0, 300.0, math.inf)
"""Idle times to live [s]; infinite is LRU alone."""
CONTROL = 1e6
"""A TTL that outlasts every run [s]: it must give what LRU gives."""
MARGIN = 0.01
"""Share by which occupancy may fall where the TTL grows [1]."""


def retention(
    profiles: Mapping[str, Profile], spec: TraceSpec, seeds: Sequence[int] = (0,), fidelity: str = "paper",
    threads: int | None = None,
) -> xr.Dataset:  # fmt: skip
    """Return occupancy of L1 and L2 and latencies for each TTL on 3P-1D, with the control run that never expires.

    Dims: profile, load, seed, ttl. Occupancy is the mean from the first arrival to the last, which all TTLs share.
    """
    traces = {seed: spec.make(Path(), seed) for seed in seeds}
    jobs = list(itertools.product(profiles, LOADS, seeds, (*TTLS, CONTROL)))

    def one(job: tuple[str, str, int, float]) -> dict[str, Any]:
        size, load, seed, ttl = job
        kept = {"policy": "none"} if math.isinf(ttl) else {"policy": "idle_ttl", "seconds": ttl}
        trace = arriving(traces[seed], rate_of(load, size), 1.0)
        ds = run(trace, cluster(3, fidelity, retention=kept), profiles[size])
        return _figures(ds)

    found = in_threads(one, jobs, threads)
    per_ttl = len(TTLS) + 1
    exact = [_same(found[i + per_ttl - 2], found[i + per_ttl - 1]) for i in range(0, len(found), per_ttl)]
    kept = [each for index, each in enumerate(found) if index % per_ttl != per_ttl - 1]
    return _dataset(kept, profiles, list(seeds), spec, exact)


def _figures(ds: xr.Dataset) -> dict[str, Any]:
    served = ds["rejected"].values == 0
    prefill = ds["worker_role"].values != "decode"
    held = ds["occupancy"].values[prefill].sum(axis=0)
    return {
        "mean_occupancy": float(held[:2].sum()),
        "mean_ttft": float(ds["ttft"].values[served].mean()),
        "mean_e2e": float(ds["e2e"].values[served].mean()),
        "token_hit_ratio": 1.0 - ds["uncached_tokens"].values.sum() / ds["prompt_tokens"].values[served].sum(),
        "rejected_requests": int((~served).sum()),
        "run": ds,
    }


def _same(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Return whether two runs are equal to the last bit in every variable."""
    return bool(a["run"].drop_attrs().equals(b["run"].drop_attrs()))


def _dataset(
    found: Sequence[Mapping[str, Any]], profiles: Mapping[str, Profile], seeds: list[int], spec: TraceSpec,
    exact: list[bool],
) -> xr.Dataset:  # fmt: skip
    shape, dims = (len(profiles), len(LOADS), len(seeds), len(TTLS)), ("profile", "load", "seed", "ttl")
    variables = {
        name: xr.Variable(dims, np.array([each[name] for each in found]).reshape(shape), attributes(name))
        for name in found[0] if name != "run"
    }  # fmt: skip
    control = np.array(exact, dtype=np.int8).reshape(shape[:3])
    variables["control_is_exact"] = xr.Variable(dims[:3], control, attributes("control_is_exact"))
    coords = {
        "profile": text_array(list(profiles)),
        "load": text_array(LOADS),
        "seed": np.array(seeds),
        "ttl": np.array(TTLS),
    }
    ds = xr.Dataset(variables, {name: xr.Variable(name, points, attributes(name)) for name, points in coords.items()})
    for name, of in (("occupancy_change", "mean_occupancy"), ("ttft_change", "mean_ttft")):
        ds[name] = (ds[of] / ds[of].sel(ttl=math.inf, drop=True) - 1.0).assign_attrs(attributes(name))
    about = {
        "title": "Idle time to live against LRU",
        "history": f"{timestamp()} kvsweep study ttl",
        "kvsweep_result": "retention_study",
        "kvsweep_trace": spec.label,
        "kvsweep_profiles": {size: f"{each.name} ({each.kind})" for size, each in profiles.items()},
        "kvsweep_paper": {item.name: {"simulated": dict(item.simulated)} for item in RETENTION},
    }
    return ds.assign_attrs(to_attrs(common_attrs() | about))


def checks(ds: xr.Dataset) -> dict[str, bool]:
    """Return what must hold, whatever the workload, and whether it does."""
    held = ds["mean_occupancy"].transpose(..., "ttl").values
    grows = bool((held[..., 1:] >= (1.0 - MARGIN) * held[..., :-1]).all())
    return {
        "a TTL that never expires gives LRU to the last bit": bool((ds["control_is_exact"] == 1).all()),
        f"occupancy grows with the TTL, within {MARGIN:.0%}": grows,
    }
