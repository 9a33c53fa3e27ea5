"""A payload and the viewer's assets as one HTML page that makes no request."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from typing import Any

import xarray as xr

from kvsweep.report import provenance
from kvsweep.report.payload import Payload

SCRIPTS = (
    "data/format.js", "data/scale.js", "data/cube.js", "maps/palette.js", "data/views.js", "maps/paint.js",
    "page/dom.js", "page/state.js", "maps/panels.js", "maps/legend.js", "maps/readout.js", "maps/chart.js",
    "maps/curves.js", "page/exports.js", "page/controls.js", "page/viewer.js",
)  # fmt: skip
"""The viewer, in the order it is put together; a page adds a source of data and starts it."""


LONGEST_LISTING = 24
"""Lines of a text to be copied beyond which it is folded."""


def assemble(payload: Payload, parts: dict[str, str], modules: Sequence[str]) -> str:
    """Return the page of a payload; `parts` is markup, `modules` come after those of the viewer."""
    script = viewer_script(modules)
    data = {
        "header": json_for_script(payload.header),
        "planes": "\n".join(_plane(name, raw) for name, raw in payload.planes.items()),
        "script": script,
    }
    own = {
        "answer": escape(payload.header["headline"][0]),
        "main": fill(asset("viewer.html"), parts),
        "scheme": "light dark",
        "scripts": fill(asset("data.html"), data),
    }
    return frame(parts | own, script)


def frame(parts: dict[str, str], script: str = "") -> str:
    """Return a page around `main`: its head, which lets this one script and the style run, and its header, as markup.

    `parts` are source, title, answer, main, scheme (light, or dark, too) and scripts, and where there is more to say
    of the title about, escaped.
    """
    style = asset("viewer.css")
    own = {"csp": escape(content_security_policy(script, style)), "style": style, "about": parts.get("about", "")}
    return fill(asset("page.html"), parts | own)


def viewer_markup() -> str:
    """Return the elements of the viewer: maps with the break-even line, and the chart of success rates."""
    return maps_markup("Explore", asset("break-even.html")) + "\n" + asset("chart.html")


def maps_markup(title: str, more: str = "") -> str:
    """Return the elements of the maps under the heading `title`, with `more` controls."""
    return fill(asset("maps.html"), {"title": title, "more": more})


def viewer_script(more: Sequence[str] = ()) -> str:
    """Return the viewer with the modules `more` after it, as one strict script that leaks no names."""
    return strict_script([asset(name) for name in (*SCRIPTS, *more)])


def strict_script(texts: Sequence[str]) -> str:
    """Return modules as one strict script that leaks no names."""
    modules = "\n".join(texts)
    return f'(() => {{\n"use strict";\n{modules}\n}})();\n'


@cache
def asset(name: str, package: str = "kvsweep.report") -> str:
    """Return an asset without indentation and whole-line comments, which the reader of a page does not need."""
    text = resources.files(package).joinpath("assets", name).read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    if name.endswith(".js"):
        lines = [line for line in lines if not line.startswith(("//", "/**", "* ", "*/")) and line != "*"]
    return "\n".join(line for line in lines if line)


def content_security_policy(script: str, style: str) -> str:
    """Return the policy that lets exactly this script and style run and nothing be loaded."""
    hashes = [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (script, style)
    ]  # fmt: skip
    return (
        f"default-src 'none'; script-src 'sha256-{hashes[0]}'; style-src 'sha256-{hashes[1]}'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )


def fill(template: str, parts: dict[str, str]) -> str:
    """Return `template` with each ``{{name}}`` replaced once; what is put in is not searched again."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], template)


def json_for_script(value: Any) -> str:
    """Return JSON that cannot end or change the script element around it."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plane(name: str, raw: bytes) -> str:
    text = base64.b64encode(raw).decode("ascii")
    return f'<script type="application/octet-stream" id="kv-plane-{escape(name)}">{text}</script>'


def summary(payload: Payload, counts: str, datasets: Sequence[xr.Dataset]) -> str:
    """Return the rest of the headline and what was warned of beside a table of counts, as markup."""
    items = "".join(f"<li>{escape(text)}</li>" for text in payload.header["headline"][1:])
    listing = f"<ul>{items}</ul>" if items else "<p></p>"
    warnings = "\n".join(filter(None, dict.fromkeys(str(ds.attrs.get("kvsweep_warnings", "")) for ds in datasets)))
    note = (
        '<div class="warning" tabindex="0" role="region" aria-label="Notes">'
        f"<strong>Note.</strong> {escape(warnings)}</div>"
    )
    return (
        '<section aria-label="Summary" class="answer-rest">'
        f"<div>{listing}{note if warnings else ''}</div>{counts}</section>"
    )  # fmt: skip


def reproduction(ds: xr.Dataset) -> str:
    """Return the ways to make a sweep again, as markup."""
    ways = (
        ("Command", provenance.command_line(ds)),
        ("Study file, for kvsweep sweep STUDY.yaml", str(ds.attrs.get("kvsweep_config", "")).strip()),
        ("Python", provenance.python_call(ds)),
    )
    again = "".join(listing(name, text) for name, text in ways if text)
    return again or "<p>The file does not say how it was made.</p>"


def listing(name: str, text: str) -> str:
    """Return a text to be copied under its name, as markup; a long one is folded."""
    lines = text.count("\n") + 1
    box = f"<pre>{escape(text)}</pre>"
    if lines <= LONGEST_LISTING:
        return f"<p>{escape(name)}</p>{box}"
    return f"<details><summary>{escape(name)} ({lines} lines)</summary>{box}</details>"


Cell = str | tuple[str, str]
"""A text, or one with the title that says more."""


def summary_table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[Cell]], style: str = "") -> str:
    """Return a table of texts whose first column names the rows, as markup; narrow windows show it without columns.

    Roles are spelled out, since browsers forget those of tables that are laid out otherwise.
    """

    def cell(tag: str, role: str, content: Cell, head: str) -> str:
        text, title = content if isinstance(content, tuple) else (content, "")
        about = f' title="{escape(title)}"' if title else ""
        if tag == "td":
            return f'<td role="cell" data-head="{escape(head)}"{about}>{escape(text)}</td>'
        return f'<th scope="row" role="{role}"><span class="clip"{about}>{escape(text)}</span></th>'

    body = "".join(
        '<tr role="row">'
        + "".join(cell("td" if i else "th", "rowheader", content, heads[i]) for i, content in enumerate(row))
        + "</tr>"
        for row in rows
    )
    top = "".join(f'<th scope="col" role="columnheader">{escape(text)}</th>' for text in heads)
    classes = f"summary-table {style}".strip()
    return (
        f'<table class="{classes}" role="table"><caption>{escape(caption)}</caption>'
        f'<thead role="rowgroup"><tr role="row">{top}</tr></thead><tbody role="rowgroup">{body}</tbody></table>'
    )


def rows_table(rows: provenance.Rows) -> str:
    """Return names and texts as a table, as markup."""
    body = "".join(
        f'<tr><th scope="row"><span class="clip">{escape(name)}</span></th><td>{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f'<table class="kv-table"><tbody>{body}</tbody></table>'
