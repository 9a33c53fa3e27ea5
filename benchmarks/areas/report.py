"""Size and speed of the HTML report, beside an equal Plotly page where plotly is installed (a dev-only import).

Sizes are compared with the gzipped quantised payload, whole grid, nothing left out: per point and policy one byte
each for the state and the decision, and for time and recomputed blocks a logarithmic byte for the picture and
16 bits for read-outs.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

import kvsweep
from benchmarks.figures import Figure
from kvsweep.report import write_report
from kvsweep.report.payload import pack, quantise

TIMING = Path(__file__).parents[2] / "tests" / "browser" / "timing.mjs"


def usual(tiny: bool) -> xr.Dataset:
    """Return the report's usual sweep: its times depend on one of three axes only."""
    n = 10 if tiny else 100
    step = "0.1" if tiny else "0.01"
    return kvsweep.sweep(
        stack="h200", hit_ratio=f"0:1:{step}", request_rate=f"0.01:0.30:n{n}", p95_seconds=f"5:60:n{n}"
    )


def dense(tiny: bool) -> xr.Dataset:
    """Return a sweep whose times depend on all three axes."""
    n, step, blocks = (10, "0.1", 10_000) if tiny else (100, "0.01", 1_000)
    return kvsweep.sweep(
        stack="a100_ddr5_nvme", placement="auto", total_blocks=f"{blocks}:100000:{blocks}", hit_ratio=f"0:1:{step}",
        gpu_eta=f"0.1:0.9:n{n}", request_rate=0.05, p95_seconds=20,
    )  # fmt: skip


def quantised_bytes(ds: xr.Dataset) -> int:
    """Return the gzipped size [byte] of the whole grid, quantised."""
    total = 0
    for policy in range(ds.sizes["policy"]):
        one = ds.isel(policy=[policy])
        for array in (one.kvsweep.verdict, one["decision_mode"]):
            total += len(gzip.compress(array.values.astype(np.uint8).tobytes(), 9))
        for name in ("total_time", "reassigned_hit_blocks"):
            values = one[name].values
            codes = quantise(values)[0] if values.any() else np.zeros(values.shape, np.uint32)
            for part in ((codes >> 16).astype(np.uint8), (codes & 0xFFFF).astype(np.uint16)):
                total += len(gzip.compress(part.tobytes(), 9))
    return total


def plotly_page(ds: xr.Dataset, path: Path) -> bool:
    """Write the same maps with Plotly, all slider positions in the page; False when plotly is not installed."""
    try:
        import plotly
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots
    except ImportError:
        return False
    held, y_dim, x_dim = (str(dim) for dim in ds["meets_slo"].dims if dim != "policy")
    verdict = ds.kvsweep.verdict.values.astype(np.uint8)
    figure = make_subplots(rows=2, cols=2, subplot_titles=[str(text) for text in ds["policy_label"].values])
    for policy in range(4):
        where = {"row": policy // 2 + 1, "col": policy % 2 + 1}
        heat = go.Heatmap(z=verdict[policy, 0], x=ds[x_dim].values, y=ds[y_dim].values, zmin=0, zmax=3)
        figure.add_trace(heat, **where)
    frames = [{"z": list(verdict[:, i].reshape(4, -1).astype(int).tolist())} for i in range(ds.sizes[held])]
    shape = list(verdict.shape[2:])
    after = (
        "const frames = " + json.dumps(frames, separators=(",", ":")) + f"; const [ny, nx] = {shape};"
        "const rows = (z) => Array.from({length: ny}, (_, i) => z.slice(i * nx, (i + 1) * nx));"
        "const gd = document.querySelector('.plotly-graph-div');"
        "globalThis.kvsweepStep = (i) => Plotly.restyle(gd, {z: frames[i % frames.length].z.map(rows)});"
        "document.documentElement.dataset.firstPicture = String(performance.now());"
        "document.documentElement.dataset.ready = 'true';"
    )
    figure.write_html(path, include_plotlyjs=True, full_html=True, post_script=after)
    print(f"plotly {plotly.__version__}", file=sys.stderr)
    return True


def timed(path: Path, kind: str) -> dict[str, float] | None:
    """Return times [ms] of a page in the browser, None without node and chromium."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    if not chromium or not shutil.which("node") or not (TIMING.parent / "node_modules").is_dir():
        return None
    run = subprocess.run(
        ["node", str(TIMING), str(path), kind], capture_output=True, text=True, timeout=600, check=True,
        env=os.environ | {"CHROMIUM": chromium},
    )  # fmt: skip
    times: dict[str, float] = json.loads(run.stdout)
    return times


def measure(tiny: bool) -> list[Figure]:
    """Return sizes and times of the reports of both sweeps; without node and chromium, sizes only."""
    found: list[Figure] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in (("usual", usual), ("dense", dense)):
            found += one_report(name, make(tiny), Path(folder))
    return found


def one_report(name: str, ds: xr.Dataset, folder: Path) -> list[Figure]:
    """Return the figures of one report and, with plotly, of the page it makes of the same maps."""
    page, other = folder / f"{name}.html", folder / f"{name}-plotly.html"
    start = time.perf_counter()
    write_report(ds, page)
    found = [Figure(f"{name}: write the report", time.perf_counter() - start, "s")]
    size = page.stat().st_size
    for baseline, n_bytes in (("quantised grid", quantised_bytes(ds)), ("its own planes", pack(ds).n_bytes)):
        figure = Figure(f"{name}: size of the page", size, "byte", baseline, n_bytes, size / n_bytes)
        # The usual sweep packs into less than the viewer's own 90 kB, which is then all that a ratio would show.
        if baseline == "quantised grid" and n_bytes > 1_000_000:
            figure = replace(figure, bar="<= 1.5", passed=size / n_bytes <= 1.5)
        found.append(figure)
    beside = plotly_page(ds, other)
    if beside:
        n_bytes = other.stat().st_size
        found.append(Figure(f"{name}: size of the page", size, "byte", "plotly page", n_bytes, size / n_bytes))
    else:
        print("plotly not installed: baseline skipped", file=sys.stderr)
    times = timed(page, "viewer") or {}
    against = (timed(other, "plotly") if beside else None) or {}
    for what, value in times.items():
        figure = Figure(f"{name}: {what.replace('_', ' ')}", value, "ms")
        if what in against:
            figure = replace(figure, baseline="plotly page", baseline_value=against[what], ratio=value / against[what])
        found.append(figure)
    return found
