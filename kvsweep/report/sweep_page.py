"""The page of a full sweep: its maps, what each policy passes, where the numbers come from."""

from __future__ import annotations

from html import escape

import xarray as xr

from kvsweep.report import provenance
from kvsweep.report.headline import share
from kvsweep.report.labels import STATE_WORDS, shorten
from kvsweep.report.page import Cell, assemble, reproduction, rows_table, summary, summary_table, viewer_markup
from kvsweep.report.payload import Payload
from kvsweep.results.analysis.sweeps import VERDICTS

EMBEDDED = ("data/source.js", "page/embedded.js")


def render(ds: xr.Dataset, payload: Payload) -> str:
    """Return the page; every text of the Dataset in it is escaped."""
    world = str(ds.attrs.get("kvsweep_world", ""))
    parts = {
        "source": escape(str(ds.attrs.get("source", "kvsweep"))),
        "title": escape(shorten(payload.header["title"], 120)),
        "about": escape(f" · {shorten(world, 300)}") if world else "",
        "summary": summary(payload, _counts(payload), [ds]),
        "viewer": viewer_markup(),
        "provenance": _provenance(ds, payload),
    }
    return assemble(payload, parts, EMBEDDED)


def _whole(points: int) -> str:
    return f"Share of all {points:,} points" if points > 1 else "The one point there is"


def _counts(payload: Payload) -> str:
    counts, enough = payload.header["counts"], payload.header["sufficient"]
    order = [VERDICTS.index(name) for name in ("pass", "latency_only", "throughput_only", "fail")]
    heads = ("Policy", "Passes", *(STATE_WORDS[i].capitalize() for i in order[1:]), "Simplest sufficient")
    rows: list[list[Cell]] = []
    for index, policy in enumerate(payload.header["policies"]):
        total = sum(counts[index])
        cells = [(share(counts[index][state], total), f"{counts[index][state]:,} points") for state in order]
        name = (f"{index + 1} {policy['label']}", policy["description"])
        rows.append([name, *cells, share(enough[index], total)])
    return summary_table(f"{_whole(sum(counts[0]))}, by policy", heads, rows)


def _provenance(ds: xr.Dataset, payload: Payload) -> str:
    parts = [
        f'<div><h3>Workload</h3>{rows_table(provenance.axes_rows(ds))}</div>',
        f'<div><h3>Machine and model</h3>{rows_table(provenance.deployment_rows(ds))}</div>',
        f'<div><h3>Sources of the catalog figures</h3>{rows_table(provenance.source_rows(ds))}</div>',
        f"<div><h3>Versions, assumptions, precision</h3>{rows_table(provenance.version_rows(ds, payload))}</div>",
        f"<div><h3>To reproduce</h3>{reproduction(ds)}</div>",
    ]  # fmt: skip
    descriptions = [
        (f"{policy['label']} ({policy['id']})", policy["description"]) for policy in payload.header["policies"]
    ]
    parts.append(f"<div><h3>Policies</h3>{rows_table(descriptions)}</div>")
    return (
        '<section aria-labelledby="kv-provenance"><h2 id="kv-provenance">Where the numbers come from</h2>'
        f'<div class="columns">{"".join(parts)}</div></section>'
    )
