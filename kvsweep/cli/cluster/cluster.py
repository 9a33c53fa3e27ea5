"""``kvsweep cluster``: set up, run and sum up simulated clusters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kvsweep.cli.cluster.plan import plan
from kvsweep.cli.cluster.sweep import sweep
from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import POLICY_FILES, Files, completing, hardware_option, say
from kvsweep.cli.output import Column, print_table, to_json
from kvsweep.cli.progress import progress
from kvsweep.cli.slo import limits_of
from kvsweep.cli.trace_options import ALIAS, taken_out, tell_notes, told_options
from kvsweep.errors import InputError, ResultError
from kvsweep.results.files import replacing

_PATH = click.Path(path_type=Path)


@click.group("cluster", context_settings={"help_option_names": ["-h", "--help"]})
def cluster() -> None:
    """Simulate prefill-decode clusters with hierarchical KV caches, request by request.

    `init` writes a cluster file and a profile, `run` plays a trace on them, `summary` tells what became of it, `sweep`
    does so over the product of any axes, `plan` finds the fewest workers that meet an SLO.
    """


def _suffixed(*suffixes: str) -> Callable[[click.Context, click.Parameter, Path | None], Path | None]:
    def callback(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
        if path is not None and path.suffix not in suffixes:
            raise InputError(f"{param.opts[0]}: {path} has no known suffix; allowed: {', '.join(suffixes)}")
        return path

    return callback


def _presets() -> list[str]:
    from kvsweep.cluster.inputs.presets import PRESETS, VLLM

    return [*PRESETS, VLLM]


def _keys(kind: str) -> list[str]:
    from kvsweep.catalog import load

    return list(load().entries(kind))


@cluster.command("init")
@click.option("--preset", "name", default="qwen3-8b-1p1d", show_default=True, metavar="NAME",
              shell_complete=completing(_presets),
              help="Set-up of the paper: qwen3-8b or qwen3-32b, -1p1d or -3p1d; or vllm.")  # fmt: skip
@click.option("--fidelity", type=click.Choice(("paper", "engine")), default="engine", show_default=True,
              help="Rules of the engine, or of the paper, whose set-ups these are; not of vllm.")  # fmt: skip
@click.option("--model", metavar="KEY", show_default="the preset's", help="Model of the profile.",
              shell_complete=completing(lambda: _keys("models")))  # fmt: skip
@click.option("--gpu", metavar="KEY", show_default="the preset's", help="GPU of the profile.",
              shell_complete=completing(lambda: _keys("gpus")))  # fmt: skip
@click.option("--tp", type=click.IntRange(1, 1024), show_default="the preset's", help="GPUs of a worker.")
@click.option("--link", metavar="KEY", show_default="rdma-400g", help="Link of the handoff.",
              shell_complete=completing(lambda: _keys("links")))  # fmt: skip
@hardware_option
@click.option("--output", "-o", type=_PATH, metavar="FILE", default=Path("cluster.yaml"), show_default=True,
              callback=_suffixed(".yaml", ".yml"), help="Cluster file to write.")  # fmt: skip
@click.option("--profile", type=_PATH, metavar="FILE", default=Path("profile.yaml"), show_default=True,
              callback=_suffixed(".yaml", ".yml"), help="Profile to write.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the files.")
def init(name: str, output: Path, profile: Path, force: bool, fidelity: str, **given: Any) -> None:
    """Write a commented cluster file, and an assumed profile: a roofline of the catalog's figures.

    For vLLM workers the profile is one of the step profiles that come with kvsweep, by GPU and model.
    """
    from kvsweep.cluster.inputs.presets import VLLM
    from kvsweep.cluster.inputs.profiles import shipped_files

    check_outputs({"--output": output, "--profile": profile}, force, shipped_files())
    if name == VLLM:
        texts, about = _vllm_files(fidelity, given)
    else:
        texts, about = _preset_files(name, fidelity, given)
    for path, text in zip((output, profile), texts, strict=True):
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
        say(f"wrote {path}")
    say(f"{profile} is {about}")


def _preset_files(name: str, fidelity: str, given: dict[str, Any]) -> tuple[tuple[str, str], str]:
    """Return cluster file and profile of a set-up of the paper, and what the profile is."""
    from kvsweep.catalog import load
    from kvsweep.cluster.inputs.presets import cluster_file, preset, profile_file
    from kvsweep.cluster.inputs.roofline import roofline
    from kvsweep.costs.memory import visible_bytes, what_fits

    setup = preset(name)
    model, gpu, tp = (given[key] or getattr(setup, key) for key in ("model", "gpu", "tp"))
    catalog = load(given["hardware"])
    service = roofline(catalog, model, gpu, tp, given["link"] or "rdma-400g")
    fit = what_fits(catalog.part("models", model, "--model"), visible_bytes(catalog.gpus[gpu]), tp)
    say(f"{tp} x {gpu} hold {fit.line}; the file has the paper's device_tokens")
    texts = cluster_file(name, setup.n_prefill, tp, fidelity), profile_file(service)
    return texts, f"assumed, not measured: a roofline of {model} on {tp} x {gpu}"


def _vllm_files(fidelity: str, given: dict[str, Any]) -> tuple[tuple[str, str], str]:
    """Return a file of vLLM workers and a step profile that comes with kvsweep, and what that is."""
    from kvsweep.catalog import load
    from kvsweep.cluster.inputs.presets import VLLM_GPU, VLLM_MODEL, vllm_file
    from kvsweep.cluster.inputs.profiles import step_profile_of
    from kvsweep.cluster.inputs.vllm_defaults import assumed_fit
    from kvsweep.costs.memory import visible_bytes

    if fidelity != "engine":
        raise InputError("--fidelity: paper; vllm workers have one; allowed: engine")
    if given["link"] is not None:
        raise InputError(f"--link: {given['link']}; vllm workers hand nothing off; allowed: without it")
    gpu = given["gpu"] or VLLM_GPU
    path, profile = step_profile_of(gpu, given["model"] or VLLM_MODEL, given["tp"])
    known = load(given["hardware"]).gpus.get(gpu)
    memory = visible_bytes(known) if known is not None else None
    text = vllm_file(profile, memory)
    say(f"a worker holds {assumed_fit(profile, profile.memory_bytes or memory).line}")
    return (text, path.read_text(encoding="utf-8")), f"{path.stem}, which comes with kvsweep: {profile.note}"


@cluster.command("run")
@click.argument("trace", type=_PATH, metavar="TRACE")
@click.option("--config", type=_PATH, metavar="FILE", required=True, help="Cluster file (kvsweep cluster init).")
@click.option("--profile", type=_PATH, metavar="FILE", required=True,
              help="Profile, of vllm workers a step profile, or the name of a shipped one.")  # fmt: skip
@click.option("--output", "-o", type=_PATH, metavar="FILE", required=True, callback=_suffixed(".nc"),
              help="NetCDF file of the result.")  # fmt: skip
@click.option("--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE", envvar=POLICY_FILES,
              show_envvar=True,
              help="Python file with a policy of your own (retrieval, gateway, eviction, retention).")  # fmt: skip
@click.option("--events", type=_PATH, metavar="FILE", callback=_suffixed(".nc", ".json"),
              help="Write the event log too: .nc, or .json for ui.perfetto.dev.")  # fmt: skip
@click.option(
    "--check",
    is_flag=True,
    help="Assert the rules of conservation after every instant, of large runs after every few; slow.",
)
@told_options(ALIAS)
@click.option("--compile/--no-compile", default=None,
              help="Compile what is not compiled yet, or never.  [default: if the run would take longer]")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr.")
def run(trace: Path, config: Path, profile: Path, output: Path, quiet: bool, **options: Any) -> None:
    """Play TRACE on a cluster and write what became of each request.

    The trace is read as by `kvsweep trace`; its blocks are brought to the cluster's pages.
    """
    from kvsweep.cluster.inputs.profiles import read_any_profile
    from kvsweep.yamlfile import read_yaml_file

    force, events, told = options.pop("force"), options.pop("events"), taken_out(options)
    check_outputs({"--output": output, "--events": events}, force)
    stated, service = read_yaml_file(config), read_any_profile(profile)
    unused = _without_effect(stated, str(config))
    from kvsweep.cluster.outcome.dataset import dataset
    from kvsweep.cluster.outcome.events import write_events
    from kvsweep.cluster.simulation.run import finish
    from kvsweep.results.netcdf import write_netcdf
    from kvsweep.trace.read import read_trace

    requests = read_trace(trace, told)
    if not quiet:
        if service.kind == "assumed":
            say(f"{profile}: assumed, not measured")
        for line in unused:
            say(f"{config}: {line}")
    with progress("compiling the simulator, functions", quiet) as move:
        finished = finish(requests, stated, service, progress=move, **options)
    if not quiet:
        for line in finished.unused[len(unused) :]:
            say(f"{config}: {line}")
        tell_notes(trace, finished.trace)
        if not finished.is_compiled and options["compile"] is None:
            say("answered by the plain source of the simulator, faster than compiling it (kvsweep warm does, for good)")
    ds = dataset(finished)
    write_netcdf(ds, output)
    if events is not None:
        write_events(finished, events)
    if not quiet:
        say(f"wrote {output}: {ds.sizes['request']} requests, {int(ds['rejected'].sum())} of them rejected")
    if bool((ds["rejected"] != 0).all()):
        raise ResultError(
            f"all {ds.sizes['request']} requests were rejected: each is longer than the model's context, or than what "
            "the KV memory of a worker holds"
        )


def _without_effect(stated: dict[str, Any], where: str) -> list[str]:
    """Return a line for what a cluster file states without effect."""
    from kvsweep.cluster.inputs.config import parse_config
    from kvsweep.cluster.inputs.notes import notes_of

    return notes_of(parse_config(stated, where), stated)


def _limits(ctx: click.Context, param: click.Parameter, text: str | None) -> dict[str, float]:
    return limits_of(text)


@cluster.command("summary")
@click.argument("file", type=_PATH, metavar="FILE")
@click.option("--slo", metavar="LIMITS", callback=_limits, show_default="that of the cluster file",
              help="Limits goodput counts by, as in ttft=2s,tpot=50ms,e2e=30s.")  # fmt: skip
@click.option("--format", "output_format", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="Form of the result.")  # fmt: skip
def summary(file: Path, slo: dict[str, float], output_format: str) -> None:
    """Sum up a run: latencies, reuse, utilisation, and what its slow requests waited for."""
    from kvsweep.cluster.outcome.summary import objectives, summarize
    from kvsweep.results.netcdf import open_dataset

    with open_dataset(file) as ds:
        try:
            found = summarize(ds, slo or objectives(ds))
        except InputError as error:
            raise InputError(f"{file}: {error}") from error
        about = {name: ds.attrs.get(f"kvsweep_{name}", "") for name in ("fidelity", "profile_kind", "model")}
    if output_format == "json":
        click.echo(to_json(found))
    else:
        _print_summary(found, about)


def _print_summary(found: dict[str, Any], about: dict[str, Any]) -> None:
    from kvsweep.cluster.outcome.summary import resource

    counts = f"{found['requests']} requests, {found['rejected']} rejected"
    if context := found.get("context"):
        done = {"refuse": "refused", "cut": "cut to it", "serve": "served"}[context["beyond"]]
        counts += f"; {context['requests']} beyond the context of {context['tokens']} tokens: {done}"
    click.echo(f"{counts}; {found['simulated_seconds']:.1f} s simulated")
    model = about["model"] or "model not named"
    kind = f"fidelity {about['fidelity']}, profile {about['profile_kind']} ({model})"
    click.echo(f"{kind}, {found['extrapolated_ratio']:.1%} of the operations extrapolated")
    for what in found.get("foresight", []):
        click.echo(f"known beforehand: {what}")
    click.echo()
    rows = [(name, found[f"{name}_seconds"]) for name in ("ttft", "tpot", "e2e")]
    quantiles = ("mean", "p50", "p90", "p95", "p99")
    print_table(rows, [Column("latency [s]", lambda row: row[0].upper()), *(_quantile(name) for name in quantiles)])
    click.echo()
    hits = found["hit_tokens"]
    lines: list[tuple[str, object]] = [
        ("hit ratio", found["hit_ratio"]),
        *((f"hit tokens {tier}", count) for tier, count in hits.items()),
        ("uncached tokens", found["uncached_tokens"]),
        *((f"utilization {worker}", share) for worker, share in found["utilization"].items()),
    ]
    if "retention_seconds" in found:
        ttl = found["retention_seconds"]
        lines.append(("time to live chosen [s]", "for ever" if ttl is None else ttl))
    if "goodput" in found:
        lines.append(("goodput [requests/s]", found["goodput"]))
    print_table(lines, [Column("figure", lambda row: row[0]), Column("value", lambda row: row[1])])
    click.echo()
    click.echo(
        f"The slowest twentieth by TTFT waited longest for: {resource(found['bottleneck'], found['utilization'])}"
    )


def _quantile(name: str) -> Column:
    return Column(name, lambda row: row[1][name])


cluster.add_command(sweep)
cluster.add_command(plan)
