"""Accuracy of calibrated models: ``python -m benchmarks.accuracy``, which `make validate` runs.

Prints the error of every model on rows held out, replays the two measured vLLM runs with profiles of their GPUs'
kernels alone, says what each mechanism is worth, writes `accuracy.json` and the README's table. KVSWEEP_DATA names the
folder with `llmservingsim/` and `published/`; without it there is nothing to do.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvsweep.calibrate.check import Line, service_domain, service_summary, summary
from kvsweep.calibrate.fits.compose import apart, compose
from kvsweep.calibrate.fits.services import fit_model
from kvsweep.calibrate.kernels.collectives import ALL_REDUCE, EXCHANGE, collective_curve, read_collective
from kvsweep.calibrate.kernels.profile import read_kernels
from kvsweep.calibrate.runs.diagnosis import step_seconds_apart
from kvsweep.calibrate.runs.measured import MeasuredRun, read_run
from kvsweep.calibrate.runs.measures import measures
from kvsweep.calibrate.runs.replay import limits_of, replay
from kvsweep.calibrate.sources.columns import read_rows
from kvsweep.calibrate.sources.rows import read_source
from kvsweep.catalog import load
from kvsweep.cluster.inputs.profiles import find_profile, read_any_profile, shipped
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.inputs.step_profile import DIMS, StepProfile, read_step_profile, step_times
from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival
from kvsweep.cluster.simulation.lone_worker import run as run_worker
from kvsweep.cluster.vllm.limits import Limits

GPUS = ("RTX4090", "RTXPRO6000")
OTHER = {"RTX4090": (0.66, 0.432, 1.56), "RTXPRO6000": (2.00, 0.305, 1.54)}
"""LLMServingSim's own errors on these runs, from the output it ships: E2E MAPE [%], TTFT MAE [s], TPOT MAPE [%]."""
BARS = {"compute": 0.05, "transfer": 0.10, "mean E2E": 0.025, "each E2E": 0.04, "TPOT": 0.03}
README = Path(__file__).parents[1] / "README.md"
RESULTS = Path(__file__).with_name("accuracy.json")
THIN = 0.003
COLLECTIVES = {
    "all-reduce": (ALL_REDUCE, "custom_allreduce_perf.parquet"), "exchange": (EXCHANGE, "nccl_perf.parquet")
}  # fmt: skip
"""Collective operations of the databases, each with its file."""
DATABASE = "h100-sxm-llama-3.1-8b"
"""Shipped profile, made of a kernel database, that a published figure is held against."""
COMPUTE = (*DIMS, "prefill", "decode")
"""Models of profiles that are of computing, not of copies."""

Change = Callable[[StepProfile, MeasuredRun], tuple[StepProfile, dict[str, Any]]]

