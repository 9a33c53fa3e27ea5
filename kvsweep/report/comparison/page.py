"""The page of a comparison: what changed in a sentence, in tables, and in maps drawn by the viewer of the report."""

from __future__ import annotations

import os
from collections.abc import Callable
from html import escape
from pathlib import Path

import xarray as xr

from kvsweep.report import provenance
from kvsweep.report.comparison.changes import pack_changes
from kvsweep.report.comparison.headline import place_text, seconds_text
from kvsweep.report.labels import label, number, shorten, unit
from kvsweep.report.page import assemble, maps_markup, reproduction, rows_table, summary, summary_table
from kvsweep.report.payload import DEFAULT_BUDGET, Payload
from kvsweep.results.analysis.compare import Comparison, PolicyComparison, TimeChange, compare
from kvsweep.results.files import replacing

MODULES = ("data/source.js", "page/comparison.js")

_COUNTS: tuple[tuple[str, Callable[[PolicyComparison], int]], ...] = (
    ("Fail → pass", lambda row: row.fail_to_pass),
    ("Pass → fail", lambda row: row.pass_to_fail),
    ("Pass → pass", lambda row: row.pass_both),
    ("Fail → fail", lambda row: row.fail_both),
    ("Passes in A", lambda row: row.pass_both + row.pass_to_fail),
    ("Passes in B", lambda row: row.pass_both + row.fail_to_pass),
)


def write_comparison(
    a: xr.Dataset,
    b: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    names: tuple[str, str] = ("the first sweep", "the second sweep"),
    cells_budget: int = DEFAULT_BUDGET,
) -> None:
    """Write the report of how sweep `b` differs from sweep `a` to `path`, whole or not at all.

    Parameters
    ----------
    a, b : full sweeps
    path : the HTML file
    names : what the page calls them beside A and B, usually their files
    cells_budget : most points [1] the common grid may have, policies not counted

    Raises
    ------
    InputError
        For Datasets that are no full sweeps, have nothing in common or exceed the budget, and a path that cannot be
        written.
    """
    page = render_comparison(a, b, names, cells_budget)
    with replacing(Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")


def render_comparison(a: xr.Dataset, b: xr.Dataset, names: tuple[str, str], cells_budget: int = DEFAULT_BUDGET) -> str:
    """Return the page; every text of the Datasets in it is escaped."""
    found = compare(a, b)
    payload = pack_changes(a, b, found, cells_budget)
    tables = (
        f'<div class="pair-columns"><div>{_configuration(found)}{_one_sided(found)}</div>{_times(found, payload)}</div>'
    )
    parts = {
        "source": escape(str(b.attrs.get("source", "kvsweep"))),
        "title": escape(f"A is {shorten(names[0], 100)} · B is {shorten(names[1], 100)}"),
        "summary": summary(payload, _counts(found, payload), [a, b]) + tables,
        "viewer": maps_markup("Where verdicts change"),
        "provenance": _provenance((a, b), names, payload),
    }
    return assemble(payload, parts, MODULES)


def _counts(found: Comparison, payload: Payload) -> str:
    heads = ["Policy", *(name for name, _ in _COUNTS)]
    rows = [
        [_policy_name(payload, index), *(f"{count(row):,}" for _, count in _COUNTS)]
        for index, row in enumerate(found.policies)
    ]
    return summary_table(f"Verdicts in A → B at the {found.points:,} points that both have", heads, rows)


def _times(found: Comparison, payload: Payload) -> str:
    """Return where each policy's total time grew and shrank the most."""
    heads = ["Policy", "Largest B / A", "First at", "Smallest B / A", "First at"]
    rows = []
    for index, row in enumerate(found.policies):
        specs = [payload.header["planes"][f"total_time_{side}.{index}"] for side in "ab"]
        # A place along an axis on which the change does not depend says nothing.
        dims = {dim for spec in specs for dim in spec["dims"] if row.worst.ratio != row.best.ratio}
        cells = [text for change in (row.worst, row.best) for text in _change(change, dims)]
        rows.append([_policy_name(payload, index), *cells])
    table = summary_table("The largest and smallest change of each policy’s total time", heads, rows, "places")
    return f'<section aria-labelledby="kv-times"><h2 id="kv-times">Total time</h2>{table}</section>'


def _change(change: TimeChange, dims: set[str]) -> list[str]:
    ratio = "equal" if change.ratio == 1.0 else f"× {number(round(change.ratio, 4))}"
    return [f"{ratio} ({seconds_text(change)})", place_text(change, dims) or "all points"]


def _configuration(found: Comparison) -> str:
    heads = ["Setting", "A", "B"]
    rows = [[_setting_name(each.name), *(provenance.setting(each.name, text) for text in (each.a, each.b))]
            for each in found.differences]  # fmt: skip
    table = summary_table(
        "Settings, what they resolved to, and origin, where they differ", heads, rows, "places settings"
    )
    body = table if rows else "<p>Both sweeps have the same configuration.</p>"
    return f'<section aria-labelledby="kv-settings"><h2 id="kv-settings">Configuration</h2>{body}</section>'


def _setting_name(name: str) -> str:
    units = unit(name)
    return f"{label(name)} [{units}]" if units and units not in provenance.PREFIXED else label(name)


def _one_sided(found: Comparison) -> str:
    """Return policies and points of the grid that only one sweep has, as markup; empty where there are none."""
    items = []
    for side, policies in (("A", found.policies_only_a), ("B", found.policies_only_b)):
        if policies:
            names = ", ".join(found.labels[name] for name in policies)
            items.append(f"Only {side} has the {'policies' if len(policies) > 1 else 'policy'} {names}.")
    items += [
        f"{label(axis.dim)}: {axis.n_common} of A’s {axis.n_a} and B’s {axis.n_b} points are in both and compared."
        for axis in found.axes
        if not axis.n_a == axis.n_b == axis.n_common
    ]
    listed = "".join(f"<li>{escape(item)}</li>" for item in items)
    head = '<h2 id="kv-one-sided">Left out of the comparison</h2>'
    return f'<section aria-labelledby="kv-one-sided">{head}<ul class="wrap">{listed}</ul></section>' if items else ""


def _provenance(datasets: tuple[xr.Dataset, xr.Dataset], names: tuple[str, str], payload: Payload) -> str:
    """Return what either sweep was made of, as markup: what is the same once, what is not side by side."""
    facts = [
        provenance.axes_rows(ds) + provenance.deployment_rows(ds) + provenance.version_rows(ds, payload)
        + provenance.source_rows(ds)
        for ds in datasets
    ]  # fmt: skip
    same = [row for row in facts[0] if row in facts[1]]
    parts = []
    for side, ds, name, rows in zip("AB", datasets, names, facts, strict=True):
        own = rows_table([row for row in rows if row not in same])
        head = f"<h3>{side}: {escape(shorten(name, 100))}</h3>"
        parts.append(f"<div>{head}{own}<h3>To reproduce {side}</h3>{reproduction(ds)}</div>")
    return (
        '<section aria-labelledby="kv-provenance"><h2 id="kv-provenance">Where the numbers come from</h2>'
        f'<div class="pair-columns">{"".join(parts)}</div><h3>The same in A and B</h3>{rows_table(same)}</section>'
    )


def _policy_name(payload: Payload, index: int) -> str:
    return f"{index + 1} {payload.header['policies'][index]['label']}"
