"""The event log of a run: when each request passed each of its stages, as a Dataset or for the Perfetto viewer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kvsweep.cluster.outcome.dataset import Finished, attributes_of, worker_names
from kvsweep.cluster.shared import columns as col
from kvsweep.results.dataset import sweep_dataset
from kvsweep.results.files import replacing
from kvsweep.results.netcdf import write_netcdf

if TYPE_CHECKING:
    import xarray as xr

SUFFIXES = (".nc", ".json")

EVENTS = {
    "arrived": (col.ARRIVAL, "prefill"),
    "admitted": (col.ADMITTED, "prefill"),
    "retrieval_started": (col.H2D_BEGAN, "prefill"),
    "ready": (col.READY, "prefill"),
    "prefill_started": (col.BEGAN, "prefill"),
    "prefill_ended": (col.PREFILLED, "prefill"),
    "decode_reserved": (col.RESERVED, "decode"),
    "handoff_ended": (col.HANDED, "decode"),
    "joined": (col.JOINED, "decode"),
    "first_token": (col.FIRST_TOKEN, "decode"),
    "finished": (col.FINISHED, "decode"),
}
"""Column of the time of each event, and the side on which it happens, in the order of a request's life."""
SPANS = {
    "wait for prefill": ("arrived", "admitted"),
    "retrieve": ("admitted", "ready"),
    "ready": ("ready", "prefill_started"),
    "prefill": ("prefill_started", "prefill_ended"),
    "hand off": ("prefill_ended", "handoff_ended"),
    "wait for the batch": ("handoff_ended", "joined"),
    "decode": ("joined", "finished"),
}
"""Stages of a request from one event to another."""


def write_events(run: Finished, path: Path) -> None:
    """Write the event log of `run`: NetCDF, or JSON for Perfetto, by the suffix of `path`."""
    if path.suffix == ".nc":
        write_netcdf(events(run), path)
        return
    with replacing(path) as temporary:
        temporary.write_text(json.dumps({"traceEvents": _perfetto(run), "displayTimeUnit": "ms"}), encoding="utf-8")


def events(run: Finished) -> xr.Dataset:
    """Return all events of the requests that were served, in order of time; dim `event`."""
    rows = np.flatnonzero(run.state.request[:, col.REJECTED] == 0)
    times = np.stack([run.state.request[rows, column] for column, _ in EVENTS.values()])
    kinds, places = np.nonzero(times >= 0)
    moments = times[kinds, places]
    order = np.lexsort((kinds, rows[places], moments))
    kinds, requests = kinds[order], rows[places[order]]
    at_decode = np.array([side == "decode" for _, side in EVENTS.values()])[kinds]
    worker = np.where(at_decode, _worker(run, requests, "decode"), _worker(run, requests, "prefill"))
    variables = {
        "event_time": (("event",), moments[order] * 1e-12),
        "event_kind": (("event",), kinds.astype(np.int8)),
        "event_request": (("event",), requests.astype(np.int32)),
        "event_worker": (("event",), worker.astype(np.int32)),
    }
    ds = sweep_dataset(variables, {}, attributes_of(run) | {"kvsweep_result": "events"}, squeeze=False)
    flags = {"flag_values": np.arange(len(EVENTS), dtype=np.int8), "flag_meanings": " ".join(EVENTS)}
    ds["event_kind"].attrs |= flags
    ds["event_worker"].attrs |= {"comment": ", ".join(worker_names(run.config))}
    return ds


def _worker(run: Finished, requests: np.ndarray[Any, Any], side: str) -> np.ndarray[Any, Any]:
    decode_workers = 0 if run.config.is_colocated else run.config.n_prefill
    column, first = (col.AT_DECODE, decode_workers) if side == "decode" else (col.AT_PREFILL, 0)
    return np.asarray(run.state.request[requests, column] + first)


def _perfetto(run: Finished) -> list[dict[str, Any]]:
    """Return the stages as complete events, a process a worker and a thread a request; times in [us]."""
    names = worker_names(run.config)
    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": i, "args": {"name": name}} for i, name in enumerate(names)
    ]
    rows = np.flatnonzero(run.state.request[:, col.REJECTED] == 0)
    for name, (begin, end) in SPANS.items():
        starts, ends = (run.state.request[rows, EVENTS[event][0]] for event in (begin, end))
        workers = _worker(run, rows, EVENTS[begin][1])
        for r, start, stop, worker in zip(rows.tolist(), starts.tolist(), ends.tolist(), workers.tolist(), strict=True):
            if stop > start >= 0:
                span = {"name": name, "ph": "X", "ts": start / 1e6, "dur": (stop - start) / 1e6}
                found.append({**span, "pid": worker, "tid": r})
    return found
