"""The paper's rules beside the engine's, on the paper's set-ups: what differs by more than 2 %.

No figure of either is measured here: both are kvsweep's, on generated stand-ins of the paper's workloads with assumed
roofline profiles. The table says how much the choice of `fidelity` matters; it sets no bar.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import xarray as xr

import kvsweep.cluster
from benchmarks.figures import Figure, print_rows
from kvsweep.catalog import load
from kvsweep.cluster.inputs.config import ClusterConfig, parse_config
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.trace import Trace
from kvsweep.trace.generate import generate

NOTED = 0.02
"""Difference from which on both are told [1]."""
CASES = (("qwen3-8b", 1, "qa"), ("qwen3-8b", 3, "qa"), ("qwen3-8b", 3, "coding"), ("qwen3-32b", 3, "qa"))
RATES = {"qwen3-8b": {"qa": 2.0, "coding": 0.5}, "qwen3-32b": {"qa": 1.0, "coding": 0.25}}
"""Requests per second of the paper's replays."""


def set_up(n_prefill: int, fidelity: str) -> ClusterConfig:
    """Return the paper's workers."""
    worker = {"tp": 2, "device_tokens": 262_144}
    prefill = {"role": "prefill", "count": n_prefill, "host_tokens": 524_352, **worker}
    return parse_config(
        {"fidelity": fidelity, "context": {"beyond": "serve"}, "workers": [prefill, {"role": "decode", **worker}]},
        "the set-up",
    )


def at_rate(trace: Trace, rate: float) -> Trace:
    """Return the trace, its gaps scaled to `rate` [1/s]."""
    return dataclasses.replace(trace, arrival=trace.arrival * (len(trace) - 1) / rate / trace.duration)


def figures_of(ds: xr.Dataset) -> dict[str, float]:
    """Return what both fidelities are compared by."""
    served = ds["prompt_tokens"].values[ds["rejected"].values == 0].sum()
    return {
        "mean TTFT [s]": float(ds["ttft"].mean()),
        "mean TPOT [s]": float(ds["tpot"].mean()),
        "mean E2E [s]": float(ds["e2e"].mean()),
        "hit ratio [1]": float(ds["hit_tokens"].values.sum() / served),
        "occupancy of l1 [token]": float(np.nansum(ds["occupancy"].sel(tier="l1").values)),
    }


def measure() -> list[Figure]:
    """Print the table; there is no figure to hold against another."""
    rows = [("case", "figure", "paper", "engine", "difference")]
    for model, n_prefill, preset in CASES:
        trace = at_rate(generate(preset, 50, 1), RATES[model][preset])
        profile = roofline(load(), model, "l20z", 2)
        paper, engine = (
            figures_of(kvsweep.cluster.run(trace, set_up(n_prefill, fidelity), profile))
            for fidelity in ("paper", "engine")
        )
        for name, value in paper.items():
            apart = engine[name] / value - 1.0 if value else 0.0
            told = f"{apart:+.1%}" if abs(apart) > NOTED else f"within {NOTED:.0%}"
            rows.append((f"{model} {n_prefill}P-1D {preset}", name, f"{value:.4g}", f"{engine[name]:.4g}", told))
    print("\nfidelity")
    print_rows(rows)
    return []
