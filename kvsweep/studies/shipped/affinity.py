"""Session affinity against round robin on coding sessions (paper §VI-A): prefill saved, latency, spread of sessions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.simulation.run import run
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import Progress, in_threads
from kvsweep.studies.shipped.published import AFFINITY, FIDELITIES, LOADS, about, cluster, coordinates, rate_of
from kvsweep.studies.traces import TraceSpec, arriving
from kvsweep.trace.model import Trace

GATEWAYS = ("round_robin", "session_affinity")
CHANGES = ("uncached_change", "e2e_change")
"""What the paper tells of affinity."""


def affinity(
    profiles: Mapping[str, Profile], spec: TraceSpec, seeds: Sequence[int] = (0,),
    fidelities: Sequence[str] = FIDELITIES, loads: Sequence[str] = LOADS, threads: int | None = None,
    progress: Progress | None = None,
) -> xr.Dataset:  # fmt: skip
    """Return uncached tokens and mean E2E of both gateways on 3P-1D, of all requests and of each session.

    Dims: profile, fidelity, load (the paper's rates, or the trace's own), seed (of what the trace leaves open),
    gateway, session.
    """
    traces = {seed: spec.make(Path(), seed) for seed in seeds}
    jobs = list(itertools.product(profiles, fidelities, loads, seeds, GATEWAYS))

    def one(job: tuple[str, str, str, int, str]) -> dict[str, Any]:
        size, fidelity, load, seed, gateway = job
        trace = arriving(traces[seed], rate_of(load, size), 1.0)
        ds = run(trace, cluster(3, fidelity, gateway={"policy": gateway}), profiles[size])
        return _figures(ds, trace)

    found = in_threads(one, jobs, threads, progress)
    points: dict[str, list[Any]] = {
        "profile": list(profiles), "fidelity": list(fidelities), "load": list(loads), "seed": list(seeds),
    }  # fmt: skip
    return _dataset(found, points, profiles, spec)


def _figures(ds: xr.Dataset, trace: Trace) -> dict[str, Any]:
    served = ds["rejected"].values == 0
    n_sessions = int(trace.session.max(initial=-1)) + 1
    session = trace.session[served]
    computed, e2e = ds["uncached_tokens"].values[served], ds["e2e"].values[served]
    count = np.maximum(1, np.bincount(session, minlength=n_sessions)).astype(float)
    seen = np.bincount(session, minlength=n_sessions) > 0

    def by_session(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.where(seen, np.bincount(session, weights=values, minlength=n_sessions), np.nan)

    return {
        "requests": len(served),
        "rejected_requests": int((~served).sum()),
        "uncached_tokens": int(computed.sum()),
        "token_hit_ratio": 1.0 - computed.sum() / ds["prompt_tokens"].values[served].sum(),
        "mean_e2e": float(e2e.mean()),
        "mean_ttft": float(ds["ttft"].values[served].mean()),
        "session_uncached_tokens": by_session(computed),
        "session_e2e": by_session(e2e) / count,
    }


def _dataset(
    found: Sequence[Mapping[str, Any]], points: Mapping[str, list[Any]], profiles: Mapping[str, Profile],
    spec: TraceSpec,
) -> xr.Dataset:  # fmt: skip
    dims = {**points, "gateway": list(GATEWAYS)}
    axes, shape = tuple(dims), [len(each) for each in dims.values()]
    longest = max(len(each["session_e2e"]) for each in found)
    variables = {}
    for name in found[0]:
        if name.startswith("session_"):
            padded = [np.pad(each[name], (0, longest - len(each[name])), constant_values=np.nan) for each in found]
            values = np.stack(padded).reshape(*shape, longest)
            variables[name] = xr.Variable((*axes, "session"), values, attributes(name))
        else:
            values = np.array([each[name] for each in found]).reshape(shape)
            variables[name] = xr.Variable(axes, values, attributes(name))
    coords = coordinates({**dims, "session": list(range(longest))})
    return with_changes(xr.Dataset(variables, coords)).assign_attrs(
        about("Session affinity against round robin", "affinity", profiles, points["fidelity"], spec, AFFINITY)
    )


def with_changes(ds: xr.Dataset) -> xr.Dataset:
    """Return the study with what affinity changes against round robin, relative: of all requests, of each session."""
    changes = {}
    for name, of in (
        ("uncached_change", "uncached_tokens"), ("e2e_change", "mean_e2e"),
        ("session_uncached_change", "session_uncached_tokens"), ("session_e2e_change", "session_e2e"),
    ):  # fmt: skip
        base, new = (ds[of].sel(gateway=gateway, drop=True) for gateway in GATEWAYS)
        changes[name] = (new / base.where(base > 0) - 1.0).assign_attrs(attributes(name))
    return ds.assign(changes)


def checks(ds: xr.Dataset) -> dict[str, bool]:
    """Return what must hold on session traces, whatever the workload, and whether it does."""
    return {"affinity computes no more of the prompts than round robin": bool((ds["uncached_change"] <= 0.0).all())}
