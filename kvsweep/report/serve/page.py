"""The dashboard's page: the report's viewer with controls around it, in one answer that loads nothing more."""

from __future__ import annotations

from html import escape

from kvsweep.report.page import SCRIPTS, asset, content_security_policy, fill, strict_script, viewer_markup
from kvsweep.version import __version__

PACKAGE = "kvsweep.report.serve"

OWN_SCRIPTS = ("api.js", "settings.js", "fields.js", "controls-panel.js", "bars.js", "point.js", "dashboard.js")
"""The modules of the dashboard, after those of the viewer."""


def dashboard() -> tuple[str, str]:
    """Return the page and its Content-Security-Policy, which lets it fetch from this server only."""
    style = "\n".join([asset("viewer.css"), asset("dashboard.css", PACKAGE)])
    script = strict_script([*map(asset, (*SCRIPTS, "data/source.js")), *(asset(name, PACKAGE) for name in OWN_SCRIPTS)])
    page = fill(
        asset("dashboard.html", PACKAGE),
        {"version": escape(__version__), "style": style, "viewer": viewer_markup(), "script": script},
    )
    policy = content_security_policy(script, style)
    return page, f"{policy}; connect-src 'self'; frame-ancestors 'none'"
