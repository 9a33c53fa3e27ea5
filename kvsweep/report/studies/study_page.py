"""The page of a cluster study: the answer, maps of every choice over any two axes, and where the numbers come from."""

from __future__ import annotations

from html import escape

import xarray as xr

from kvsweep.report.headline import share
from kvsweep.report.labels import label, shorten
from kvsweep.report.page import Cell, assemble, listing, maps_markup, rows_table, summary, summary_table
from kvsweep.report.payload import DEFAULT_BUDGET, Payload
from kvsweep.report.studies.study_payload import BEST, FAR, NEARLY, pack_study
from kvsweep.results.analysis.slices import value_text
from kvsweep.results.analysis.studies import axes_of
from kvsweep.results.attrs import mapping_attr

MODULES = ("data/source.js", "page/study.js")
MOST_VALUES = 12


def render_study(ds: xr.Dataset, cells_budget: int = DEFAULT_BUDGET) -> str:
    """Return the page of a study; every text of the Dataset in it is escaped."""
    payload = pack_study(ds, cells_budget)
    parts = {
        "source": escape(str(ds.attrs.get("source", "kvsweep"))),
        "title": escape(shorten(payload.header["title"], 120)),
        "summary": summary(payload, _counts(payload), [ds]),
        "viewer": maps_markup("Explore"),
        "provenance": _provenance(ds),
    }
    return assemble(payload, parts, MODULES)


def _counts(payload: Payload) -> str:
    heads = ("Choice", "Best", "Within 5 %", "Slower", "First of the best")
    rows: list[list[Cell]] = []
    for index, policy in enumerate(payload.header["policies"]):
        counts = payload.header["counts"][index]
        total = sum(counts)
        cells = [share(counts[state], total) for state in (BEST, NEARLY, FAR)]
        won = share(payload.header["sufficient"][index], total)
        rows.append([(f"{index + 1} {policy['label']}", policy["description"]), *cells, won])
    return summary_table(f"Share of {sum(payload.header['counts'][0]):,} settings, by mean TTFT", heads, rows)


def _provenance(ds: xr.Dataset) -> str:
    axes = []
    for name in axes_of(ds):
        values = [value_text(value) for value in ds[name].values]
        shown = values if len(values) <= MOST_VALUES else [*values[: MOST_VALUES - 1], f"… {values[-1]}"]
        axes.append((label(name), ", ".join(shown)))
    fixed = [
        (label(name), value_text(ds[name].values)) for name in map(str, ds.coords) if ds[name].ndim == 0
    ]  # fmt: skip
    failures = [(point, str(reason)) for point, reason in mapping_attr(ds, "kvsweep_failures").items()]
    about = [
        ("Simulations", f"{ds['cell_state'].size:,}"),
        ("Profiles", str(ds.attrs.get("kvsweep_profile_kind", ""))),
        ("Made by", str(ds.attrs.get("source", ""))),
        ("History", str(ds.attrs.get("history", ""))),
        ("Rules", str(ds.attrs.get("references", ""))),
        ("Notes", str(ds.attrs.get("comment", ""))),
        *([("Known beforehand", str(ds.attrs["kvsweep_foresight"]))] if "kvsweep_foresight" in ds.attrs else []),
    ]
    config = str(ds.attrs.get("kvsweep_config", "")).strip()
    parts = [
        f"<div><h3>Axes</h3>{rows_table(axes)}</div>",
        f"<div><h3>Held</h3>{rows_table(fixed)}</div>" if fixed else "",
        f"<div><h3>Origin</h3>{rows_table(about)}</div>",
        f"<div><h3>Failed</h3>{rows_table(failures)}</div>" if failures else "",
        f"<div><h3>To reproduce</h3>{listing('Study file, for kvsweep cluster sweep STUDY.yaml', config)}</div>",
    ]
    return (
        '<section aria-labelledby="kv-provenance"><h2 id="kv-provenance">Where the numbers come from</h2>'
        f'<div class="columns">{"".join(parts)}</div></section>'
    )
