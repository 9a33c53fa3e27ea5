"""The profiles that come with kvsweep, each made by one command: ``python -m benchmarks.profiles [--write]``.

Makes every profile anew from the data that KVSWEEP_DATA names, and compares it with the one in `hardware/profiles/`;
`--write` puts it there. Without the data there is nothing to do. Sources and licences are in the notes of the profiles.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

SHIPPED = Path(__file__).parents[1] / "hardware" / "profiles"
DATABASE = "the kernel database of ai-dynamo/aiconfigurator (Apache-2.0), vLLM"
KERNELS = "fitted to kernel profiles of casys-kaist/LLMServingSim (MIT), vLLM 0.19.0"
SPLITWISE = "fitted to Mutinifni/splitwise-sim (MIT), perf_model.csv: the engine of 2023 on DGX machines"
BLOG = "H2D: vLLM blog on KV offloading, 2026-01-08, digitised"
TOLERANCE = 2e-3
"""Numbers of a profile that is made anew may differ by this, relative: fits end a little apart on other machines."""


def _kernels(gpu: str) -> tuple[str, ...]:
    return (f"{{data}}/llmservingsim/{gpu}/Llama-3.1-8B/profile", "--thin", "0.003", "--note", KERNELS)


def _database(gpu: str, version: str, model: str, *options: str) -> tuple[str, ...]:
    source = f"{{data}}/aiconfigurator/data/{gpu}"
    return (source, "--model", model, "--thin", "0.002", "--note", f"fitted to {DATABASE} {version}", *options)


def _ranks(gpu: str, version: str, tp: int) -> tuple[str, ...]:
    curve = f"{{data}}/aiconfigurator/data/{gpu}/comm/vllm/{version}/custom_allreduce_perf.parquet"
    return ("--tp", str(tp), "--allreduce", curve)


def _of_steps(name: str, model: str, gpu: str, tp: int, *more: str, note: str = "") -> tuple[str, ...]:
    text = "; ".join(part for part in (f"fitted to the step profile {name}, of {DATABASE}", note) if part)
    return (f"{{made}}/{name}.yaml", *more, "--model", model, "--gpu", gpu, "--tp", str(tp), "--note", text)


def _splitwise(gpu: str, tp: int, most: int) -> tuple[str, ...]:
    worker = ("--model", "llama-2-70b", "--gpu", gpu, "--tp", str(tp))
    return ("{data}/splitwise/perf_model.csv", *worker, "--most-tokens", str(most), "--note", SPLITWISE)


GROUPS = "{data}/aiconfigurator/data/h200_sxm/comm/nccl/2.29.2/nccl_perf.parquet"
PROFILES: Mapping[str, tuple[str, ...]] = {
    "rtx4090-llama-3.1-8b": _kernels("RTX4090"),
    "rtxpro6000-llama-3.1-8b": _kernels("RTXPRO6000"),
    "h100-sxm-llama-3.1-8b": _database("h100_sxm", "0.24.0", "llama-3.1-8b"),
    "h200-sxm-llama-3.1-8b": _database("h200_sxm", "0.24.0", "llama-3.1-8b"),
    "a100-sxm-llama-3.1-70b-tp4": _database("a100_sxm", "0.14.0", "llama-3.1-70b", *_ranks("a100_sxm", "0.14.0", 4)),
    "h100-sxm-llama-3.1-70b-tp4": _database("h100_sxm", "0.24.0", "llama-3.1-70b", *_ranks("h100_sxm", "0.24.0", 4)),
    "h200-sxm-llama-3.1-70b-tp2": _database("h200_sxm", "0.24.0", "llama-3.1-70b", *_ranks("h200_sxm", "0.24.0", 2)),
    "h100-sxm-qwen3-30b-a3b": _database("h100_sxm", "0.24.0", "qwen3-30b-a3b"),
    "h200-sxm-deepseek-v3-dp8-ep8": _database(
        "h200_sxm", "0.24.0", "deepseek-v3", "--dtype", "fp8_block", "--dp", "8", "--ep", "8", "--exchange", GROUPS
    ),
    "h100-sxm-llama-3.1-8b-service": _of_steps(
        "h100-sxm-llama-3.1-8b",
        "llama-3.1-8b",
        "h100-sxm",
        1,
        "h2d={data}/published/h2d_block_size_h100.csv",
        note=BLOG,
    ),
    "h200-sxm-llama-3.1-8b-service": _of_steps("h200-sxm-llama-3.1-8b", "llama-3.1-8b", "h200-sxm", 1),
    "a100-sxm-llama-3.1-70b-tp4-service": _of_steps("a100-sxm-llama-3.1-70b-tp4", "llama-3.1-70b", "a100-80-sxm", 4),
    "h100-sxm-llama-2-70b-tp2-service": _splitwise("h100-sxm", 2, 8192),
    "h100-sxm-llama-2-70b-tp4-service": _splitwise("h100-sxm", 4, 2048),
    "h100-sxm-llama-2-70b-tp8-service": _splitwise("h100-sxm", 8, 2048),
    "a100-sxm-llama-2-70b-tp8-service": _splitwise("a100-80-sxm", 8, 2048),
}
"""What `kvsweep calibrate` is given for each profile, in an order in which those made of others come after them."""


def make(name: str, data: Path, made: Path) -> Path:
    """Return the profile `name` in `made`, made of `data` and of what is there; raises for a command that fails."""
    options = [part.format(data=data, made=made) for part in PROFILES[name]]
    output = made / f"{name}.yaml"
    command = [sys.executable, "-m", "kvsweep", "calibrate", *options, "--quiet", "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return output


def difference(a: Any, b: Any, where: str = "") -> str:
    """Return the first place where two profiles differ, "" if they say the same."""
    if isinstance(a, dict) and isinstance(b, dict):
        if list(a) != list(b):
            return f"{where}: fields {', '.join(map(str, a))} | {', '.join(map(str, b))}"
        return next((text for key in a if (text := difference(a[key], b[key], f"{where}/{key}"))), "")
    if isinstance(a, list) and isinstance(b, list):
        if len(a) != len(b):
            return f"{where}: {len(a)} | {len(b)} values"
        pairs = enumerate(zip(a, b, strict=True))
        return next((text for i, (x, y) in pairs if (text := difference(x, y, f"{where}/{i}"))), "")
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (a, b))
    same = math.isclose(a, b, rel_tol=TOLERANCE) if numbers else a == b
    return "" if same else f"{where}: {a} | {b}"


def main(arguments: list[str]) -> int:
    """Make all profiles; return 1 if one differs from what is shipped."""
    folder = os.environ.get("KVSWEEP_DATA", "")
    if not folder or not (Path(folder) / "aiconfigurator").is_dir():
        print("skipped: KVSWEEP_DATA names no folder with aiconfigurator/", file=sys.stderr)
        return 0
    missed = 0
    with tempfile.TemporaryDirectory() as made:
        for name in PROFILES:
            text = make(name, Path(folder), Path(made)).read_text()
            target = SHIPPED / f"{name}.yaml"
            if "--write" in arguments:
                target.write_text(text)
            apart = difference(yaml.safe_load(target.read_text()), yaml.safe_load(text)) if target.exists() else "new"
            missed += bool(apart)
            print(f"{name:<40} {len(text) / 1e3:6.1f} kB  {apart or 'as shipped'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
