"""``kvsweep study``: the paper's studies as shipped examples, beside what the paper found."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.options import say
from kvsweep.cli.output import Column, print_table, to_csv, to_json
from kvsweep.cli.study_pictures import analytic, capacity, cliff, sources, tiers
from kvsweep.errors import InputError, ResultError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
_FIGURES = (".pdf", ".svg", ".png")


@click.group("study", context_settings={"help_option_names": ["-h", "--help"]})
def study() -> None:
    """Run studies that are shipped: those of the paper, and the pictures people expect of a KV hierarchy.

    Of the paper: session affinity, idle TTL, and its replay matrix. Its traces and measurements are not public. Coding
    sessions are generated to fit the models' context; where KVSWEEP_DATA names a folder with recorded ones
    (weka/*.jsonl.gz), affinity and ttl run on those, too. Service models are assumed rooflines unless profiles are
    given. What the paper found stands beside what these workloads give.
    """


for _picture in (sources, cliff, capacity, tiers, analytic):
    study.add_command(_picture)


def _options(command: F) -> F:
    for option in reversed((
        click.option("--trace", type=_PATH, metavar="FILE", help="Recorded coding sessions to run on instead."),
        click.option("--profile-8b", type=_PATH, metavar="FILE", help="Profile of the 8B model."),
        click.option("--profile-32b", type=_PATH, metavar="FILE", help="Profile of the 32B model."),
        click.option("--fidelity", default="paper", show_default=True, metavar="NAME", help="Rules of the simulation."),
        click.option("--data", type=_PATH, metavar="FILE.nc", help="Write the Dataset, too."),
        click.option("--force", is_flag=True, help="Overwrite the files."),
        click.option("--format", "output_format", type=click.Choice(("table", "json", "csv")), default="table",
                     show_default=True, help="Form of what is printed."),
        click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr."),
    )):  # fmt: skip
        command = option(command)
    return command


def _figure_options(command: F) -> F:
    command = click.option("--seeds", type=click.IntRange(1, 100), default=1, show_default=True,
                           help="Replicates of what the trace leaves open.")(command)  # fmt: skip
    return click.option("-o", "--output", type=_PATH, metavar="FILE",
                        help="Draw the figure; its suffix chooses .pdf, .svg or .png.")(command)  # fmt: skip


@study.command("affinity")
@_options
@_figure_options
def affinity(**given: Any) -> None:
    """Compare session affinity with round robin on 3P-1D: prefill saved, latency, spread over sessions."""
    from kvsweep.studies import affinity as module

    def draw(ds: xr.Dataset) -> Figure:
        from kvsweep.report.plots.paper_studies import affinity_figure

        return affinity_figure(ds)

    _compare(module.affinity, module.checks, draw, ("uncached_change", "e2e_change"), {}, given)


@study.command("ttl")
@_options
@_figure_options
def ttl(**given: Any) -> None:
    """Compare idle TTLs of 1, 10, 60 and 300 s with LRU alone on 3P-1D: KV held over time, time to first token."""
    from kvsweep.studies import retention as module

    def draw(ds: xr.Dataset) -> Figure:
        from kvsweep.report.plots.paper_studies import retention_figure

        return retention_figure(ds)

    at = {"ttl": 60.0}
    _compare(module.retention, module.checks, draw, ("occupancy_change", "ttft_change"), at, given)


@study.command("replay")
@_options
@click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True, help="Seed of the workloads.")
def replay(seed: int, **given: Any) -> None:
    """Replay the paper's 26 cases of model, topology, workload and rate on stand-ins for its workloads."""
    from kvsweep.studies.published import profiles
    from kvsweep.studies.replay import replay as run
    from kvsweep.studies.replay import workloads

    _check(given, None)
    found = profiles({"8B": given["profile_8b"], "32B": given["profile_32b"]})
    traces = workloads(seed, given["trace"])
    with _progress(given["quiet"]) as progress:
        ds = run(found, traces, given["fidelity"], progress)
    _save(ds, given["data"], given["quiet"])
    _print_replay(ds, given["output_format"])


def _compare(
    run: Callable[..., xr.Dataset], checks: Callable[[xr.Dataset], Mapping[str, bool]],
    draw: Callable[[xr.Dataset], Figure], names: tuple[str, str], at: Mapping[str, float], given: Mapping[str, Any],
) -> None:  # fmt: skip
    """Run a study on each trace; print, draw and save what it gives, and fail where a check does not hold."""
    from kvsweep.studies.published import coding_trace, profiles, recorded_sessions

    _check(given, given["output"])
    found = profiles({"8B": given["profile_8b"], "32B": given["profile_32b"]})
    recorded = None if given["trace"] is not None else recorded_sessions()
    traces = [given["trace"]] if given["trace"] is not None else [None, *([recorded] if recorded else [])]
    rows, broken = [], []
    for path in traces:
        spec = coding_trace(path)
        ds = run(found, spec, tuple(range(given["seeds"])), given["fidelity"])
        several = f"_{spec.label}" if len(traces) > 1 and path is not None else ""
        _save(ds, _named(given["data"], several), given["quiet"])
        if given["output"] is not None:
            from kvsweep.report.plots.files import write_figure

            target = _named(given["output"], several)
            assert target is not None
            write_figure(draw(ds), target, given["force"] or target == given["output"])
            if not given["quiet"]:
                say(f"wrote {target}")
        rows += _rows(ds, names, at)
        broken += [f"{spec.label}: {what}" for what, holds in checks(ds).items() if not holds]
    _print_rows(rows, given["output_format"], [f"holds: {what}" for what in checks(ds)] if not broken else [])
    if broken:
        raise ResultError(f"does not hold: {'; '.join(broken)}")


def _check(given: Mapping[str, Any], output: Path | None) -> None:
    from kvsweep.results.files import check_writable

    for option, path, suffixes in (("--output", output, _FIGURES), ("--data", given["data"], (".nc",))):
        if path is None:
            continue
        if path.suffix not in suffixes:
            raise InputError(f"{option}: {path} has no known suffix; allowed: {', '.join(suffixes)}")
        check_writable(path, given["force"], option)


def _named(path: Path | None, label: str) -> Path | None:
    return None if path is None else path.with_name(f"{path.stem}{label}{path.suffix}")


def _save(ds: xr.Dataset, path: Path | None, quiet: bool) -> None:
    if path is None:
        return
    from kvsweep.results.files import write_netcdf

    write_netcdf(ds, path)
    if not quiet:
        say(f"wrote {path}")


def _rows(ds: xr.Dataset, names: tuple[str, str], at: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return what each model gave under each load beside the paper's figures, all relative changes."""
    from kvsweep.results.attrs import mapping_attr
    from kvsweep.results.studies import over_seeds

    said = mapping_attr(ds, "kvsweep_paper")
    rows = []
    for size in ds["profile"].values:
        for load in ds["load"].values:
            row: dict[str, Any] = {"trace": str(ds.attrs["kvsweep_trace"]), "model": str(size), "load": str(load)}
            for name in names:
                mean, half = over_seeds(ds[name].sel({"profile": size, "load": load, **at}))
                row[name] = float(mean)
                row[f"{name}_interval"] = float(half)
                for kind in ("simulated", "measured"):
                    row[f"{name}_paper_{kind}"] = said[name].get(kind, {}).get(str(size))
            rows.append(row)
    return rows


def _print_rows(rows: list[dict[str, Any]], form: str, notes: list[str]) -> None:
    if form == "json":
        click.echo(to_json(rows))
        return
    if form == "csv":
        click.echo(to_csv(rows))
        return
    names = [name for name in rows[0] if name.endswith("_change")]

    def cell(name: str) -> Callable[[dict[str, Any]], str]:
        return lambda row: "–" if row[name] is None else f"{100 * row[name]:+.2f}"

    columns = [Column(name, lambda row, name=name: row[name]) for name in ("trace", "model", "load")]  # type: ignore[misc]
    for name in names:
        title = name.replace("_change", "").replace("_", " ")
        columns += [Column(f"{title} [%]", cell(name)), Column("paper sim.", cell(f"{name}_paper_simulated"))]
        if any(row[f"{name}_paper_measured"] is not None for row in rows):
            columns.append(Column("measured", cell(f"{name}_paper_measured")))
    print_table(rows, columns)
    click.echo(
        "\nload: arrivals at the paper's rates, or at the trace's own pace; the paper's figures are of its rates."
    )
    for note in notes:
        click.echo(note)


def _print_replay(ds: xr.Dataset, form: str) -> None:
    rows = [
        {
            "case": str(case),
            **{f"{name}_mean": float(ds[name].sel(case=case, statistic="mean")) for name in ("ttft", "tpot", "e2e")},
            **{name: float(ds[name].sel(case=case)) for name in (
                "token_hit_ratio", "host_hit_ratio", "retrieving_ratio", "turnaround")},
        }
        for case in ds["case"].values
    ]  # fmt: skip
    if form != "table":
        click.echo(to_json(rows) if form == "json" else to_csv(rows))
        return
    titles = {
        "case": "case", "ttft_mean": "TTFT [s]", "tpot_mean": "TPOT [s]", "e2e_mean": "E2E [s]",
        "token_hit_ratio": "hit ratio", "host_hit_ratio": "from host", "retrieving_ratio": "retrieving",
        "turnaround": "turnaround",
    }  # fmt: skip
    print_table(rows, [Column(title, lambda row, name=name: row[name]) for name, title in titles.items()])  # type: ignore[misc]
    mean = float(ds["turnaround"].mean())
    click.echo(f"\nMean turnaround (simulated span over CPU time): {mean:,.0f}; the paper's simulator: 15.33")
    click.echo("from host: share of the reused tokens; retrieving: share of the requests.")


@contextlib.contextmanager
def _progress(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label="replaying", file=sys.stderr) as bar:

        def move(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield move
