"""``kvsweep study sources|cliff|capacity|tiers``: the pictures people expect of a KV hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.options import say
from kvsweep.cli.output import Column, print_table, to_csv, to_json
from kvsweep.errors import InputError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from kvsweep.cluster.config import ClusterConfig
    from kvsweep.cluster.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])
_PATH = click.Path(path_type=Path)
HOSTS = (0, 524_352, 2_097_152)
"""Host memory of the lines of the cliff [token]."""
GENERATED = {"generate": "qa", "sessions": 400, "label": "questions to 400 documents"}


def _options(command: F) -> F:
    for option in reversed((
        click.option("--profile", type=_PATH, metavar="FILE", show_default="an assumed roofline",
                     help="Profile of service models."),
        click.option("--fidelity", default="paper", show_default=True, metavar="NAME", help="Rules of the simulation."),
        click.option("-o", "--output", type=_PATH, metavar="FILE",
                     help="Draw the figure; its suffix chooses .pdf, .svg or .png."),
        click.option("--data", type=_PATH, metavar="FILE.nc", help="Write the Dataset, too."),
        click.option("--force", is_flag=True, help="Overwrite the files."),
        click.option("--format", "output_format", type=click.Choice(("table", "json", "csv")), default="table",
                     show_default=True, help="Form of what is printed."),
        click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr."),
    )):  # fmt: skip
        command = option(command)
    return command


def _workload(command: F) -> F:
    command = click.option("--config", type=_PATH, metavar="FILE", show_default="1P-1D of the paper",
                           help="Cluster file.")(command)  # fmt: skip
    return click.option("--trace", type=_PATH, metavar="FILE", show_default="generated questions",
                        help="Trace to play.")(command)  # fmt: skip


@click.command("sources")
@_options
def sources(**given: Any) -> None:
    """Time to first token of a prompt by its length, and by where its KV comes from."""
    from kvsweep.studies.pictures import sources as run

    profile = _begin(given)
    ds = run(profile, given["fidelity"])
    rows = [
        {"prompt_tokens": int(n), **{str(source): float(ds["ttft"].sel(source=source, prompt_tokens=n))
                                     for source in ds["source"].values}}
        for n in ds["prompt_tokens"].values
    ]  # fmt: skip

    def draw() -> Figure:
        from kvsweep.report.plots.pictures import sources_figure

        return sources_figure(ds)

    _end(ds, draw, rows, given)


@click.command("cliff")
@_options
def cliff(**given: Any) -> None:
    """Time to first token and throughput against the working set, with and without host memory."""
    from kvsweep.studies.pictures import cliff_study, with_working_sets
    from kvsweep.studies.run import sweep

    profile = _begin(given)
    study = cliff_study(profile, HOSTS, given["fidelity"])
    ds = sweep(study)
    device = study["cluster"]["workers"][0]["device_tokens"]
    shown = with_working_sets(ds)
    ttft = shown["ttft"].sel(statistic="mean")
    rows = [
        {"working_set_tokens": float(size), **{f"ttft_host_{host}": float(ttft.sel(working_set=size, host_tokens=host))
                                               for host in HOSTS}}
        for size in shown["working_set"].values
    ]  # fmt: skip

    def draw() -> Figure:
        from kvsweep.report.plots.pictures import cliff_figure

        return cliff_figure(shown, device)

    _end(ds, draw, rows, given)


@click.command("capacity")
@_options
@_workload
def capacity(**given: Any) -> None:
    """Hit ratio against host memory for every eviction policy, and what the next terabyte buys."""
    from kvsweep.studies.pictures import bounds, capacity_study, next_terabyte
    from kvsweep.studies.run import sweep
    from kvsweep.studies.traces import read_spec

    profile = _begin(given)
    config = _config(given, profile)
    trace = _trace(given)
    ds = sweep(capacity_study(profile, config, trace))
    room = [config.n_prefill * (config.prefill[0].device_tokens + int(host)) for host in ds["host_tokens"].values]
    limit = bounds(read_spec(trace, "--trace").make(Path(), 0), room)
    rows = next_terabyte(ds, profile.kv_bytes_per_token)
    for row, lru in zip(rows, limit.lru, strict=True):
        row["one_lru_of_all_room"] = lru

    def draw() -> Figure:
        from kvsweep.report.plots.pictures import capacity_figure

        return capacity_figure(ds, limit.lru, limit.infinite)

    _end(ds, draw, rows, given)
    if given["output_format"] == "table":
        click.echo(f"\nAn infinite cache reuses {limit.infinite:.2%} of the prompt tokens.")


@click.command("tiers")
@_options
@_workload
@click.option("--host-tokens", type=click.IntRange(1, 10**9), metavar="N", show_default="that of the cluster file",
              help="Host memory of the after.")  # fmt: skip
def tiers(host_tokens: int | None, **given: Any) -> None:
    """Before and after: device only, and with host memory."""
    from kvsweep.studies.pictures import capacity_study, tiers_table
    from kvsweep.studies.run import sweep

    if given["output"] is not None:
        raise InputError("--output: this study is a table; allowed: --format csv, or --data")
    profile = _begin(given)
    config = _config(given, profile)
    hosts = [0, host_tokens or config.prefill[0].host_tokens or HOSTS[1]]
    study = capacity_study(profile, config, _trace(given), hosts)
    study["axes"].pop("eviction")
    ds = sweep({**study, "title": "Device only, and with host memory"})
    _end(ds, None, tiers_table(ds), given)


def _begin(given: Mapping[str, Any]) -> Profile:
    """Check the files to write; return the profile."""
    from kvsweep.catalog import load
    from kvsweep.cluster.profile import read_profile
    from kvsweep.cluster.roofline import roofline
    from kvsweep.results.files import check_writable

    for option, path, suffixes in (
        ("--output", given["output"], (".pdf", ".svg", ".png")), ("--data", given["data"], (".nc",)),
    ):  # fmt: skip
        if path is not None:
            if path.suffix not in suffixes:
                raise InputError(f"{option}: {path} has no known suffix; allowed: {', '.join(suffixes)}")
            check_writable(path, given["force"], option)
    if given["profile"] is not None:
        return read_profile(given["profile"])
    if not given["quiet"]:
        say("profile: assumed, a roofline of qwen3-8b on 2 x h100-sxm")
    return roofline(load(), "qwen3-8b", "h100-sxm", 2)


def _config(given: Mapping[str, Any], profile: Profile) -> ClusterConfig:
    from kvsweep.cluster.config import read_config
    from kvsweep.studies.pictures import worker_cluster

    if given["config"] is not None:
        return read_config(given["config"])
    return worker_cluster(profile.tp, 262_144, 524_352, given["fidelity"])


def _trace(given: Mapping[str, Any]) -> Any:
    return GENERATED if given["trace"] is None else str(given["trace"])


def _end(
    ds: xr.Dataset, draw: Callable[[], Figure] | None, rows: list[dict[str, Any]], given: Mapping[str, Any]
) -> None:
    """Write the files and print the rows."""
    if given["data"] is not None:
        from kvsweep.results.files import write_netcdf

        write_netcdf(ds, given["data"])
    if given["output"] is not None and draw is not None:
        from kvsweep.report.plots.files import write_figure

        write_figure(draw(), given["output"], given["force"])
    for path in (given["data"], given["output"]):
        if path is not None and not given["quiet"]:
            say(f"wrote {path}")
    if given["output_format"] == "json":
        click.echo(to_json(rows))
    elif given["output_format"] == "csv":
        click.echo(to_csv(rows))
    else:
        print_table(rows, [Column(name.replace("_", " "), lambda row, name=name: row[name]) for name in rows[0]])  # type: ignore[misc]


@click.command("analytic")
@click.option("--trace", type=_PATH, metavar="FILE", show_default="generated questions", help="Trace to play.")
@click.option("--config", type=_PATH, metavar="FILE", show_default="1P-1D of the paper",
              help="Cluster file, with slo.ttft_seconds.")  # fmt: skip
@click.option("--profile", type=_PATH, metavar="FILE", show_default="an assumed roofline",
              help="Profile of service models.")  # fmt: skip
@click.option("--ttft", type=float, default=2.0, show_default=True, metavar="SECONDS",
              help="Target the policies decide by, where the cluster file has none.")  # fmt: skip
@click.option("--policy-file", "policy_files", type=_PATH, multiple=True, metavar="FILE", help="Policies of your own.")
@click.option("-o", "--output", type=_PATH, metavar="FILE.html", help="Write the page.")
@click.option("--data", type=_PATH, metavar="FILE.nc", help="Write the Dataset, too.")
@click.option("--force", is_flag=True, help="Overwrite the files.")
@click.option("--format", "output_format", type=click.Choice(("table", "json", "csv")), default="table",
              show_default=True, help="Form of what is printed.")  # fmt: skip
@click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr.")
def analytic(ttft: float, policy_files: tuple[Path, ...], **given: Any) -> None:
    """Compare what the analytic model expects of each restore-or-recompute policy with what the cluster makes of it."""
    from dataclasses import replace

    from kvsweep.cli.options import check_page
    from kvsweep.studies.analytic import beside
    from kvsweep.studies.traces import read_spec

    page = given.pop("output")
    if page is not None:
        check_page("--output", page, given["force"])
    if not 1e-6 <= ttft <= 1e6:
        raise InputError(f"--ttft: {ttft:g}; allowed: 1e-06 to 1e+06 s")
    given |= {"output": None, "fidelity": "paper"}
    profile = _begin(given)
    config = _config(given, profile)
    if config.slo.ttft_seconds is None:
        config = replace(config, slo=replace(config.slo, ttft_seconds=ttft))
    spec = read_spec(_trace(given), "--trace")
    ds = beside(spec.make(Path(), 0), config, profile, policy_files)
    if page is not None:
        from kvsweep.report.analytic_page import write_analytic

        write_analytic(ds, page)
        if not given["quiet"]:
            say(f"wrote {page}")
    mean = ds.mean("request")
    names = ("predicted_reassigned", "simulated_reassigned", "predicted_time", "predicted_serial_time",
             "simulated_time", "simulated_wait", "ttft", "mean_ttft")  # fmt: skip
    rows = [
        {"policy": str(policy), **{name: float(mean[name].sel(policy=policy)) for name in names}}
        for policy in ds["policy"].values
    ]
    _end(ds, None, rows, given)
