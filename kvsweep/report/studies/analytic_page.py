"""The page that shows what the analytic model expects of each policy beside what the cluster made of it."""

from __future__ import annotations

import base64
import io
import os
from html import escape
from pathlib import Path

import numpy as np
import xarray as xr

from kvsweep.report.labels import listed, number
from kvsweep.report.page import Cell, frame, listing, rows_table, summary_table
from kvsweep.results.files import replacing

_MODEL = "The analytic model takes a lone request and lets restore and recompute overlap: the longer of both counts. "
_RULES = {
    "predicted_serial_time": "The cluster of fidelity paper retrieves first and computes then, in steps of whole "
    "chunks shared with other requests, so the serial column is the prediction it should meet when nothing else runs. ",
    "predicted_time": "The cluster of fidelity engine loads layer by layer while it computes, in steps shared with "
    "other requests, so the overlapped column is the prediction it should meet, but for a layer, when nothing else "
    "runs. ",
}
"""What the cluster does, by the prediction it should meet."""
_REST = (
    "Waiting is told apart. A step takes its least time however few tokens it has, which rates do not know. Policies "
    "see the request rate of the last window in the cluster and the mean rate here, so they may decide otherwise, too."
)


def write_analytic(ds: xr.Dataset, path: str | os.PathLike[str]) -> None:
    """Write the page of `studies.analytic.beside` to `path`, whole or not at all."""
    page = render_analytic(ds)
    with replacing(Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_analytic(ds: xr.Dataset) -> str:
    """Return the page; every text of the Dataset in it is escaped."""
    why = _MODEL + _RULES[str(ds.attrs["kvsweep_expected"])] + _REST
    body = (
        f"<p>{escape(why)}</p>"
        f'<section aria-labelledby="kv-means"><h2 id="kv-means">Means over the requests that decide</h2>{_table(ds)}'
        "</section>"
        f'<section aria-labelledby="kv-each"><h2 id="kv-each">Request by request</h2>{_picture(ds)}</section>'
        '<section aria-labelledby="kv-from"><h2 id="kv-from">Where the numbers come from</h2>'
        f"{_provenance(ds)}</section>"
    )
    parts = {
        "source": escape(str(ds.attrs.get("source", "kvsweep"))),
        "title": escape(str(ds.attrs.get("title", ""))),
        "scheme": "light",
        "answer": escape(answer(ds)),
        "main": body,
        "scripts": "",
    }
    return frame(parts)


def answer(ds: xr.Dataset) -> str:
    """Return in a sentence whether prediction and cluster put the same policy first."""
    labels = [str(label) for label in ds["policy_label"].values]
    predicted = ds["predicted_time"].mean("request").values
    simulated = ds["ttft"].mean("request").values
    first, second = (
        listed([labels[i] for i in np.flatnonzero(np.isclose(values, values.min(), rtol=1e-9))])
        for values in (predicted, simulated)
    )
    if first == second:
        return f"Fastest by the analytic model and in the cluster: {first}."
    return f"Fastest by the analytic model: {first}. In the cluster: {second}."


def _table(ds: xr.Dataset) -> str:
    mean = ds.mean("request")
    hits = float(mean["host_pages"])
    expected = str(ds.attrs["kvsweep_expected"])
    kind = "serial" if "serial" in expected else "overlapped"
    heads = (
        "Policy", "Recomputed of the hits: predicted", "cluster", "Time: predicted, overlapped [s]",
        "predicted, serial [s]", "cluster, without waiting [s]", f"cluster over {kind}", "Waiting [s]", "TTFT [s]",
        "TTFT of all requests [s]",
    )  # fmt: skip
    rows: list[list[Cell]] = []
    for i, label in enumerate(ds["policy_label"].values):
        one = mean.isel(policy=i)
        due, real = float(one[expected]), float(one["simulated_time"])
        cells = (
            *(f"{float(one[f'{side}_reassigned']) / hits:.1%}" for side in ("predicted", "simulated")),
            *(number(float(one[name])) for name in ("predicted_time", "predicted_serial_time", "simulated_time")),
            f"{real / due:.3f}" if due else "–",
            *(number(float(one[name])) for name in ("simulated_wait", "ttft", "mean_ttft")),
        )  # fmt: skip
        rows.append([(str(label), str(ds["policy_description"].values[i])), *cells])
    return summary_table("Means by policy", heads, rows)


def _picture(ds: xr.Dataset) -> str:
    from kvsweep.report.plots.studies.analytic import analytic_figure
    from kvsweep.report.plots.style import styled

    data = io.BytesIO()
    with styled():
        analytic_figure(ds).savefig(data, format="png", dpi=130, metadata={"Software": None})
    text = base64.b64encode(data.getvalue()).decode("ascii")
    alt = "Time of each request in the cluster against its prediction, a panel a policy"
    return f'<img src="data:image/png;base64,{text}" alt="{alt}" width="936">'


def _provenance(ds: xr.Dataset) -> str:
    rows = [
        ("Trace", f"{ds.attrs.get('kvsweep_trace', '')}; {ds.attrs.get('kvsweep_requests', '')} requests"),
        ("Requests that decide", f"{ds.attrs.get('kvsweep_deciding_requests', '')}: they found KV on the host"),
        ("Fidelity", str(ds.attrs.get("kvsweep_fidelity", ""))),
        ("Profile", str(ds.attrs.get("kvsweep_profile_kind", ""))),
        ("Made by", f"{ds.attrs.get('source', '')}, {ds.attrs.get('history', '')}"),
    ]
    files = "".join(
        listing(name, str(ds.attrs.get(attribute, "")).strip())
        for name, attribute in (("Cluster file", "kvsweep_config"), ("Profile", "kvsweep_profile"))
    )
    return f'<div class="columns"><div>{rows_table(rows)}</div><div>{files}</div></div>'
