"""``kvsweep study sources|cliff|capacity|tiers``: the pictures people expect of a KV hierarchy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.cluster.sweep import require_all_cells
from kvsweep.cli.files import check_outputs, check_page
from kvsweep.cli.options import POLICY_FILES, Files, say
from kvsweep.cli.output import LONGEST_NAME, Column, shortened
from kvsweep.cli.progress import progress
from kvsweep.cli.studies import options
from kvsweep.errors import InputError

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from kvsweep.catalog.specs import Disk, Link
    from kvsweep.cluster.inputs.config import ClusterConfig
    from kvsweep.cluster.inputs.service_profile import Profile
    from kvsweep.studies.traces import TraceSpec

HOSTS = (0, 524_352, 2_097_152)
"""Host memory of the lines of the cliff [token]."""
GENERATED = {"generate": "qa", "sessions": 400, "label": "questions to 400 documents"}
FIDELITY = "engine"

_PROFILE = click.option("--profile", type=options.PATH, metavar="FILE", show_default="an assumed roofline",
                        help="Profile of service models, or the name of a shipped one.")  # fmt: skip
_FIDELITY = click.option("--fidelity", type=click.Choice(options.FIDELITIES), show_default=FIDELITY,
                         help="Rules of the simulation; a cluster file states them itself.")  # fmt: skip
_CONFIG = click.option("--config", type=options.PATH, metavar="FILE", show_default="1P-1D of the paper",
                       help="Cluster file.")  # fmt: skip
_TRACE = options.trace_options("generated questions", "Trace to play.")
_DISK = click.option("--disk", metavar="KEY", default="samsung-pm1743-7.68t", show_default=True,
                     help="Drive of the tier behind the host, a key of `kvsweep catalog disks`.")  # fmt: skip
_NETWORK = click.option("--network", metavar="KEY", default="rdma-400g", show_default=True,
                        help="Way to other machines, a key of `kvsweep catalog links`.")  # fmt: skip


@click.command("sources")
@options.with_options(_PROFILE, _FIDELITY, _DISK, _NETWORK, options.DRAWING)
def sources(**given: Any) -> None:
    """Time to first token of a prompt by its length, and by where its KV comes from."""
    from kvsweep.studies.shipped.pictures import sources as run

    profile = _begin(given)
    ds = run(profile, *_parts(given), given["fidelity"] or FIDELITY)
    names = [str(source) for source in ds["source"].values]
    rows = [
        {"prompt_tokens": int(n), **{name: float(ds["ttft"].sel(source=name, prompt_tokens=n)) for name in names},
         **{f"{name}_handoff": float(ds["handoff"].sel(source=name, prompt_tokens=n)) for name in names}}
        for n in ds["prompt_tokens"].values
    ]  # fmt: skip

    def draw() -> Figure:
        from kvsweep.report.plots.studies.pictures import sources_figure

        return sources_figure(ds)

    options.write_data(ds, given["data"], given)
    options.write_drawing(draw, given["output"], given["force"], given)
    titles = {"prompt_tokens": "prompt [token]", **{name: f"{name} [s]" for name in names}}
    shares = [Column(f"{name} handoff", _share_of(f"{name}_handoff", name)) for name in ("recompute", "device")]
    lost = "–: copies of this prompt take longer than the simulator's clock holds."
    notes = ["handoff: share of it between the end of the prefill and the arrival of the KV at the decode worker."]
    notes += [lost] if bool(ds["ttft"].isnull().any()) else []
    options.print_rows(rows, options.titled(titles) + shares, given["output_format"], notes)


def _share_of(part: str, whole: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[part] / row[whole]:.1%}"


@click.command("cliff")
@options.with_options(_PROFILE, _FIDELITY, options.DRAWING)
def cliff(**given: Any) -> None:
    """Time to first token and throughput against the working set, with and without host memory."""
    from kvsweep.studies.shipped.pictures import cliff_study, with_working_sets

    profile = _begin(given)
    study = cliff_study(profile, HOSTS, given["fidelity"] or FIDELITY)
    ds = _swept(study, given)
    device = study["cluster"]["workers"][0]["device_tokens"]
    shown = with_working_sets(ds)
    figures = {"ttft": shown["ttft"].sel(statistic="mean"), "tokens_per_second": shown["tokens_per_second"]}
    rows = [
        {"working_set_tokens": float(size), **{
            f"{name}_host_{host}": float(array.sel(working_set=size, host_tokens=host))
            for name, array in figures.items() for host in HOSTS
        }}
        for size in shown["working_set"].values
    ]  # fmt: skip

    def draw() -> Figure:
        from kvsweep.report.plots.studies.pictures import cliff_figure

        return cliff_figure(shown, device)

    options.write_data(ds, given["data"], given)
    options.write_drawing(draw, given["output"], given["force"], given)
    titles = {"working_set_tokens": "working set [token]"}
    titles |= {f"ttft_host_{host}": f"TTFT [s], {_host(host)}" for host in HOSTS}
    titles |= {f"tokens_per_second_host_{host}": f"tokens/s, {_host(host)}" for host in HOSTS}
    options.print_rows(rows, options.titled(titles), given["output_format"], [])
    require_all_cells(ds)


def _host(tokens: int) -> str:
    return f"host {tokens * 1e-6:.2g}M" if tokens else "no host"


@click.command("capacity")
@options.with_options(*_TRACE, _CONFIG, _PROFILE, _FIDELITY, options.DRAWING)
def capacity(**given: Any) -> None:
    """Hit ratio against host memory for every eviction policy, and what the next terabyte buys."""
    from kvsweep.studies.shipped.pictures import bounds, capacity_study, next_terabyte

    trace, spec = _trace(given)
    profile = _begin(given)
    config = _config(given, profile)
    options.tell_trace(spec, given)
    ds = _swept(capacity_study(profile, config, trace), given)
    room = [config.n_prefill * (config.prefill[0].device_tokens + int(host)) for host in ds["host_tokens"].values]
    limit = bounds(spec.make(Path(), 0), room)
    rows = next_terabyte(ds, profile.kv_bytes_per_token)
    for row, lru in zip(rows, limit.lru, strict=True):
        row["one_lru_of_all_room"] = lru

    def draw() -> Figure:
        from kvsweep.report.plots.studies.pictures import capacity_figure

        return capacity_figure(ds, limit.lru, limit.infinite, profile.kv_bytes_per_token)

    options.write_data(ds, given["data"], given)
    options.write_drawing(draw, given["output"], given["force"], given)
    titles = {
        "host_tokens": "host [token]", "host_terabytes": "host [TB]", "token_hit_ratio": "hit ratio",
        "one_lru_of_all_room": "one LRU", "ttft_mean": "TTFT [s]", "hit_ratio_per_terabyte": "hit ratio [1/TB]",
        "ttft_per_terabyte": "TTFT [s/TB]", "prefill_utilization_per_terabyte": "prefill busy [1/TB]",
    }  # fmt: skip
    notes = [
        f"Eviction lru. An infinite cache reuses {limit.infinite:.2%} of the prompt tokens; one LRU: of the room of",
        "all workers together. What a further TB a worker buys is the slope from the row before.",
    ]
    options.print_rows(rows, options.titled(titles), given["output_format"], notes)
    require_all_cells(ds)


@click.command("tiers")
@options.with_options(
    *_TRACE, _CONFIG, _PROFILE, _FIDELITY, _DISK, _NETWORK,
    click.option("--host-tokens", type=click.IntRange(1, 10**9), metavar="N", show_default="that of the cluster file",
                 help="Host memory of the after."),
    click.option("--drives", type=click.IntRange(1, 10**6), metavar="N", show_default="one a worker that prefills",
                 help="Drives of the shared tier."),
    click.option("--write-amplification", type=float, default=1.0, show_default=True, metavar="FACTOR",
                 help="Bytes a drive writes for each it is given; KV comes in large sequential writes."),
    options.DRAWING,
)  # fmt: skip
def tiers(host_tokens: int | None, drives: int | None, write_amplification: float, **given: Any) -> None:
    """Before and after: device only, with host memory, and with a tier that all hosts share (L3)."""
    from kvsweep.studies.shipped.pictures import tiers_study, tiers_table, with_wear
    from kvsweep.studies.shipped.shared_tier import Store

    if not 1.0 <= write_amplification <= 1e3:
        raise InputError(f"--write-amplification: {write_amplification:g}; allowed: 1 to 1000")
    trace, spec = _trace(given)
    profile = _begin(given)
    config = _config(given, profile)
    host = host_tokens or config.prefill[0].host_tokens or HOSTS[1]
    disk, link = _parts(given)
    shares = config.fidelity == "engine" and config.write.policy.startswith("write_through")
    store = Store(disk, link, drives or config.n_prefill, config.n_prefill) if shares else None
    study = tiers_study(profile, config, trace, host, store)
    if not given["quiet"]:
        for note in _idle(study["cluster"], host):
            say(note)
    options.tell_trace(spec, given)
    ds = _swept(study, given)
    notes = ["A byte moved is one brought into a tier or to a decode worker."]
    if store is None:
        notes.append(f"No shared tier: fidelity {config.fidelity}, write policy {config.write.policy}; it takes engine "
                     "and one that writes through.")  # fmt: skip
    else:
        ds = with_wear(ds, store, write_amplification)
        pool = int(ds["l3_tokens"].values[-1])
        notes += [
            f"Shared: {store.name}, {store.capacity_bytes / 1e12:.4g} TB, {pool / 1e6:.4g}M tokens of KV, stop policy "
            f"{study['cluster']['l3']['stop_policy']}.",
            "Drive writes and lifetime: as if every day were like this trace from empty caches, "
            f"write amplification {write_amplification:g}.",
        ]
    rows = tiers_table(ds)

    def draw() -> Figure:
        from kvsweep.report.plots.studies.cases import tiers_figure

        return tiers_figure(ds, rows)

    options.write_data(ds, given["data"], given)
    options.write_drawing(draw, given["output"], given["force"], given)
    titles = {
        "tiers": "tiers", **{f"hit_share_{tier}": f"hits {tier.upper()}" for tier in ("l1", "l2", "l3")},
        **{f"ttft_{point}": f"TTFT {point} [s]" for point in ("mean", "p50", "p95", "p99")},
        "tokens_per_second": "tokens/s",
    }  # fmt: skip
    wear = {"drive_writes_per_day": "writes/day", "lifetime_days": "lasts [day]"}
    columns = options.titled(titles) + [Column("moved [GB]", lambda row: row["bytes_moved"] / 1e9)]
    columns += options.titled({name: title for name, title in wear.items() if name in rows[0]})
    options.print_rows(rows, columns, given["output_format"], notes)
    require_all_cells(ds)


def _idle(cluster: Mapping[str, Any], host_tokens: int) -> list[str]:
    """Return a line for host memory and for a shared tier, of a cluster file with both, where it has no effect."""
    from kvsweep.cluster.inputs.config import parse_config
    from kvsweep.cluster.inputs.notes import notes_of

    with_host = {"host_tokens": host_tokens}
    groups = [group | with_host if "host_tokens" in group else group for group in cluster["workers"]]
    stated = {"workers": groups, **({"l3": {}} if "l3" in cluster else {})}
    return notes_of(parse_config({**cluster, "workers": groups}, "cluster"), stated)


def _swept(study: Mapping[str, Any], given: Mapping[str, Any]) -> xr.Dataset:
    """Return the figures of a study, telling how far it is."""
    from kvsweep.studies.running.run import Show, run_study
    from kvsweep.studies.study import parse_study

    with progress("simulating", given["quiet"]) as move:
        return run_study(parse_study(study, "study"), None, show=Show(move))


def _begin(given: Mapping[str, Any]) -> Profile:
    """Check the files to write; return the profile."""
    from kvsweep.catalog import load
    from kvsweep.cluster.inputs.profiles import find_profile
    from kvsweep.cluster.inputs.roofline import roofline
    from kvsweep.cluster.inputs.service_profile import read_profile

    options.check_files(given, given["output"])
    if given["profile"] is not None:
        return read_profile(find_profile(given["profile"]))
    if not given["quiet"]:
        say("profile: assumed, a roofline of qwen3-8b on 2 x h100-sxm")
    return roofline(load(), "qwen3-8b", "h100-sxm", 2)


def _parts(given: Mapping[str, Any]) -> tuple[Disk, Link]:
    """Return drive and network of what lies behind the host."""
    from kvsweep.catalog import load

    catalog = load()
    return catalog.part("disks", given["disk"], "--disk"), catalog.part("links", given["network"], "--network")


def _config(given: Mapping[str, Any], profile: Profile) -> ClusterConfig:
    from kvsweep.cluster.inputs.config import read_config
    from kvsweep.studies.shipped.pictures import worker_cluster

    if given["config"] is None:
        return worker_cluster(profile.tp, 262_144, 524_352, given["fidelity"] or FIDELITY)
    if given["fidelity"] is not None:
        raise InputError(f"--fidelity: {given['fidelity']}; allowed: without --config, whose file states it")
    config = read_config(given["config"])
    if config.vllm:
        raise InputError(f"{given['config']}: workers: role: vllm: no picture is made of these; allowed: prefill, "
                         "decode, colocated (kvsweep cluster sweep has the axes n_vllm and vllm.…)")  # fmt: skip
    return config


def _trace(given: dict[str, Any]) -> tuple[Any, TraceSpec]:
    """Return the trace as a study states it, and its description."""
    from kvsweep.studies.traces import read_spec

    told = options.taken_trace(given)
    stated = GENERATED if given["trace"] is None else {"file": str(given["trace"]), **told}
    return stated, read_spec(stated, "--trace")


@click.command("analytic")
@options.with_options(
    *_TRACE, _CONFIG, _PROFILE, _FIDELITY,
    click.option("--ttft", type=float, default=2.0, show_default=True, metavar="SECONDS",
                 help="Target the policies decide by, where the cluster file has none."),
    click.option("--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE",
                 envvar=POLICY_FILES, show_envvar=True, help="Policies of your own; repeatable."),
    click.option("-o", "--output", "page", type=options.PATH, metavar="FILE.html", help="Write the page."),
)  # fmt: skip
def analytic(ttft: float, policy_files: Sequence[Path], page: Path | None, **given: Any) -> None:
    """Compare what the analytic model expects of each restore-or-recompute policy with what the cluster makes of it."""
    from dataclasses import replace

    from kvsweep.studies.shipped.analytic import beside

    if page is not None:
        check_page("--output", page)
        check_outputs({"--output": page, "--data": given["data"]}, given["force"])
    if not 1e-6 <= ttft <= 1e6:
        raise InputError(f"--ttft: {ttft:g}; allowed: 1e-06 to 1e+06 s")
    _, spec = _trace(given)
    profile = _begin({**given, "output": None})
    config = _config(given, profile)
    if config.slo.ttft_seconds is None:
        config = replace(config, slo=replace(config.slo, ttft_seconds=ttft))
    options.tell_trace(spec, given)
    ds = beside(spec.make(Path(), 0), config, profile, policy_files)
    if page is not None:
        from kvsweep.report.studies.analytic_page import write_analytic

        write_analytic(ds, page)
        if not given["quiet"]:
            say(f"wrote {page}")
    options.write_data(ds, given["data"], given)
    mean = ds.mean("request")
    titles = {
        "predicted_reassigned": "k predicted", "simulated_reassigned": "k simulated",
        "predicted_time": "predicted [s]", "predicted_serial_time": "serial [s]", "simulated_time": "simulated [s]",
        "simulated_wait": "waited [s]", "ttft": "TTFT [s]", "mean_ttft": "TTFT of all [s]",
    }  # fmt: skip
    rows = [
        {
            "policy": str(policy),
            "label": shortened(str(label), LONGEST_NAME),
            **{name: float(mean[name].sel(policy=policy)) for name in titles},
        }
        for policy, label in zip(ds["policy"].values, ds["policy_label"].values, strict=True)
    ]
    notes = [f"Means over the {ds.sizes['request']} requests with KV on the host; k: pages recomputed instead."]
    options.print_rows(rows, options.titled({"label": "policy", **titles}), given["output_format"], notes)
