"""Figure files: PDF, SVG or PNG by suffix, the same bytes for the same figure."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from kvsweep.errors import InputError
from kvsweep.report.plots.style import styled
from kvsweep.results.dataset import REFERENCES, timestamp
from kvsweep.results.files import check_writable, replacing
from kvsweep.version import __version__

SUFFIXES = (".pdf", ".svg", ".png")


def check_target(path: Path, option: str = "--output") -> None:
    """Raise InputError when `path` has no suffix of `SUFFIXES`."""
    if path.suffix.lower() not in SUFFIXES:
        raise InputError(f"{option}: {path}: suffix {path.suffix or 'missing'}; allowed: {', '.join(SUFFIXES)}")


def write_figure(figure: Figure, path: Path, force: bool = False, dpi: float | None = None) -> None:
    """Write `figure` to `path`, whole or not at all; its title goes into the metadata.

    `dpi` [1/inch] sets the pixels of a PNG, 160 an inch by default.

    With SOURCE_DATE_EPOCH set, equal figures give equal bytes; PNG carries no date at all.
    """
    check_target(path)
    check_writable(path, force)
    kind = path.suffix.lower()[1:]
    with replacing(path) as temporary, styled():
        figure.savefig(temporary, format=kind, metadata=_metadata(_title(figure), kind), dpi=dpi or "figure")


def _title(figure: Figure) -> str:
    return figure.get_suptitle() or (figure.axes[0].get_title() if figure.axes else "")


def _metadata(title: str, kind: str) -> dict[str, str]:
    tool = f"kvsweep {__version__}"
    text = " — ".join(title.split("\n"))
    if kind == "pdf":  # matplotlib writes CreationDate itself, from SOURCE_DATE_EPOCH where that is set
        return {"Title": text, "Creator": tool, "Subject": REFERENCES}
    if kind == "svg":
        return {"Title": text, "Creator": tool, "Source": REFERENCES, "Date": timestamp()}
    return {"Title": text, "Software": tool, "Source": REFERENCES}
