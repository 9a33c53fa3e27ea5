"""Session affinity against round robin on coding sessions (paper §VI-A): prefill saved, latency, spread of sessions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from kvsweep.cluster.profile import Profile
from kvsweep.cluster.simulation import run
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.parallel import in_threads
from kvsweep.studies.published import AFFINITY, LOADS, cluster, rate_of
from kvsweep.studies.traces import TraceSpec, arriving
from kvsweep.trace.model import Trace

GATEWAYS = ("round_robin", "session_affinity")


def affinity(
    profiles: Mapping[str, Profile], spec: TraceSpec, seeds: Sequence[int] = (0,), fidelity: str = "paper",
    threads: int | None = None,
) -> xr.Dataset:  # fmt: skip
    """Return uncached tokens and mean E2E of both gateways on 3P-1D, of all requests and of each session.

    Dims: profile, load (the paper's rates, or the trace's own), seed (of what the trace leaves open), gateway, session.
    """
    traces = {seed: spec.make(Path(), seed) for seed in seeds}
    jobs = list(itertools.product(profiles, LOADS, seeds, GATEWAYS))

    def one(job: tuple[str, str, int, str]) -> dict[str, Any]:
        size, load, seed, gateway = job
        trace = arriving(traces[seed], rate_of(load, size), 1.0)
        ds = run(trace, cluster(3, fidelity, gateway={"policy": gateway}), profiles[size])
        return _figures(ds, trace)

    found = in_threads(one, jobs, threads)
    return _dataset(found, profiles, list(seeds), spec)


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
    found: Sequence[Mapping[str, Any]], profiles: Mapping[str, Profile], seeds: list[int], spec: TraceSpec
) -> xr.Dataset:
    shape, axes = (len(profiles), len(LOADS), len(seeds), len(GATEWAYS)), ("profile", "load", "seed", "gateway")
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
    coords = {
        "profile": text_array(list(profiles)), "load": text_array(LOADS), "seed": np.array(seeds),
        "gateway": text_array(GATEWAYS), "session": np.arange(longest),
    }  # fmt: skip
    ds = xr.Dataset(variables, {name: xr.Variable(name, points, attributes(name)) for name, points in coords.items()})
    return with_changes(ds).assign_attrs(
        to_attrs(
            common_attrs()
            | {
                "title": "Session affinity against round robin",
                "history": f"{timestamp()} kvsweep study affinity",
                "kvsweep_result": "affinity_study",
                "kvsweep_trace": spec.label,
                "kvsweep_profiles": {size: f"{each.name} ({each.kind})" for size, each in profiles.items()},
                "kvsweep_paper": {
                    item.name: {"simulated": dict(item.simulated), "measured": dict(item.measured)} for item in AFFINITY
                },
            }
        )
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
