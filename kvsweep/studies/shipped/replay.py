"""The replay matrix of the paper (§V): 26 cases of model, topology, workload and rate, each from empty caches.

QASPER, SQuAD and the coding traces are stood in for by generated ones: papers and paragraphs with questions to each,
answered in 128 tokens, of which whole groups are sampled; coding sessions that fit the models' context.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.outcome.dataset import told
from kvsweep.cluster.simulation.run import finish
from kvsweep.results.attrs import to_attrs
from kvsweep.results.dataset import common_attrs, text_array, timestamp
from kvsweep.results.names import attributes
from kvsweep.studies.metrics import STATISTICS, measure
from kvsweep.studies.shipped.beside import differs
from kvsweep.studies.shipped.published import FIDELITIES, cluster, coordinates
from kvsweep.studies.traces import TraceSpec, arriving
from kvsweep.trace.generate import generate
from kvsweep.trace.model import Trace
from kvsweep.trace.sample import hashed_sample

TURNAROUND = 15.33
"""Mean of simulated span over CPU time in the paper [1]."""
ANSWER = 128
"""Tokens of every answer to a question [token]."""
_QA = {
    "papers": {"sessions": 280, "turns": 3.6, "input_tokens": 5000.0, "sample": 0.5},
    "paragraphs": {"sessions": 2000, "turns": 5.1, "input_tokens": 160.0, "sample": 0.1},
}
"""Stand-ins of QASPER and SQuAD: groups, questions to each, mean length, share of the groups kept."""
_QA_RATES = {"8B": (1.0, 2.0), "32B": (0.5, 1.0)}
_CODING_RATES = {
    ("8B", 1): (0.25, 0.5), ("8B", 3): (0.25, 0.5, 1.0), ("32B", 1): (0.125, 0.25), ("32B", 3): (0.125, 0.25, 0.5),
}  # fmt: skip
_FIGURES = ("token_hit_ratio", "requests", "rejected_requests", "prefill_utilization", "decode_utilization",
            "simulated_seconds")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """One replay: model size, prefill workers beside one decode worker, workload, rate [1/s]."""

    size: str
    n_prefill: int
    workload: str
    rate: float

    def __str__(self) -> str:
        return f"{self.size} {self.n_prefill}P-1D {self.workload} {self.rate:g}/s"


def cases() -> list[Case]:
    """Return the paper's 26 cases: 16 of questions, 10 of coding sessions."""
    found = [
        Case(size, n_prefill, workload, rate)
        for workload, size, n_prefill in itertools.product(_QA, _QA_RATES, (1, 3))
        for rate in _QA_RATES[size]
    ]
    found += [Case(size, n_prefill, "coding", rate) for (size, n_prefill), rates in _CODING_RATES.items()
              for rate in rates]  # fmt: skip
    return found


def workloads(seed: int, coding: TraceSpec) -> dict[str, Trace]:
    """Return the stand-in of each workload, with `coding` sessions generated or recorded."""
    found = {}
    for name, about in _QA.items():
        made = generate("qa", int(about["sessions"]), seed, turns=about["turns"], input_tokens=about["input_tokens"])
        sampled = hashed_sample(made, about["sample"], seed)
        found[name] = replace(sampled, output_tokens=np.full(len(sampled), ANSWER, dtype=np.int64))
    return {**found, "coding": coding.make(Path(), seed)}


def replay(
    profiles: Mapping[str, Profile], traces: Mapping[str, Trace], fidelities: Sequence[str] = FIDELITIES,
    progress: Callable[[int, int], None] | None = None,
) -> xr.Dataset:  # fmt: skip
    """Return latencies, reuse, host retrieval and turnaround of every case.

    Dims: fidelity, case, and statistic of latencies. Cases run one after the other, for the CPU time is part of the
    result.
    """
    listed = cases()
    rows = []
    for done, (fidelity, case) in enumerate(itertools.product(fidelities, listed), 1):
        trace = arriving(traces[case.workload], case.rate, 1.0)
        run = finish(trace, cluster(case.n_prefill, fidelity), profiles[case.size])
        found = told(run)
        figures = measure(found, {})
        hits = np.array(figures["hit_tokens"])
        figures["host_hit_ratio"] = float(hits[1] / hits.sum()) if hits.sum() else 0.0
        figures["retrieving_ratio"] = float((found.arrays["hit_tokens"][:, 1] > 0).mean())
        figures["turnaround"] = figures["simulated_seconds"] / max(run.cpu_seconds, 1e-9)
        rows.append(figures)
        if progress is not None:
            progress(done, len(fidelities) * len(listed))
    return _dataset(listed, rows, fidelities, profiles, traces)


def _dataset(
    listed: list[Case], rows: list[dict[str, Any]], fidelities: Sequence[str], profiles: Mapping[str, Profile],
    traces: Mapping[str, Trace],
) -> xr.Dataset:  # fmt: skip
    shape, dims = (len(fidelities), len(listed)), ("fidelity", "case")
    variables = {
        name: xr.Variable((*dims, "statistic"), np.array([row[name] for row in rows]).reshape(*shape, -1),
                          attributes(name))
        for name in ("ttft", "tpot", "e2e")
    }  # fmt: skip
    for name in (*_FIGURES, "host_hit_ratio", "retrieving_ratio", "turnaround"):
        values = np.array([row[name] for row in rows]).reshape(shape)
        variables[name] = xr.Variable(dims, values, attributes(name))
    columns = {
        "case": text_array([str(case) for case in listed]),
        "profile": text_array([case.size for case in listed]),
        "n_prefill": np.array([case.n_prefill for case in listed]),
        "trace": text_array([case.workload for case in listed]),
        "request_rate": np.array([case.rate for case in listed]),
    }
    coords = {name: xr.Variable("case", points, attributes(name)) for name, points in columns.items()}
    coords |= coordinates({"fidelity": fidelities, "statistic": STATISTICS})
    about = {
        "title": "Replay matrix of the paper, on stand-ins for its workloads",
        "history": f"{timestamp()} kvsweep study replay",
        "kvsweep_result": "replay_study",
        "kvsweep_fidelity": ", ".join(fidelities),
        "kvsweep_profiles": {size: f"{each.name} ({each.kind})" for size, each in profiles.items()},
        "kvsweep_traces": {name: f"{trace.source}; {len(trace)} requests" for name, trace in traces.items()},
        "kvsweep_paper": {"turnaround": TURNAROUND},
    }
    return xr.Dataset(variables, coords).assign_attrs(to_attrs(common_attrs() | about))


def rows_of(ds: xr.Dataset) -> list[dict[str, Any]]:
    """Return a row for each case and fidelity, those of a case together."""
    names = ("token_hit_ratio", "host_hit_ratio", "retrieving_ratio", "turnaround")
    rows = []
    for case in ds["case"].values:
        for fidelity in ds["fidelity"].values:
            part = ds.sel(case=case, fidelity=fidelity)
            means = {f"{name}_mean": float(part[name].sel(statistic="mean")) for name in ("ttft", "tpot", "e2e")}
            figures = {name: float(part[name]) for name in names}
            rows.append({"case": str(case), "fidelity": str(fidelity), **means, **figures})
    return rows


def shown(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first row of each case, and others in which a latency or the hit ratio differs from it."""
    names = ("ttft_mean", "tpot_mean", "e2e_mean", "token_hit_ratio")
    first: dict[str, dict[str, Any]] = {}
    for row in rows:
        first.setdefault(row["case"], row)
    return [row for row in rows if row is (base := first[row["case"]])
            or any(differs(row[name], base[name]) for name in names)]  # fmt: skip
