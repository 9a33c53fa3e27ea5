"""Writing the report of a Dataset, by what it holds."""

from __future__ import annotations

import os
from pathlib import Path

import xarray as xr

from kvsweep.report.payload import DEFAULT_BUDGET, pack
from kvsweep.report.studies.study_page import render_study
from kvsweep.report.sweep_page import render
from kvsweep.results.analysis.studies import is_study
from kvsweep.results.files import replacing


def write_report(
    ds: xr.Dataset,
    path: str | os.PathLike[str],
    *,
    cells_budget: int = DEFAULT_BUDGET,
) -> None:
    """Write the report of a full sweep or a cluster study to `path`, whole or not at all.

    Parameters
    ----------
    ds : a sweep, as `kvsweep.sweep` and `kvsweep.open` return it
    path : the HTML file
    cells_budget : most grid points [1] a report may hold, policies not counted

    Raises
    ------
    InputError
        For a Dataset that is no full sweep or exceeds the budget, and a path that cannot be written.
    """
    page = render_study(ds, cells_budget) if is_study(ds) else render(ds, pack(ds, cells_budget))
    with replacing(Path(path)) as temporary:
        temporary.write_text(page, encoding="utf-8")
