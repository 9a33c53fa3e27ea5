"""``kvsweep validate``: replay measured runs with a frozen profile, and say how far the prediction is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kvsweep.cli.files import check_outputs
from kvsweep.cli.options import say
from kvsweep.cli.output import Column, print_table, to_csv, to_json
from kvsweep.errors import InputError
from kvsweep.results.files import replacing

if TYPE_CHECKING:
    from kvsweep.calibrate.runs.replay import Replay

_PATH = click.Path(path_type=Path)
_METRICS = (("E2E MAPE [%]", "e2e_mape", 100.0), ("TTFT MAE [s]", "ttft_mae_seconds", 1.0),
            ("TPOT MAPE [%]", "tpot_mape", 100.0), ("hit ratio", "hit_ratio", 1.0), ("preempted", "preemptions", 1),
            ("extrapolated [%]", "extrapolated_ratio", 100.0))  # fmt: skip


@click.command("validate", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", nargs=-1, required=True, type=_PATH, metavar="RUN...")
@click.option("--profile", "given", required=True, metavar="FILE", help="Step profile, or the name of a shipped one.")
@click.option("--workload", type=_PATH, metavar="FILE", help="Workload with token ids, for prefix reuse.")
@click.option("--blocks", type=click.IntRange(2), metavar="N", show_default="the run's",
              help="KV blocks of the worker.")  # fmt: skip
@click.option("--output", "-o", type=_PATH, metavar="FILE", help="Write every pair of requests (.csv).")
@click.option("--figures", type=_PATH, metavar="DIR", help="Write scatter, windows and error CDF of each run there.")
@click.option("--format", "output_format", type=click.Choice(("table", "json")), default="table", show_default=True,
              help="Form of the result.")  # fmt: skip
@click.option("--force", is_flag=True, help="Overwrite the files.")
def validate(
    runs: Sequence[Path], given: str, workload: Path | None, output: Path | None, figures: Path | None, **options: Any
) -> None:
    """Replay each RUN on a simulated vLLM worker and pair every request, predicted and measured.

    RUN: a folder with meta.json and requests.jsonl, the .json of vllm bench serve --save-detailed, AIPerf's
    profile_export.jsonl, or a .csv of arrival,prompt_tokens,output_tokens,ttft,e2e and, where measured,
    hit_tokens or l1_hit_tokens,l2_hit_tokens,l3_hit_tokens.
    """
    from kvsweep.calibrate.runs.measured import read_run
    from kvsweep.calibrate.runs.measures import measures
    from kvsweep.calibrate.runs.replay import replay
    from kvsweep.cluster.inputs.profiles import find_profile
    from kvsweep.cluster.inputs.step_profile import read_step_profile

    if output is not None and output.suffix != ".csv":
        raise InputError(f"--output: {output} has no known suffix; allowed: .csv")
    if figures is not None and not figures.is_dir():
        raise InputError(f"--figures: {figures} is not a folder; allowed: one that exists")
    check_outputs({"--output": output}, options["force"])
    profile = read_step_profile(find_profile(given))
    measured = [read_run(path, workload) for path in runs]
    drawn = [file for run in measured for file in _figure_files(figures, run.name).values()] if figures else []
    check_outputs({"--figures": drawn}, options["force"])
    changes = {"n_blocks": options["blocks"]} if options["blocks"] else {}
    replays = [replay(run, profile, **changes) for run in measured]
    found = [measures(each) for each in replays]
    if options["output_format"] == "json":
        click.echo(to_json(found[0] if len(found) == 1 else found))
    else:
        _print(found)
    if output is not None:
        rows = [row for each in replays for row in _rows(each)]
        with replacing(output) as temporary:
            temporary.write_text(to_csv(rows) + "\n", encoding="utf-8")
        say(f"wrote {output}")
    if figures is not None:
        for each in replays:
            _draw(each, figures, options["force"])


def _rows(replay: Replay) -> list[dict[str, object]]:
    from kvsweep.calibrate.runs.measures import pairs

    measured, predicted = pairs(replay)
    rows: list[dict[str, object]] = []
    for i in range(len(replay.run)):
        row: dict[str, object] = {"run": replay.run.name, "request": i, "arrival": float(replay.run.arrival[i])}
        for metric in ("ttft", "tpot", "e2e"):
            row[f"{metric}_measured"] = float(getattr(measured, metric)[i])
            row[f"{metric}_predicted"] = float(getattr(predicted, metric)[i])
        rows.append(row)
    return rows


def _print(found: Sequence[dict[str, Any]]) -> None:
    columns = [Column("run", lambda row: _label(row["run"])), Column("requests", lambda row: row["requests"])]
    columns += [Column(title, _metric(name, scale)) for title, name, scale in _METRICS]
    print_table(found, columns)
    for row in found:
        for note in row["notes"]:
            say(f"{row['run']}: {note}")
        if "reuse" in row:
            click.echo()
            _print_reuse(row)
        if "components" in row:
            click.echo()
            _print_components(row)


def _print_reuse(row: dict[str, Any]) -> None:
    names = ("hit_ratio_error", "exact_match_ratio", "token_volume_error", "attribution_match_ratio")
    columns = [Column(f"{name.replace('_', ' ')} [%]", _of_tier(name)) for name in names]
    print_table(list(row["reuse"].items()), [Column("tokens found in", lambda item: item[0]), *columns])


def _of_tier(name: str) -> Any:
    return lambda item: 100.0 * item[1][name]


def _metric(name: str, scale: float) -> Any:
    return lambda row: None if row[name] is None else row[name] * scale


def _print_components(row: dict[str, Any]) -> None:
    parts = row["components"]
    print_table(
        list(parts["means"].items()),
        [
            Column(f"mean over time, {_label(row['run'])}", lambda item: item[0]),
            Column("measured", lambda item: item[1]["measured"]),
            Column("predicted", lambda item: item[1]["predicted"]),
            Column("error [%]", lambda item: None if item[1]["error"] is None else 100.0 * item[1]["error"]),
        ],
    )
    click.echo(f"components that are off: {', '.join(parts['named']) or 'none'}")
    for each in parts["evidence"]:
        click.echo(f"  {'*' if each['counts'] else ' '} {each['component']}: {each['statement']}")


def _label(name: str) -> str:
    """Return a run's name short enough for a table and a file: a file's own, or the folders that tell a run."""
    path = Path(name)
    if path.suffix:
        return path.stem
    return "-".join(part for part in path.parts[-3:] if part not in ("/", "vllm")) or "run"


def _figure_files(folder: Path, run: str) -> dict[str, Path]:
    """Return the files of the figures of a run."""
    return {name: folder / f"{_label(run)}-{name}.svg" for name in ("scatter", "errors", "windows")}


def _draw(replay: Replay, folder: Path, force: bool) -> None:
    from kvsweep.calibrate.runs.measures import pairs, windows
    from kvsweep.report.plots.files import write_figure
    from kvsweep.report.plots.measured.validation import error_figure, scatter_figure, windows_figure

    stem = _label(replay.run.name)
    measured, predicted = pairs(replay)
    both = {name: (getattr(measured, name), getattr(predicted, name)) for name in ("ttft", "tpot", "e2e")}
    run = replay.run
    made = {
        "scatter": scatter_figure(stem, both),
        "errors": error_figure(stem, both),
        "windows": windows_figure(
            stem, windows(run, run.first_token, run.finish), windows(run, replay.first_token, replay.finish)
        ),
    }
    for name, target in _figure_files(folder, replay.run.name).items():
        write_figure(made[name], target, force)
        say(f"wrote {target}")
