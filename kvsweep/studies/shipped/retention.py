"""Idle TTLs on top of LRU on coding sessions (paper §VI-B): KV held over time against time to first token."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.simulation.run import run
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import Progress, in_threads
from kvsweep.studies.shipped.published import FIDELITIES, LOADS, RETENTION, about, cluster, coordinates, rate_of
from kvsweep.studies.traces import TraceSpec, arriving

TTLS = (1.0, 10.0, 60.0, 300.0, math.inf)
"""Idle times to live [s]; infinite is LRU alone."""
CONTROL = 1e6
"""A TTL that outlasts every run [s]: it must give what LRU gives."""
CHANGES = ("occupancy_change", "ttft_change")
AT = {"ttl": 60.0}
"""What the paper tells of a TTL, and of which one."""
MARGIN = 0.01
"""Share by which occupancy may fall where the TTL grows [1]."""


def retention(
    profiles: Mapping[str, Profile], spec: TraceSpec, seeds: Sequence[int] = (0,),
    fidelities: Sequence[str] = FIDELITIES, loads: Sequence[str] = LOADS, threads: int | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:  # fmt: skip
    """Return occupancy of L1 and L2 and latencies for each TTL on 3P-1D, with the control run that never expires.

    Dims: profile, fidelity, load, seed, ttl. Occupancy is the mean from the first arrival to the last, which all TTLs
    share.
    """
    traces = {seed: spec.make(Path(), seed) for seed in seeds}
    jobs = list(itertools.product(profiles, fidelities, loads, seeds, (*TTLS, CONTROL)))

    def one(job: tuple[str, str, str, int, float]) -> dict[str, Any]:
        size, fidelity, load, seed, ttl = job
        kept = {"policy": "none"} if math.isinf(ttl) else {"policy": "idle_ttl", "seconds": ttl}
        trace = arriving(traces[seed], rate_of(load, size), 1.0)
        ds = run(trace, cluster(3, fidelity, retention=kept), profiles[size])
        return _figures(ds)

    found = in_threads(one, jobs, threads, progress)
    per_ttl = len(TTLS) + 1
    exact = [_same(found[i + per_ttl - 2], found[i + per_ttl - 1]) for i in range(0, len(found), per_ttl)]
    kept = [each for index, each in enumerate(found) if index % per_ttl != per_ttl - 1]
    points: dict[str, list[Any]] = {
        "profile": list(profiles), "fidelity": list(fidelities), "load": list(loads), "seed": list(seeds),
    }  # fmt: skip
    return _dataset(kept, points, profiles, spec, exact)


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
    found: Sequence[Mapping[str, Any]], points: Mapping[str, list[Any]], profiles: Mapping[str, Profile],
    spec: TraceSpec, exact: list[bool],
) -> xr.Dataset:  # fmt: skip
    axes = {**points, "ttl": list(TTLS)}
    dims, shape = tuple(axes), [len(each) for each in axes.values()]
    variables = {
        name: xr.Variable(dims, np.array([each[name] for each in found]).reshape(shape), attributes(name))
        for name in found[0] if name != "run"
    }  # fmt: skip
    control = np.array(exact, dtype=np.int8).reshape(shape[:-1])
    variables["control_is_exact"] = xr.Variable(dims[:-1], control, attributes("control_is_exact"))
    ds = xr.Dataset(variables, coordinates(axes))
    for name, of in (("occupancy_change", "mean_occupancy"), ("ttft_change", "mean_ttft")):
        ds[name] = (ds[of] / ds[of].sel(ttl=math.inf, drop=True) - 1.0).assign_attrs(attributes(name))
    return ds.assign_attrs(about("Idle time to live against LRU", "ttl", profiles, points["fidelity"], spec, RETENTION))


def checks(ds: xr.Dataset) -> dict[str, bool]:
    """Return what must hold, whatever the workload, and whether it does."""
    held = ds["mean_occupancy"].transpose(..., "ttl").values
    grows = bool((held[..., 1:] >= (1.0 - MARGIN) * held[..., :-1]).all())
    return {
        "a TTL that never expires gives LRU to the last bit": bool((ds["control_is_exact"] == 1).all()),
        f"occupancy grows with the TTL, within {MARGIN:.0%}": grows,
    }
