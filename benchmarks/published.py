"""Public measurements beside predictions: ``python -m benchmarks.published``, which `make validate` runs.

Every row of ``published/measured.csv`` under KVSWEEP_DATA that states GPU, model and path well enough is predicted as
`kvsweep.simulate` predicts it, options left at their defaults but for what the row states; no constant comes from a row
that is judged. Prints all of them, says why the others are not predicted, writes `published.json` and the tables of the
README and of `kvsweep/costs/README.md`. Without the data there is nothing to do.
"""

from __future__ import annotations

import csv
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kvsweep
from kvsweep.catalog import load, models

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COSTS = ROOT / "kvsweep" / "costs" / "README.md"
RESULTS = Path(__file__).with_name("published.json")
GIB = 2.0**30
SECONDS = {"ms": 1e-3, "s": 1.0}
KINDS = {
    "recompute": "recompute", "restore": "restore", "capacity": "KV that fits", "bytes": "KV bytes",
}  # fmt: skip
"""Kinds of figures that are judged by their ratio, with what tables call them."""
CLOSE, FAR = 1.5, 2.0
"""Factors a prediction of time should be within."""

Row = Mapping[str, str]
H100_8B = {"gpu": "h100-sxm", "model": "llama-3.1-8b"}
H200_OSS = {"gpu": "h200-sxm", "model": "gpt-oss-120b"}
H800_8B = {"gpu": "h800-sxm", "model": "qwen3-8b", "gpu_count": 8, "link": "rdma-200g"}
H100_70B = {"gpu": "h100-sxm", "model": "llama-3.1-70b", "gpu_count": 4}
GUIDE = "llm-d guides/p2p-kv-cache-sharing"
BLOG = "vllm-blog-2026-01-08"
MOONCAKE = "Mooncake docs vllm-v1-pd-performance"


@dataclass(frozen=True)
class Case:
    """Rows whose source and what begin so, the machine they state, and what of it is predicted.

    `quantity` says how: ``recompute``, ``restore`` (from DRAM over the link), ``handoff`` (recompute and the transfer
    after it), ``capacity``, or a function of the tokens for bytes. Rows for which `apart` is not empty are shown, not
    judged, for that reason.
    """

    source: str
    what: str
    quantity: str | Callable[[float], float]
    options: Mapping[str, Any] = field(default_factory=dict)
    tokens: str = ""
    apart: str = ""
    remark: str = ""

    def holds(self, row: Row) -> bool:
        """Return whether `row` is one of these."""
        same = row["source"].startswith(self.source) and row["what"].startswith(self.what)
        return same and self.tokens in ("", row["tokens"])

    @property
    def kind(self) -> str:
        """Return which of `KINDS` it is."""
        if callable(self.quantity):
            return "bytes"
        return "recompute" if self.quantity == "handoff" else self.quantity


def whole_layers(model: str) -> Callable[[float], float]:
    """Return the bytes [byte] of tokens of `model` in an engine that keeps window layers whole, as a function."""
    shape = load().part("models", model, "model").shape
    assert shape is not None
    return lambda tokens: models.kv_bytes_per_token_all_layers(shape) * tokens


def sequence(model: str) -> Callable[[float], float]:
    """Return the bytes [byte] of a sequence of `model` by its tokens, as a function."""
    shape = load().part("models", model, "model").shape
    assert shape is not None
    fixed = models.kv_fixed_bytes_per_sequence(shape)
    return lambda tokens: models.kv_bytes_per_token_moved(shape) * tokens + fixed


