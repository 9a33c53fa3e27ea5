"""``kvsweep study``: the paper's studies as shipped examples, beside what the paper found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.output import Column
from kvsweep.cli.progress import progress
from kvsweep.cli.studies import options
from kvsweep.cli.studies.pictures import analytic, capacity, cliff, sources, tiers
from kvsweep.errors import ResultError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

BOTH = "both"
Draw = Callable[["xr.Dataset"], "Figure"]


@click.group("study", context_settings={"help_option_names": ["-h", "--help"]})
def study() -> None:
    """Run studies that are shipped: those of the paper, and the pictures people expect of a KV hierarchy.

    Of the paper: session affinity, idle TTL, and its replay matrix. Its traces and measurements are not public. Coding
    sessions are generated to fit the models' context; where KVSWEEP_DATA names a folder with recorded ones
    (weka/*.jsonl.gz), affinity and ttl run on those, too. Service models are assumed rooflines unless profiles are
    given. What the paper found stands beside what these workloads give, by its own rules and by those of the engine.
    """


for _picture in (sources, cliff, capacity, tiers, analytic):
    study.add_command(_picture)

_PAPER = (
    *options.trace_options("generated sessions", "Recorded coding sessions to run on instead."),
    click.option("--profile-8b", type=options.PATH, metavar="FILE",
                 help="Profile of the 8B model, or the name of a shipped one."),
    click.option("--profile-32b", type=options.PATH, metavar="FILE",
                 help="Profile of the 32B model, or the name of a shipped one."),
    click.option("--fidelity", type=click.Choice((BOTH, *options.FIDELITIES)), default=BOTH, show_default=True,
                 help="Rules of the simulation: the paper's, the engine's."),
)  # fmt: skip
_SEEDS = click.option("--seeds", type=click.IntRange(1, 100), default=5, show_default=True,
                      help="Replicates of what the trace leaves open; ± is the 95 % interval of the mean.")  # fmt: skip


@study.command("affinity")
@options.with_options(*_PAPER, _SEEDS, options.DRAWING)
def affinity(**given: Any) -> None:
    """Compare session affinity with round robin on 3P-1D: prefill saved, latency, spread over sessions."""
    from kvsweep.studies.shipped import affinity as module

    def draw(ds: xr.Dataset) -> Figure:
        from kvsweep.report.plots.studies.paper_studies import affinity_figure

        return affinity_figure(ds)

    _compare(module.affinity, module.checks, draw, module.CHANGES, {}, given)


@study.command("ttl")
@options.with_options(*_PAPER, _SEEDS, options.DRAWING)
def ttl(**given: Any) -> None:
    """Compare idle TTLs of 1, 10, 60 and 300 s with LRU alone on 3P-1D: KV held over time, time to first token."""
    from kvsweep.studies.shipped import retention as module

    def draw(ds: xr.Dataset) -> Figure:
        from kvsweep.report.plots.studies.paper_studies import retention_figure

        return retention_figure(ds)

    _compare(module.retention, module.checks, draw, module.CHANGES, module.AT, given)


@study.command("replay")
@options.with_options(
    *_PAPER,
    click.option("--seed", type=click.IntRange(0, 2**31 - 1), default=0, show_default=True,
                 help="Seed of the workloads."),
    options.DRAWING,
)  # fmt: skip
def replay(seed: int, **given: Any) -> None:
    """Replay the paper's 26 cases of model, topology, workload and rate on stand-ins for its workloads."""
    from kvsweep.studies.shipped.published import coding_trace, profiles
    from kvsweep.studies.shipped.replay import replay as run
    from kvsweep.studies.shipped.replay import workloads

    options.check_files(given, given["output"])
    found = profiles({"8B": given["profile_8b"], "32B": given["profile_32b"]})
    coding = coding_trace(given["trace"], options.taken_trace(given))
    options.tell_trace(coding, given)
    traces = workloads(seed, coding)
    with progress("replaying", given["quiet"]) as move:
        ds = run(found, traces, _fidelities(given), move)

    def draw() -> Figure:
        from kvsweep.report.plots.studies.cases import replay_figure

        return replay_figure(ds)

    options.write_data(ds, given["data"], given)
    options.write_drawing(draw, given["output"], given["force"], given)
    _print_replay(ds, given["output_format"])


def _fidelities(given: Mapping[str, Any]) -> tuple[str, ...]:
    from kvsweep.studies.shipped.published import FIDELITIES

    return FIDELITIES if given["fidelity"] == BOTH else (given["fidelity"],)


def _compare(
    run: Callable[..., xr.Dataset], checks: Callable[[xr.Dataset], Mapping[str, bool]], draw: Draw,
    names: Sequence[str], at: Mapping[str, float], given: dict[str, Any],
) -> None:  # fmt: skip
    """Run a study on each trace; print, draw and save what it gives, and fail where a check does not hold."""
    from kvsweep.studies.shipped.beside import rows_of
    from kvsweep.studies.shipped.published import coding_trace, profiles, recorded_sessions

    told = options.taken_trace(given)
    recorded = None if given["trace"] is not None else recorded_sessions()
    traces = [given["trace"]] if given["trace"] is not None else [None, *([recorded] if recorded else [])]
    labelled = [coding_trace(path, told) for path in traces]
    specs = {f"_{spec.label}" if number else "": spec for number, spec in enumerate(labelled)}
    options.check_files(given, given["output"], list(specs))
    found = profiles({"8B": given["profile_8b"], "32B": given["profile_32b"]})
    rows: list[dict[str, Any]] = []
    verdicts: dict[str, bool] = {}
    for label, spec in specs.items():
        options.tell_trace(spec, given)
        with progress(f"simulating, {spec.label}", given["quiet"]) as move:
            ds = run(found, spec, tuple(range(given["seeds"])), _fidelities(given), progress=move)
        options.write_data(ds, given["data"] and options.named(given["data"], label), given)
        target = given["output"] and options.named(given["output"], label)
        options.write_drawing(lambda ds=ds: draw(ds), target, given["force"], given)  # type: ignore[misc]
        rows += rows_of(ds, names, at)
        verdicts |= {f"{spec.label}: {what}": holds for what, holds in checks(ds).items()}
    notes = ["load: arrivals at the paper's rates, or at the trace's own pace; the paper's figures are of its rates.",
             *(f"holds: {what}" for what, holds in verdicts.items() if holds)]  # fmt: skip
    options.print_rows(rows, _columns(rows), given["output_format"], notes)
    broken = [what for what, holds in verdicts.items() if not holds]
    if broken:
        raise ResultError(f"does not hold: {'; '.join(broken)}")


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    columns = options.titled({name: name for name in ("trace", "model", "load", "fidelity")})
    for name in (name for name in rows[0] if name.endswith("_change")):
        columns.append(Column(f"{name.removesuffix('_change')} [%]", _cell(name, f"{name}_interval")))
        columns.append(Column("paper sim.", _cell(f"{name}_paper_simulated")))
        if any(row[f"{name}_paper_measured"] is not None for row in rows):
            columns.append(Column("measured", _cell(f"{name}_paper_measured")))
    return columns


def _cell(name: str, half: str = "") -> Callable[[Mapping[str, Any]], str]:
    """Return what shows a relative change [%], and half its interval where there is one."""

    def cell(row: Mapping[str, Any]) -> str:
        spread = f" ± {100 * row[half]:.2g}" if half and row[half] == row[half] else ""
        return "–" if row[name] is None else f"{100 * row[name]:+.2f}{spread}"

    return cell


def _print_replay(ds: xr.Dataset, form: str) -> None:
    from kvsweep.studies.shipped.published import DIFFER
    from kvsweep.studies.shipped.replay import TURNAROUND, rows_of, shown

    rows = rows_of(ds)
    titles = {
        "case": "case", "fidelity": "fidelity", "ttft_mean": "TTFT [s]", "tpot_mean": "TPOT [s]",
        "e2e_mean": "E2E [s]", "token_hit_ratio": "hit ratio", "host_hit_ratio": "from host",
        "retrieving_ratio": "retrieving", "turnaround": "turnaround",
    }  # fmt: skip
    notes = ["from host: share of the reused tokens; retrieving: share of the requests."]
    if ds.sizes["fidelity"] > 1:
        notes.append(f"Fidelity engine where a latency or the hit ratio differs by more than {DIFFER:.0%}.")
    for fidelity in ds["fidelity"].values:
        mean = float(ds["turnaround"].sel(fidelity=fidelity).mean())
        notes.append(f"Mean turnaround (simulated span over CPU time), {fidelity}: {mean:,.0f}; "
                     f"the paper's simulator: {TURNAROUND}.")  # fmt: skip
    options.print_rows(rows if form != "table" else shown(rows), options.titled(titles), form, notes)
