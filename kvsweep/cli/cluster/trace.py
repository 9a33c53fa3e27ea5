"""``kvsweep trace``: make, read, change and measure traces of requests."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import given_options, output_options, say
from kvsweep.cli.output import Column, print_table, to_csv, to_json
from kvsweep.cli.trace_options import (
    ALIAS,
    FORMATS_HELP,
    decorated,
    quantity,
    read_options,
    seed_option,
    taken_out,
    tell_notes,
)
from kvsweep.errors import InputError, shown
from kvsweep.trace.options import MAX_BLOCK_SIZE
from kvsweep.units import parse_quantity

if TYPE_CHECKING:
    from kvsweep.trace.model import Trace
    from kvsweep.trace.stats import TraceStats

F = TypeVar("F", bound=Callable[..., Any])

WRITE_FORMATS = ("kvsweep", "mooncake", "table")
PRESETS = ("qa", "coding", "uniform")
SUFFIXES = (".jsonl", ".csv", ".jsonl.gz", ".csv.gz")


@click.group("trace", context_settings={"help_option_names": ["-h", "--help"]})
def trace() -> None:
    """Make, convert, sample and measure traces of requests.

    A trace says when requests arrive, how long prompts and answers are, and which KV blocks prompts share.
    """


_REGROUP = click.option(
    "--regroup", type=click.IntRange(1, MAX_BLOCK_SIZE), metavar="TOKENS",
    help="Divide the blocks, or put them together, into blocks of this size.",
)  # fmt: skip
_write_options = decorated(
    (
        click.option(
            "--output",
            "-o",
            type=click.Path(path_type=Path),
            metavar="FILE",
            callback=lambda _, __, p: _suffixed(p),
            help=f"Write the trace to FILE ({', '.join(SUFFIXES)}) instead of stdout.",
        ),
        click.option("--force", is_flag=True, help="Overwrite FILE."),
        click.option("--quiet", "-q", is_flag=True, help="Print no notes on stderr."),
    )  # fmt: skip
)


@trace.command("generate")
@click.option("--preset", type=click.Choice(PRESETS), required=True,
              help="qa: questions to shared documents; coding: agent sessions with growing contexts and pauses; "
              "uniform: requests that share nothing.")  # fmt: skip
@click.option("--sessions", type=click.IntRange(1, 10**6), default=100, show_default=True,
              help="Documents (qa), sessions (coding) or requests (uniform).")  # fmt: skip
@seed_option
@click.option("--rate", "request_rate", metavar="NUMBER", callback=quantity("1/s"), show_default="1, coding 0.25",
              help="Mean arrival rate of requests; in coding, of session starts times --turns [1/s].")  # fmt: skip
@click.option("--arrivals", type=click.Choice(("poisson", "fixed")), default="poisson", show_default=True,
              help="Requests (qa, uniform) or session starts (coding) at random times or evenly spaced.")  # fmt: skip
@click.option("--input-tokens", metavar="TOKENS", callback=quantity("token"), show_default="5000, 24000, 2000",
              help="Mean length of a document (qa), a first prompt (coding), a prompt (uniform).")  # fmt: skip
@click.option("--output-tokens", metavar="TOKENS", callback=quantity("token"), show_default="128, 425, 256",
              help="Mean length of an answer.")  # fmt: skip
@click.option("--turns", metavar="NUMBER", callback=quantity("1"), show_default="qa 5, coding 40",
              help="Mean questions to a document, or turns in a session.")  # fmt: skip
@click.option("--think", "think_seconds", metavar="NUMBER", callback=quantity("s"), show_default="coding 60",
              help="Mean pause before the next turn of a session [s].")  # fmt: skip
@click.option("--max-context", type=click.IntRange(2, 10**7), metavar="TOKENS", show_default="prompts of 131072",
              help="The model's context, before which coding sessions end: prompt and answer together.")  # fmt: skip
@click.option("--block-size", type=click.IntRange(1, MAX_BLOCK_SIZE), metavar="TOKENS", show_default="64",
              help="Size of the KV blocks.")  # fmt: skip
@_write_options
def generate(
    preset: str, sessions: int, seed: int, output: Path | None, force: bool, quiet: bool, **changes: Any
) -> None:
    """Make a trace up; the same options and seed give the same bytes."""
    from kvsweep.trace.generate import generate as generated

    changes = given_options(changes)
    useless = {
        "uniform": ("turns", "think_seconds", "max_context"), "qa": ("think_seconds", "max_context"), "coding": (),
    }[preset]  # fmt: skip
    for name in set(useless) & set(changes):
        option = name.removesuffix("_seconds").replace("_", "-")
        raise InputError(f"--{option}: preset {preset} has none; allowed: with another preset")
    for name in ("input_tokens", "output_tokens"):
        if changes.get(name, 1) > 10**7:
            raise InputError(f"--{name.replace('_', '-')}: {changes[name]:g} tokens; allowed: at most 1e7")
    _check_output(output, force)
    _write(generated(preset, sessions, seed, **changes), output, "kvsweep", quiet)


@trace.command("convert", epilog=FORMATS_HELP)
@read_options(ALIAS)
@_REGROUP
@click.option("--to", "write_as", type=click.Choice(WRITE_FORMATS), show_default="kvsweep; table for .csv",
              help="Format of the result.")  # fmt: skip
@click.option("--rate", metavar="NUMBER", callback=quantity("1/s"),
              help="Scale the times between arrivals so that requests arrive at this mean rate [1/s].")  # fmt: skip
@click.option("--time-scale", metavar="NUMBER", callback=quantity("1"),
              help="Make all times between arrivals this many times as long.")  # fmt: skip
@click.option("--spread", metavar="auto|NUMBER",
              help="Spread arrivals rounded to a grid over the step found (auto) or this many [s].")  # fmt: skip
@_write_options
def convert(
    file: Path, output: Path | None, force: bool, quiet: bool, write_as: str | None, spread: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Read FILE in any format and write it in another, with changed times or block size."""
    from kvsweep.trace import convert as change

    rate, factor = options.pop("rate"), options.pop("time_scale")
    if rate is not None and factor is not None:
        raise InputError("--rate: given together with --time-scale; allowed: one of them")
    _check_output(output, force)
    is_table = output is not None and ".csv" in output.suffixes[-2:]
    read = _read(file, options)
    found = _regrouped(read, options["regroup"])
    if spread is not None:
        found = change.spread(found, _step(spread, found), options["seed"])
    if rate is not None:
        found = change.scale_to_rate(found, rate)
    elif factor is not None:
        found = change.scale_time(found, factor)
    _tell(file, read, quiet, hint=spread is None)
    _write(found, output, write_as or ("table" if is_table else "kvsweep"), quiet)