def cases() -> tuple[Case, ...]:
    """Return what can be predicted; the first case that a row is of holds."""
    floor = "session floor: the same rig's transfers need 27 ms and 10.7 us a token, so 27 ms of any request"
    return (
        Case(BLOG, "recompute", "recompute", H100_8B),
        Case(BLOG, "host DRAM restore", "restore", H100_8B),
        Case(GUIDE, "recompute", "recompute", H200_OSS, "2048", floor),
        Case(GUIDE, "recompute", "recompute", H200_OSS),
        Case("llm-d blog 2026-08-15", "recompute", "recompute", H200_OSS),
        Case("LMCache PR 1740", "CPU to GPU", "restore", {"gpu": "h100-sxm", "model": "qwen3-8b"}),
        Case(MOONCAKE, "TTFT", "handoff", H800_8B, remark="includes proxy and handoff"),
        Case(MOONCAKE, "P/D transfer", "restore", H800_8B),
        Case("dynamo issue 6101", "recompute", "recompute", H100_8B, remark="about; 1.5 x the same GPU above"),
        Case("dynamo issue 6101", "disk", "restore", H100_8B, apart="software: as slow from a file in memory"),
        Case("llm-d blog 2026-02-09", "recompute", "recompute", H100_70B),
        Case("sglang issue 922", "recompute", "recompute", {
            "gpu": "rtx-a6000", "model": "llama-3.1-70b", "weight_dtype": "int4",
        }, remark="about; above the peak of the data sheet"),
        Case("llm-d guides/tiered-prefix-cache", "KV capacity", "capacity", {
            "gpu": "h100-sxm", "model": "qwen3-32b", "gpu_count": 2, "memory_utilization": 0.65,
        }),
        Case(f"{GUIDE} gpt-oss", "KV capacity", "capacity", {
            **H200_OSS, "memory_utilization": 0.85, "max_model_len": 65_536,
        }),
        Case(f"{GUIDE} README", "KV capacity", "capacity", {**H200_OSS, "gpu_count": 4, "memory_utilization": 0.85}),
        Case("vllm issue 10517", "KV memory", "capacity", {
            "gpu": "rtx-3090", "model": "llama-3.1-8b", "max_model_len": 20_000, "step_tokens": 20_000,
        }, remark="this engine ran prompts whole, so the largest step is the longest prompt"),
        Case("hf-mem issue 60", "KV memory", whole_layers("gpt-oss-120b")),
        Case("hf-mem PR 61", "KV memory", whole_layers("gemma-4-31b")),
        Case("vllm-blog-2026-04-24", "KV bytes", sequence("deepseek-v4-pro")),
    )  # fmt: skip


@dataclass(frozen=True)
class Worth:
    """A verdict that public rows imply: whether restoring `tokens` [token] beats recomputing them there."""

    source: str
    tokens: int
    path: str
    options: Mapping[str, Any]
    measured: bool


SLOWEST = {"link": "rdma-100g"}
VERDICTS = (
    *(Worth(BLOG, tokens, "host DRAM", H100_8B, True) for tokens in (10_000, 50_000, 100_000)),
    *(Worth(GUIDE, tokens, "a peer, rate not stated: 100 Gb/s", H200_OSS | SLOWEST, True) for tokens in (2048, 49_152)),
    Worth("llm-d blog 2026-02-09 fs fig1", 128_000, "host DRAM", H100_70B, True),
    Worth("LMCache blog 2025-05-08", 9728, "a store, 12 GB/s of 8 GPUs", {
        "gpu": "h800-sxm", "model": "qwen2.5-72b", "gpu_count": 8, "link_bandwidth": "1.5 GB/s",
    }, True),
    Worth("LMCache issue 1131", 5120, "InfiniStore, 25 Gb/s", {
        "gpu": "l20", "model": "qwen3-30b-a3b", "weight_dtype": "fp8", "link": "tcp-25g",
    }, False),
)  # fmt: skip
RATE, WORTH = "rate of the network not stated", "judged by its verdict"
REASONS = {
    (GUIDE, "P2P"): RATE,
    ("llm-d blog 2026-08-15", "P2P"): RATE,
    ("LMCache PR 1740", "GPU to CPU"): "storing is no part of the analytic model",
    ("llm-d blog 2026-02-09 fs fig1", "speed-up"): f"470 ms of each with KV in HBM, a floor; {WORTH}",
    ("LMCache blog 2025-05-08", ""): f"50 requests at once; {WORTH}",
    ("LMCache issue 1131", ""): WORTH,
    ("vllm PR 6496", ""): "the catalog's own source",
    ("NVIDIA blog", ""): "an upper bound, of two machines",
    ("Mooncake FAST25 Eq 2", ""): "a derivation, no measurement",
    ("panpan0000", ""): "GPU not named",
    ("club-3090", ""): "model not in the catalog",
    ("vllm blog 2026-06-01", ""): "model not in the catalog",
    ("ATOM issue 1959", ""): "a plugin that keeps K and V of every head",
    ("LMCache PR 4278", ""): "counts layers that keep no KV; 27648, the right value, is the catalog's",
    ("llm-d blog 2026-06-13", ""): "speed-up of an engine's own transfer of window layers",
    ("vllm recipes issue 762", ""): "data parallel with experts, queueing",
}
"""Why rows are not predicted, by how source and what begin; the others are of whole workloads."""