ABLATIONS: dict[str, Change] = {
    "as it is": lambda p, run: (p, {}),
    "equal contexts (no rule 13)": lambda p, run: (replace(p, skew=None), {}),
    "KV split by the batch that runs (no rule 14)": lambda p, run: (replace(p, split_below=0.0), {}),
    "captured steps save nothing (no rule 15)": lambda p, run: (replace(p, captured_saving_seconds=0.0), {}),
    "prompts of a step read as one (no rule 12)": lambda p, run: (p, {"one_prompt": True}),
    "no captured graphs, no padding": lambda p, run: (p, {"graphs": ()}),
    "no prefix cache": lambda p, run: (p, {"prefix_cache": False}),
    "one step in flight": lambda p, run: (p, {"steps_in_flight": 1}),
    "no reservation of the whole prompt": lambda p, run: (p, {"reserve_full": False}),
    "token budget 4096": lambda p, run: (p, {"token_budget": 4096}),
    "watermark 1 %": lambda p, run: (p, {"watermark_blocks": blocks(run, p) // 100}),
    "5 % fewer blocks": lambda p, run: (p, {"n_blocks": blocks(run, p) * 95 // 100}),
    "5 % more blocks": lambda p, run: (p, {"n_blocks": blocks(run, p) * 105 // 100}),
}


def blocks(run: MeasuredRun, profile: StepProfile) -> int:
    """Return the blocks of the worker that `run` used."""
    return limits_of(run.engine, profile)[0].n_blocks


def measure(data: Path) -> dict[str, Any]:
    """Return all errors, by part."""
    base = data / "llmservingsim"
    workload = base / "workloads" / "sharegpt-llama-3.1-8b-300-sps10.jsonl"
    model = load().part("models", "llama-3.1-8b", "model")
    found: dict[str, Any] = {"components": {}, "transfers": [], "runs": {}, "ablation": {}, "one constant": {}}
    profiles, runs = {}, {}
    for gpu in GPUS:
        folder = base / gpu / "Llama-3.1-8B"
        profiles[gpu] = compose(read_kernels(folder / "profile"), model, thin=THIN)
        runs[gpu] = read_run(folder / "vllm", workload)
        found["components"][gpu] = [_component(line) for line in summary(profiles[gpu])]
        found["runs"][gpu] = measures(replay(runs[gpu], profiles[gpu])) | {"run": gpu}
    for name, path in shipped().items():
        if not name.startswith(tuple(gpu.lower() for gpu in GPUS)):
            profile = read_any_profile(path)
            lines = service_summary(profile) if isinstance(profile, Profile) else summary(profile)
            found["components"][name] = [_component(line) for line in lines if line.rows and line.model in COMPUTE]
    found["transfers"] = transfers(data)
    found["published"] = published(data)
    for name, change in ABLATIONS.items():
        found["ablation"][name] = {gpu: _ablated(change, profiles[gpu], runs[gpu]) for gpu in GPUS}
    for gpu, teacher in zip(GPUS, reversed(GPUS), strict=True):
        constant = step_seconds_apart(replay(runs[teacher], profiles[teacher]))
        saving = profiles[gpu].captured_saving_seconds - constant
        taught = replace(profiles[gpu], captured_saving_seconds=max(saving, 0.0))
        found["one constant"][gpu] = measures(replay(runs[gpu], taught)) | {
            "run": gpu,
            "constant": constant,
            "from": teacher,
        }
    return found


def _ablated(change: Change, profile: StepProfile, run: MeasuredRun) -> dict[str, float]:
    changed, options = change(profile, run)
    errors = measures(replay(run, changed, **options))
    return {name: errors[name] for name in ("e2e_mape", "tpot_mape")}


def _component(line: Line) -> dict[str, Any]:
    rows = {"rows": line.rows, "held_out": line.held_out_rows}
    return {"model": line.model, **rows, "error": line.held_out_error, "domain": line.domain}


def published(data: Path) -> dict[str, Any]:
    """Return how far TTFT of lone prompts is from a published figure (H100, Llama-3.1-8B, digitised, +-15 ms).

    The profile holds products and attention alone, so it should be short; 8192 tokens a step are assumed.
    """
    table = data / "published" / "h100_llama8b_restore_recompute.csv"
    if not table.is_file():
        return {}
    times = step_times(read_step_profile(find_profile(DATABASE)))
    limits = Limits(n_blocks=20_000, token_budget=8192)
    errors = []
    for texts, row in read_rows(table, ("tokens", "ttft_ms"), ("tier",)):
        if texts["tier"] == "recompute" and row["tokens"] >= 10_000:
            tokens = int(row["tokens"])
            served = run_worker([Arrival(0.0, tokens, 1, range((tokens + 1) // 16))], limits, times)
            errors.append(served.seconds(col.FIRST_TOKEN)[0] * 1e3 / row["ttft_ms"] - 1.0)
    return {"rows": len(errors), "ttft_mape": sum(map(abs, errors)) / len(errors), "bias": sum(errors) / len(errors)}


def transfers(data: Path) -> list[dict[str, Any]]:
    """Return the error of copy models on the tables there are, each row held out by turns."""
    found = []
    table = data / "published" / "h2d_block_size_h100.csv"
    if table.is_file():
        fit = fit_model("h2d", read_source(f"h2d={table}"))
        found.append({"name": "H2D by block size, H100", "rows": fit.rows, "held_out": fit.held_out_rows,
                      "error": fit.held_out_error, "domain": service_domain(fit)})  # fmt: skip
    for name, (operations, file) in COLLECTIVES.items():
        for path in sorted((data / "aiconfigurator").rglob(file)):
            gpu = path.relative_to(data / "aiconfigurator" / "data").parts[0]
            found += [_collective(f"{name} of {ranks}, {gpu}", path, operations, ranks) for ranks in (2, 4, 8)]
    return found


def _collective(name: str, path: Path, operations: tuple[str, ...], ranks: int) -> dict[str, Any]:
    curve = read_collective(path, operations, ranks)
    errors = apart(curve, fit=collective_curve)
    return {"name": name, "rows": len(curve), "held_out": len(errors), "error": sum(errors) / len(errors),
            "domain": f"{min(curve):g} to {max(curve):g} bytes"}  # fmt: skip


def bars(found: dict[str, Any]) -> dict[str, tuple[float, float]]:
    """Return each bar's value and limit."""
    runs = found["runs"].values()
    e2e = [run["e2e_mape"] for run in runs]
    compute = [part["error"] for parts in found["components"].values() for part in parts]
    return {
        "compute": (max(compute), BARS["compute"]),
        "transfer": (max((part["error"] for part in found["transfers"]), default=0.0), BARS["transfer"]),
        "mean E2E": (sum(e2e) / len(e2e), BARS["mean E2E"]),
        "each E2E": (max(e2e), BARS["each E2E"]),
        "TPOT": (max(run["tpot_mape"] for run in runs), BARS["TPOT"]),
    }


def printed(found: dict[str, Any]) -> str:
    """Return all errors as text."""
    lines = ["Components, mean error of a whole step on rows held out:"]
    for gpu, parts in found["components"].items():
        lines += [f"  {gpu:<34} {part['model']:<10} {part['error']:6.2%} of {part['held_out']} held out, "
                  f"{part['rows']} rows; {part['domain']}" for part in parts]  # fmt: skip
    lines += [f"  {part['name']}: {part['error']:.2%} of {part['held_out']} rows; {part['domain']}"
              for part in found["transfers"]]  # fmt: skip
    if found["published"]:
        shown = found["published"]
        lines.append(f"  published TTFT of {shown['rows']} lone prompts, H100: MAPE {shown['ttft_mape']:.1%}, "
                     f"bias {shown['bias']:+.1%} (products and attention alone)")  # fmt: skip
    lines.append("Replays, 300 requests each (E2E MAPE, TTFT MAE, TPOT MAPE):")
    for gpu, run in found["runs"].items():
        lines += [f"  {gpu:<11} kernel profiles only: {_errors(run)}; {run['extrapolated_ratio']:.1%} extrapolated"]
        taught = found["one constant"][gpu]
        lines += [f"  {'':<11} and {taught['constant'] * 1e3:+.2f} ms a captured step, from the steps of "
                  f"{taught['from']}: {_errors(taught)}"]  # fmt: skip
        lines += ["  {:<11} LLMServingSim: {:.2f} %, {:.3f} s, {:.2f} %".format("", *OTHER[gpu])]
        lines += [f"  {'':<11} components that are off: {', '.join(run['components']['named']) or 'none'}"]
        lines += [f"  {'':<13} {each['component']}: {each['statement']}" for each in run["components"]["evidence"]]
    lines.append("Worth of each mechanism (E2E MAPE | TPOT MAPE):")
    for name, both in found["ablation"].items():
        cells = "   ".join(f"{both[gpu]['e2e_mape']:6.2%} | {both[gpu]['tpot_mape']:6.2%}" for gpu in GPUS)
        lines.append(f"  {name:<46} {cells}")
    lines.append("Bars:")
    lines += [f"  {name:<10} {value:6.2%} of {limit:.1%}: {'met' if value <= limit else 'MISSED'}"
              for name, (value, limit) in bars(found).items()]  # fmt: skip
    return "\n".join(lines)


def _errors(run: dict[str, Any]) -> str:
    return f"{run['e2e_mape']:.2%}, {run['ttft_mae_seconds']:.3f} s, {run['tpot_mape']:.2%}"


def table(found: dict[str, Any]) -> str:
    """Return the README's table."""
    lines = ["| judged on | calibrated on | E2E MAPE | TTFT MAE | TPOT MAPE |", "|---|---|---|---|---|"]
    for gpu, run in found["runs"].items():
        taught = found["one constant"][gpu]
        rows = [
            (f"kernel profile of the {gpu}", run),
            (f"the same, and one constant of the {taught['from']} run's steps", taught),
        ]
        lines += [
            f"| vLLM 0.19 on {gpu}, 300 requests | {name} | {e['e2e_mape']:.2%} | {e['ttft_mae_seconds']:.2f} s "
            f"| {e['tpot_mape']:.2%} |"
            for name, e in rows
        ]
        lines.append("| | LLMServingSim's own prediction | {:.2f}% | {:.2f} s | {:.2f}% |".format(*OTHER[gpu]))
    worst = max(part["error"] for parts in found["components"].values() for part in parts)
    lines.append(f"| kernels held out, whole steps | the other rows | at most {worst:.2%} | | |")
    copies = found["transfers"]
    if copies:
        rows, most = sum(part["rows"] for part in copies), max(part["error"] for part in copies)
        lines.append(f"| copies and all-reduces, {rows} rows of {len(copies)} tables | the other rows "
                     f"| at most {most:.2%} | | |")  # fmt: skip
    return "\n".join(lines)


def filled(text: str, found: dict[str, Any]) -> str:
    """Return the README's text with its table of accuracy made anew."""
    block = f"<!-- accuracy -->\n{table(found)}\n<!-- end accuracy -->"
    return re.sub(r"<!-- accuracy -->.*?<!-- end accuracy -->", lambda match: block, text, flags=re.S)


def main() -> int:
    folder = os.environ.get("KVSWEEP_DATA", "")
    if not folder or not (Path(folder) / "llmservingsim").is_dir():
        print("skipped: KVSWEEP_DATA names no folder with llmservingsim/", file=sys.stderr)
        return 0
    found = measure(Path(folder))
    print(printed(found))
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    README.write_text(filled(README.read_text(), found))
    return int(any(value > limit for value, limit in bars(found).values()))


if __name__ == "__main__":
    sys.exit(main())