@trace.command("sample", epilog=FORMATS_HELP)
@read_options(ALIAS)
@_REGROUP
@click.option("--share", metavar="RATIO", callback=quantity("1"),
              help="Keep about this share of the document groups or sessions, whole, chosen by hash.")  # fmt: skip
@click.option("--interquartile", is_flag=True,
              help="Keep the sessions whose number of turns lies within the quartiles of all sessions.")  # fmt: skip
@_write_options
def sample(
    file: Path, output: Path | None, force: bool, quiet: bool, share: float | None, interquartile: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Keep part of FILE so that reuse stays: whole document groups and sessions."""
    from kvsweep.trace.sample import hashed_sample, interquartile_sample

    if share is None and not interquartile:
        raise InputError("--share: missing; allowed: --share RATIO, --interquartile, or both")
    if share is not None and share > 1:
        raise InputError(f"--share: {share:g} is out of range; allowed: more than 0, at most 1")
    _check_output(output, force)
    read = _read(file, options)
    found = _regrouped(read, options["regroup"])
    if interquartile:
        found = interquartile_sample(found)
    if share is not None:
        found = hashed_sample(found, share, options["seed"])
    _tell(file, read, quiet)
    _write(found, output, "kvsweep", quiet)


@trace.command("stats", epilog=FORMATS_HELP)
@read_options()
@_REGROUP
@click.option("--lru", "capacities", metavar="BLOCKS", default="1000,5000,10000,20000,50000,100000",
              show_default=True, help="Sizes of LRU caches, in blocks of the trace.")  # fmt: skip
@output_options((".json", ".csv"), "the figures")
def stats(
    file: Path, capacities: str, output: Path | None, force: bool, output_format: str | None, quiet: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Show lengths, arrivals, and how much of FILE caches of several sizes would hit."""
    from kvsweep.trace.stats import trace_stats

    sizes = _capacities(capacities)
    _check_output(output, force)
    read = _read(file, options)
    found = trace_stats(_regrouped(read, options["regroup"]), sizes)
    _tell(file, read, quiet)
    if output is not None:
        from kvsweep.results.files import replacing

        with replacing(output) as temporary:
            text = to_json(found) if output.suffix == ".json" else to_csv([found])
            temporary.write_text(text + "\n", encoding="utf-8")
        if not quiet:
            say(f"wrote {output}")
    if output_format in ("json", "csv"):
        click.echo(to_json(found) if output_format == "json" else to_csv([found]))
    else:
        _print_stats(found)


def _read(file: Path, options: dict[str, Any]) -> Trace:
    """Return the trace in `file`, read as the `options` say, which are taken out."""
    from kvsweep.trace.read import read_trace

    return read_trace(file, taken_out(options, options["seed"]))


def _tell(file: Path, found: Trace, quiet: bool, hint: bool = True) -> None:
    """Say how a trace was read, and with `hint` whether its times are rounded."""
    from kvsweep.trace.convert import grid_seconds

    if quiet:
        return
    tell_notes(file, found)
    if hint and (step := grid_seconds(found)) is not None:
        say(f"{file}: arrivals sit on a grid of {step:.4g} s; kvsweep trace convert --spread auto takes them off it")


def _regrouped(found: Trace, size: int | None) -> Trace:
    """Return the trace with blocks of `size` tokens, None for its own."""
    from kvsweep.trace.convert import change_block_size

    if size is None:
        return found
    try:
        return change_block_size(found, size)
    except InputError as error:
        raise InputError(f"--regroup: {error}") from error


def _step(text: str, found: Trace) -> float:
    from kvsweep.trace.convert import grid_seconds

    if text == "auto":
        step = grid_seconds(found)
        if step is None:
            raise InputError("--spread: the arrivals sit on no grid; allowed: a number of seconds")
        return step
    step = parse_quantity(text, "s", "--spread")
    if not 0 < step < 1e12:
        raise InputError(f"--spread: {shown(text)} is out of range; allowed: auto, or more than 0 s")
    return step


def _capacities(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part[:19]) < 10**18 for part in parts):
        raise InputError(f"--lru: {shown(text)}; allowed: whole numbers of blocks from 1 on, as in 1000,5000")
    return list(dict.fromkeys(int(part) for part in parts))