def measured(row: Row, kind: str) -> float:
    """Return what `row` states, in seconds, tokens or bytes."""
    if kind == "capacity":
        return float(row["value"] if row["unit"] == "token" else row["tokens"])
    return float(row["value"]) * (GIB if kind == "bytes" else SECONDS[row["unit"]])


def simulated(options: Mapping[str, Any], tokens: float) -> dict[str, Any]:
    """Return what `kvsweep.simulate` says of a prompt of `tokens` [token], and of what fits."""
    made = kvsweep.simulate(prompt_tokens=tokens, p95_seconds=10, **options)
    row = made["results"][0]
    restore, recompute = row["restore_all_seconds"]["dram"], row["recompute_all_seconds"]
    return {
        "recompute": recompute, "restore": restore, "handoff": recompute + restore,
        "capacity": made["experiment"]["kv_tokens"], "warnings": made["warnings"],
    }  # fmt: skip


def measure(table: Path) -> dict[str, Any]:
    """Return every row of `table`: judged, apart, or with the reason why it is not predicted; and all verdicts."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    known = cases()
    found: dict[str, Any] = {"judged": [], "apart": [], "left": [], "verdicts": [_verdict(each) for each in VERDICTS]}
    for row in rows:
        case = next((case for case in known if case.holds(row)), None)
        if case is None:
            found["left"].append({"source": row["source"], "what": row["what"], "reason": _reason(row)})
            continue
        tokens = float(row["tokens"]) if row["tokens"] != "-" else 1000.0
        if callable(case.quantity):
            predicted, assumed = case.quantity(tokens), False
        else:
            answer = simulated(case.options, tokens)
            predicted = answer[case.quantity]
            assumed = any("are assumed" in line for line in answer["warnings"])
        stated = measured(row, case.kind)
        found["apart" if case.apart else "judged"].append({
            "source": row["source"], "hardware": row["hardware"], "model": row["model"], "tokens": row["tokens"],
            "what": row["what"], "kind": case.kind, "measured": stated, "predicted": predicted,
            "ratio": predicted / stated, "assumed": assumed, "remark": case.apart or case.remark,
        })  # fmt: skip
    return found


def _reason(row: Row) -> str:
    begins = ((row["source"].startswith(source) and row["what"].startswith(what)) for source, what in REASONS)
    return next((why for why, holds in zip(REASONS.values(), begins, strict=True) if holds), "a whole workload")


def _verdict(each: Worth) -> dict[str, Any]:
    answer = simulated(each.options, each.tokens)
    return {
        "source": each.source, "tokens": each.tokens, "path": each.path, "measured": each.measured,
        "predicted": answer["restore"] < answer["recompute"], "times": answer["recompute"] / answer["restore"],
    }  # fmt: skip


def factor(each: Mapping[str, Any]) -> float:
    """Return by which factor [1] a prediction is off, either way."""
    return max(each["ratio"], 1.0 / each["ratio"])


def summary(found: Mapping[str, Any]) -> str:
    """Return the README's table: of each kind of figure, how many rows are near, and the worst."""
    off = {kind: [factor(each) for each in found["judged"] if each["kind"] == kind] for kind in KINDS}
    near = [f"{sum(each <= CLOSE for each in factors)} of {len(factors)}" for factors in off.values()]
    far = [f"{sum(each <= FAR for each in factors)}; {max(factors):.2f} x" for factors in off.values()]
    right = sum(each["predicted"] == each["measured"] for each in found["verdicts"])
    rows = [
        ("public measurements", *KINDS.values(), "worth restoring?"),
        ("---",) * (len(KINDS) + 2),
        (f"within {CLOSE:g} x", *near, f"right: {right} of {len(found['verdicts'])}"),
        (f"within {FAR:g} x; worst", *far, ""),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def details(found: Mapping[str, Any]) -> str:
    """Return all rows as Markdown tables."""
    head = [
        "| measured by | on | tokens | what | measured | predicted | ratio | |",
        "|---|---|---|---|---|---|---|---|",
    ]

    def line(each: Mapping[str, Any]) -> str:
        shares = "shares of the peak assumed" if each["assumed"] else ""
        remarks = "; ".join(text for text in (each["remark"], shares) if text)
        where = f"{each['hardware']}, {each['model']}"
        values = f"{_shown(each['measured'], each['kind'])} | {_shown(each['predicted'], each['kind'])}"
        return (
            f"| {each['source']} | {where} | {each['tokens']} | {each['what']} | {values} | {each['ratio']:.2f} "
            f"| {remarks} |"
        )

    verdicts = ["| measured by | tokens | restored from | worth it | predicted | recompute / restore |",
                "|---|---|---|---|---|---|"]  # fmt: skip
    verdicts += [
        f"| {each['source']} | {each['tokens']} | {each['path']} | {_yes(each['measured'])} | "
        f"{_yes(each['predicted'])} | {each['times']:.1f} |"
        for each in found["verdicts"]
    ]
    left = [f"- {each['source']}, {each['what']}: {each['reason']}." for each in found["left"]]
    return "\n".join([
        *head, *(line(each) for each in found["judged"]), "", "Apart, for the reason given:", "", *head,
        *(line(each) for each in found["apart"]), "", "Is it worth restoring?", "", *verdicts, "", "Not predicted:", "",
        *left,
    ])  # fmt: skip


def _yes(worth: bool) -> str:
    return "yes" if worth else "no"


def _shown(value: float, kind: str) -> str:
    if kind == "capacity":
        return f"{value:,.0f} tokens"
    return f"{value / GIB:.3g} GiB" if kind == "bytes" else f"{value:.3g} s"


def filled(text: str, found: Mapping[str, Any]) -> str:
    """Return the text of a document with its table made anew: of all rows, or in the README of their kinds."""
    for mark, made in (("published", summary), ("published rows", details)):
        block = f"<!-- {mark} -->\n{made(found)}\n<!-- end {mark} -->"
        text = re.sub(f"<!-- {mark} -->.*?<!-- end {mark} -->", lambda match, new=block: new, text, flags=re.S)  # type: ignore[misc]
    return text


def main() -> int:
    table = Path(os.environ.get("KVSWEEP_DATA", "")) / "published" / "measured.csv"
    if not os.environ.get("KVSWEEP_DATA") or not table.is_file():
        print("skipped: KVSWEEP_DATA names no folder with published/measured.csv", file=sys.stderr)
        return 0
    found = measure(table)
    print(details(found), "", summary(found), sep="\n")
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for document in (README, COSTS):
        document.write_text(filled(document.read_text(encoding="utf-8"), found), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
