"""``kvsweep calibrate``: fit service models from measurements of parts, and look at the fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import Bounded, say
from kvsweep.cli.output import Column, print_table, to_json
from kvsweep.errors import InputError
from kvsweep.results.files import replacing

if TYPE_CHECKING:
    from kvsweep.catalog.specs import Model

_PATH = click.Path(path_type=Path)


OF_KERNELS = ("allreduce", "exchange", "dtype", "dp", "ep", "processors", "thin", "overhead_seconds")
"""Options of kernel profiles and databases."""
OF_FILES = ("base", "gpu", "most_tokens")
"""Options of files of operations."""


class _Default(click.Group):
    """A group in which what is no command is the argument of `fit`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put ``fit`` before arguments that name no command."""
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["fit", *args]
        return super().parse_args(ctx, args)


@click.group("calibrate", cls=_Default, context_settings={"help_option_names": ["-h", "--help"]})
def calibrate() -> None:
    """Fit compute and transfer models from measurements of parts, never from end-to-end latencies.

    `kvsweep calibrate SOURCE... -o profile.yaml` is short for `fit`.
    """


@calibrate.command("fit")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", "-o", type=_PATH, required=True, metavar="FILE", help="Profile to write (.yaml).")
@click.option("--model", metavar="KEY", show_default="the profile's", help="Model of the catalog.")
@click.option("--tp", type=click.IntRange(1, 1024), metavar="N", help="Tensor-parallel degree of a kernel profile.")
@click.option(
    "--allreduce",
    type=_PATH,
    metavar="FILE",
    help="All-reduce of TP ranks: CSV of bytes,seconds, or a database's .parquet.",
)
@click.option("--exchange", type=_PATH, metavar="FILE",
              help="Exchange of tokens between DP ranks, both ways; as above.")  # fmt: skip
@click.option("--dtype", type=click.Choice(("bfloat16", "fp8_block")), default="bfloat16", show_default=True,
              help="Weights of the layers, of a kernel database.")  # fmt: skip
@click.option("--dp", type=click.IntRange(1, 1024), default=1, show_default=True, help="Data-parallel ranks.")
@click.option("--ep", type=click.IntRange(1, 4096), default=1, show_default=True, help="Expert-parallel ranks.")
@click.option("--processors", type=click.IntRange(0, 10_000), default=0, show_default="known by the GPU's name",
              help="Streaming multiprocessors of the GPU.")  # fmt: skip
@click.option("--thin", type=Bounded(0.0, 0.1), default=0.0, show_default=True,
              help="Leave out points of the attention grid that change a step less, relative.")  # fmt: skip
@click.option("--overhead-seconds", type=Bounded(0.0, 1.0), default=0.0, show_default=True,
              help="CPU time of a step that nothing hides, as measured by the engine.")  # fmt: skip
@click.option("--note", default="", metavar="TEXT", help="Where the measurements are from, for the profile.")
@click.option("--base", type=_PATH, metavar="FILE",
              help="Profile of service models whose other models are kept; or --model, --gpu and --tp.")  # fmt: skip
@click.option("--gpu", metavar="KEY", help="GPU of the catalog: the other models are its roofline, assumed.")
@click.option("--most-tokens", type=click.IntRange(1), metavar="N", help="Leave out prefill steps of more tokens.")
@click.option("--force", is_flag=True, help="Overwrite the output.")
@click.option("--quiet", "-q", is_flag=True, help="Print no table of the fits.")
def fit(sources: Sequence[str], output: Path, force: bool, quiet: bool, **options: Any) -> None:
    """Fit SOURCE: a folder of a kernel profile or database (a step profile), or files of operations (service models).

    Files: bench_one_batch .jsonl, engine .log, .csv of tokens,context,seconds or batch,context,seconds, Splitwise's
    perf_model.csv, nvbandwidth .json, and handoff=, h2d=, d2h= with a .csv of bytes,seconds or block_bytes,bytes_per_s.
    Service models not measured are those of --base, or assumed ones of --model on --tp GPUs --gpu.
    """
    _check_output(output, force)
    folders = [source for source in sources if Path(source).is_dir()]
    if folders and len(sources) > 1:
        raise InputError(f"SOURCE: {folders[0]} is a kernel profile and is fitted alone; allowed: one folder, or files")
    _check_options(OF_FILES if folders else OF_KERNELS, "a folder" if folders else "files")
    text = _kernels(Path(folders[0]), quiet, **options) if folders else _services(sources, quiet, **options)
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    say(f"wrote {output}")


def _check_output(output: Path, force: bool) -> None:
    if output.suffix not in (".yaml", ".yml"):
        raise InputError(f"--output: {output} has no known suffix; allowed: .yaml, .yml")
    sources = click.get_current_context().params["sources"]
    check_outputs({"--output": output}, force, [Path(source) / "meta.yaml" for source in sources])


def _check_options(others: Sequence[str], source: str) -> None:
    """Refuse an option of the other kind of source, which would say nothing."""
    ctx = click.get_current_context()
    for name in others:
        if ctx.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE:
            raise InputError(f"--{name.replace('_', '-')}: says nothing of {source}; allowed: without it")


def _kernels(folder: Path, quiet: bool, **options: Any) -> str:
    from kvsweep.calibrate.check import summary
    from kvsweep.calibrate.fits.compose import compose
    from kvsweep.calibrate.kernels.collectives import ALL_REDUCE, EXCHANGE, collective_curve, read_collective
    from kvsweep.calibrate.kernels.database import Ranks, is_database, read_database
    from kvsweep.calibrate.kernels.layers import Parallel
    from kvsweep.calibrate.kernels.profile import read_kernels
    from kvsweep.cluster.inputs.step_profile import step_profile_text

    dp, ep = options["dp"], options["ep"]
    if is_database(folder):
        if options["model"] is None:
            raise InputError(f"--model: missing; {folder} is a kernel database of many models")
        ranks = Ranks(options["tp"] or 1, ep, options["dtype"])
        kernels = read_database(folder, _model(options["model"]), ranks)
    else:
        _check_options(("dtype",), "a kernel profile")
        kernels = read_kernels(folder, options["tp"])

    def curve(option: str, operations: tuple[str, ...], ranks: int) -> Any:
        path = options[option]
        return collective_curve(read_collective(path, operations, ranks)) if path is not None else None

    parallel = Parallel(dp, ep, curve("allreduce", ALL_REDUCE, kernels.tp), curve("exchange", EXCHANGE, dp))
    model = _model(options["model"] or kernels.model)
    profile = compose(kernels, model, parallel, options["processors"], options["thin"])
    note = "; ".join(part for part in (options["note"], profile.note) if part)
    profile = replace(profile, overhead_seconds=options["overhead_seconds"], note=note)
    if not quiet:
        print_lines(summary(profile))
    return step_profile_text(profile)


def _model(name: str) -> Model:
    from kvsweep.catalog import load

    return load().part("models", name.rpartition("/")[2].lower(), "--model")


def _services(sources: Sequence[str], quiet: bool, **options: Any) -> str:
    from kvsweep.calibrate.check import service_summary
    from kvsweep.calibrate.fits.services import fitted, up_to
    from kvsweep.calibrate.sources.rows import is_of_several, read_source
    from kvsweep.calibrate.sources.splitwise import Worker
    from kvsweep.catalog import load
    from kvsweep.cluster.inputs.presets import profile_file
    from kvsweep.cluster.inputs.roofline import roofline
    from kvsweep.cluster.inputs.service_profile import read_profile

    base, names = options.get("base"), [options.get(name) for name in ("model", "gpu", "tp")]
    if any(names) and not all(names):
        raise InputError("--model, --gpu, --tp: one without the others; allowed: all three")
    worker = Worker(options["model"], options["gpu"], options["tp"]) if all(names) else None
    if base is not None:
        if worker is not None and not any(map(is_of_several, sources)):
            raise InputError("--base: beside --model, --gpu and --tp, and no SOURCE has rows of several workers; "
                             "allowed: without them")  # fmt: skip
        profile = read_profile(base)
    elif worker is not None:
        profile = roofline(load(), worker.model, worker.gpu, worker.tp)
    else:
        raise InputError(
            "--base: missing; allowed: a profile whose other models are kept (kvsweep cluster init), or --model, --gpu "
            "and --tp"
        )
    measured = [part for source in sources for part in read_source(source, worker)]
    if options.get("most_tokens"):
        measured = up_to(measured, options["most_tokens"])
    profile = fitted(profile, measured)
    kinds = sorted({part.kind for part in measured})
    if base is not None:  # with its sources and their licences
        rest, kept = "the rest as before", profile.note
    else:
        rest, kept = "the rest assumed, a roofline of the catalog's figures", ""
    note = "; ".join(text for text in (options.get("note"), f"measured: {', '.join(kinds)}; {rest}", kept) if text)
    if base is None and worker is not None:
        profile = replace(profile, name=f"{worker.model} {worker.gpu} tp{worker.tp}")
    if not quiet:
        print_lines(service_summary(profile))
    return profile_file(replace(profile, note=note))


def print_lines(lines: Sequence[Any]) -> None:
    """Print the models of a profile, one a line."""
    print_table(
        lines,
        [
            Column("model", lambda row: row.model),
            Column("rows", lambda row: row.rows),
            Column("held out", lambda row: row.held_out_rows),
            Column("error [%]", lambda row: None if row.held_out_error is None else 100.0 * row.held_out_error),
            Column("domain", lambda row: row.domain),
        ],
    )


@calibrate.command("check")
@click.argument("profile", metavar="PROFILE")
@click.option("--source", type=_PATH, metavar="FOLDER", help="Kernel profile to draw the fit against.")
@click.option("--figure", type=_PATH, metavar="FILE", help="Figure of the fit (.pdf, .svg, .png); needs --source.")
@click.option("--format", "output_format", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="Form of the result.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the figure.")
def check(profile: str, source: Path | None, figure: Path | None, output_format: str, force: bool) -> None:
    """Print the error, domain and origin of each model of PROFILE, a file or the name of a shipped one."""
    from kvsweep.calibrate.check import compared, service_summary, summary
    from kvsweep.cluster.inputs.profiles import find_profile, read_any_profile
    from kvsweep.cluster.inputs.service_profile import Profile

    if (figure is None) != (source is None):
        raise InputError("--figure, --source: one without the other; allowed: both, or neither")
    read = read_any_profile(profile)
    if figure is not None:
        from kvsweep.report.plots.files import check_target

        if isinstance(read, Profile):
            raise InputError(f"--figure: {profile} holds service models; allowed: a step profile")
        check_target(figure, "--figure")
        check_outputs({"--figure": figure}, force, [find_profile(profile)])
    lines = service_summary(read) if isinstance(read, Profile) else summary(read)
    click.echo(to_json([asdict(line) for line in lines])) if output_format == "json" else print_lines(lines)
    if figure is not None and source is not None and not isinstance(read, Profile):
        from kvsweep.report.plots.files import write_figure
        from kvsweep.report.plots.measured.validation import fit_figure

        parts = [
            (each.title, each.x, each.measured, each.fitted) for each in compared(read, source, _model(read.model))
        ]
        write_figure(fit_figure(read.name, parts), figure, force)
        say(f"wrote {figure}")


@calibrate.command("recalibrate")
@click.argument("kind", type=click.Choice(("prefill", "decode", "handoff", "h2d", "d2h")))
@click.argument("profile", type=_PATH, metavar="PROFILE")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.option("--output", "-o", type=_PATH, required=True, metavar="FILE", help="Profile to write (.yaml).")
@click.option("--force", is_flag=True, help="Overwrite the output.")
def recalibrate(kind: str, profile: Path, sources: Sequence[str], output: Path, force: bool) -> None:
    """Fit one model of PROFILE anew and keep the others, as decode after the KV pool was enlarged."""
    from kvsweep.calibrate.sources.rows import read_source

    _check_output(output, force)
    kinds = {part.kind for source in sources for part in read_source(source)}
    if kinds != {kind}:
        raise InputError(f"SOURCE: measures {', '.join(sorted(kinds))}; allowed: {kind} alone")
    text = _services(sources, quiet=False, base=profile)
    with replacing(output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    say(f"wrote {output}")