def _suffixed(path: Path | None) -> Path | None:
    if path is not None and not path.name.endswith(SUFFIXES):
        raise InputError(f"--output: {path} has no known suffix; allowed: {', '.join(SUFFIXES)}")
    return path


def _check_output(output: Path | None, force: bool) -> None:
    check_outputs({"--output": output}, force)


def _write(found: Trace, output: Path | None, form: str, quiet: bool) -> None:
    """Write a trace in a format to `output`, or to stdout, and say what it is."""
    from kvsweep.results.files import replacing
    from kvsweep.trace.write import lines

    text = (f"{line}\n" for line in lines(found, form))
    if output is None:
        for line in text:
            click.echo(line, nl=False)
    else:
        with replacing(output) as temporary:
            _save(text, temporary, packed=output.suffix == ".gz")
    if not quiet:
        rate = f", {len(found) / found.duration:.4g} requests/s" if found.duration else ""
        blocks = f", blocks of {found.block_size} tokens" if found.block_size else ", no block ids"
        say(
            f"wrote {output or 'stdout'}: {len(found)} requests over {found.duration:.4g} s{rate}, "
            f"prompts of {found.input_tokens.mean():.4g} and answers of {found.output_tokens.mean():.4g} tokens{blocks}"
        )


def _save(text: Iterator[str], path: Path, packed: bool) -> None:
    with path.open("wb") as file:
        if packed:
            # No name and no time in the header: the same trace gives the same bytes.
            with gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as archive:
                archive.writelines(line.encode() for line in text)
        else:
            file.writelines(line.encode() for line in text)


def _figure(name: str) -> Column:
    """Return the column of a field of a spread, which may be None."""
    return Column(name, lambda row: getattr(row[1], name, None))


def _print_stats(found: TraceStats) -> None:
    rate = f" ({found.request_rate:.4g} requests/s)" if found.request_rate else ""
    click.echo(f"Requests   {found.requests} over {found.duration_seconds:.6g} s{rate}")
    size = found.block_size
    click.echo(
        f"KV blocks  {found.distinct_blocks} different ones of {size} tokens" if size else "KV blocks  none known"
    )
    if found.sessions or found.groups:
        click.echo(f"Sessions   {found.sessions}, document groups {found.groups}")
    click.echo()
    spreads = {
        "prompt [token]": found.input_tokens, "answer [token]": found.output_tokens,
        "between arrivals [s]": found.interarrival_seconds, "until a block is reused [s]": found.reuse_seconds,
        "other blocks in between": found.reuse_blocks,
    }  # fmt: skip
    columns = [_figure(name) for name in ("mean", "p50", "p90", "p99")]
    print_table(spreads.items(), [Column("", lambda row: row[0]), *columns])
    if size:
        click.echo()
        _print_curve(found, size)


def _print_curve(found: TraceStats, block_size: int) -> None:
    curve: list[tuple[str, float, float | None]] = [
        (capacity, int(capacity) * block_size, ratio) for capacity, ratio in found.lru_hit_ratio.items()
    ]
    curve.append(("infinite", math.inf, found.infinite_hit_ratio))
    columns = [
        Column("LRU cache [block]", lambda row: row[0]), Column("[token]", lambda row: row[1]),
        Column("hit ratio", lambda row: row[2]),
    ]  # fmt: skip
    print_table(curve, columns)
    click.echo("hit ratio: share of all prompt tokens that the cache holds when the request arrives.")
