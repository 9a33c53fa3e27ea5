"""Sources of measured operations and the fits of service models: made-up rows whose coefficients are known."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from kvsweep.calibrate.fits.services import fit_model, fitted, predicted, up_to
from kvsweep.calibrate.sources.operations import Measured, Operation
from kvsweep.calibrate.sources.rows import read_curve, read_source
from kvsweep.calibrate.sources.splitwise import Worker
from kvsweep.catalog import load
from kvsweep.cluster.inputs.presets import profile_file
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import DecodeModel, PathModel, PrefillModel, read_profile
from kvsweep.errors import InputError
from tests.cli_runner import run as kvsweep

BASE = roofline(load(), "qwen3-8b", "h100-sxm", 2)


def prefill_csv(path: Path) -> Path:
    """Write 1 ms + 10 µs a token + 1 ns a pair."""
    rows = [
        f"{x},{k},{1e-3 + 1e-5 * x + 1e-9 * x * (k + x / 2)}" for x in (64, 256, 1024, 4096) for k in (0, 2048, 8192)
    ]
    path.write_text("\n".join(["tokens,context,seconds", *rows]))
    return path


def decode_csv(path: Path) -> Path:
    """Write 5 ms + 0.1 ms a request + 10 ns a token of context."""
    rows = [f"{n},{k},{5e-3 + 1e-4 * n + 1e-8 * n * k}" for n in (1, 4, 16) for k in (512, 2048, 8192)]
    path.write_text("\n".join(["batch,context,seconds", *rows]))
    return path


def test_prefill_is_found_again(tmp_path: Path) -> None:
    model = fit_model("prefill", read_source(str(prefill_csv(tmp_path / "p.csv"))))
    assert isinstance(model, PrefillModel)
    assert (model.fixed_seconds, model.token_seconds, model.token_pair_seconds) == pytest.approx((1e-3, 1e-5, 1e-9))
    assert model.held_out_rows == model.rows == 12 and (model.held_out_error or 0.0) < 1e-9
    assert model.tokens is not None and (model.tokens.low, model.tokens.high) == (64, 4096)
    assert model.context_tokens is not None and model.context_tokens.high == 4096 + 8192


def test_prompts_of_a_batch_attend_to_themselves_alone() -> None:
    """Batches of n prompts have n·s²/2 pairs: 1 ms + 10 µs a token + 1 µs a pair, whatever the batch."""
    rows = tuple(
        Operation(n * s, 0.0, 1e-3 + 1e-5 * n * s + 1e-6 * n * s * s / 2, n) for n in (1, 2, 8) for s in (64, 256, 512)
    )
    model = fit_model("prefill", [Measured("prefill", rows, "a batch", Path(__file__))])
    assert isinstance(model, PrefillModel)
    assert (model.fixed_seconds, model.token_seconds, model.token_pair_seconds) == pytest.approx((1e-3, 1e-5, 1e-6))
    assert model.context_tokens is not None and model.context_tokens.high == 512


def test_small_steps_that_take_the_least_time() -> None:
    """5 ms up to 400 tokens, then 1 ms + 10 µs a token."""
    rows = tuple(Operation(x, 0.0, max(5e-3, 1e-3 + 1e-5 * x)) for x in (16, 64, 128, 256, 512, 1024, 2048, 4096))
    model = fit_model("prefill", [Measured("prefill", rows, "a step", Path(__file__))])
    assert isinstance(model, PrefillModel)
    assert (model.least_seconds, model.fixed_seconds, model.token_seconds) == pytest.approx((5e-3, 1e-3, 1e-5))


def test_repetitions_are_held_out_together() -> None:
    """Ten times the same two sizes between others: without one of them its rows are not seen, and the error shows."""
    sizes = (100.0, 200.0, 300.0, 400.0)
    rows = tuple(Operation(x, 0.0, x * (2e-3 if x == 200.0 else 1e-3)) for x in sizes for _ in range(10))
    model = fit_model("h2d", [Measured("h2d", rows, "one copy", Path(__file__))])
    assert model.held_out_rows == 20
    line = fit_model("h2d", [Measured("h2d", tuple(r for r in rows if r.size != 200.0), "one copy", Path(__file__))])
    apart = abs(predicted(line, np.array(rows[10:11]))[0] / rows[10].seconds - 1.0)
    assert (model.held_out_error or 0.0) >= apart / 2 > 0.2


SPLITWISE = "model,hardware,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time,tensor_parallel"


def splitwise_csv(path: Path) -> Path:
    """Write 10 ms + 0.1 ms a token and 20 ms a token, a batch of 64 that did not fit, and rows of other workers."""
    rows = []
    for prompt, batch, tokens in [(s, 1, 128) for s in (128, 256, 512, 1024)] + [(512, n, 128) for n in (2, 4, 64)]:
        first, step = 10.0 + 0.1 * prompt * batch, 20.0
        total = (first + step * (tokens - 1)) * (5.0 if batch == 64 else 1.0)
        for name, gpu, tp in (("llama2-70b", "h100-80gb", 8), ("llama2-70b", "h100-80gb-pcap", 8), ("x", "y", 8)):
            rows.append(f"{name},{gpu},{prompt},{batch},{tokens},{first},{step},{total},{tp}")
    path.write_text("\n".join([SPLITWISE, *rows]))
    return path


def test_splitwise_tables(tmp_path: Path) -> None:
    path = splitwise_csv(tmp_path / "perf.csv")
    prefill, decode = read_source(str(path), Worker("llama-2-70b", "h100-sxm", 8))
    assert len(prefill.rows) == len(decode.rows) == 6 and "without 1 rows" in prefill.note
    assert decode.rows[-1] == (4, 4 * (512 + 64), 0.02, 1)
    model = fit_model("prefill", [prefill])
    assert isinstance(model, PrefillModel) and "MIT" in model.source
    assert (model.fixed_seconds, model.token_seconds) == pytest.approx((0.01, 1e-4))
    (fewer,) = up_to([prefill], 512)
    assert max(row.size for row in fewer.rows) == 512 and "at most 512 tokens" in fewer.note
    for worker in (None, Worker("qwen3-8b", "h100-sxm", 8)):
        with pytest.raises(InputError, match="allowed as --model, --tp and --gpu: llama-2-70b on 8 x h100-sxm"):
            read_source(str(path), worker)
    path.write_text(path.read_text() + "\nllama2-70b,h100-80gb,0,1,1,1,1,1,8\n")
    with pytest.raises(InputError, match=r"perf.csv:23: a size or time of 0"):
        read_source(str(path), Worker("llama-2-70b", "h100-sxm", 8))


def test_a_profile_without_a_base(tmp_path: Path) -> None:
    output = tmp_path / "s.yaml"
    names = ("--model", "llama-2-70b", "--gpu", "h100-sxm", "--tp", "8")
    done = kvsweep("calibrate", str(splitwise_csv(tmp_path / "perf.csv")), *names, "-o", str(output))
    assert done.exit_code == 0 and "prefill" in done.stdout, done.output
    profile = read_profile(output)
    assert (profile.model, profile.tp, profile.kind) == ("llama-2-70b", 8, "assumed")
    assert profile.prefill.kind == profile.decode.kind == "measured" and profile.h2d.kind == "assumed"
    lines = json.loads(kvsweep("calibrate", "check", str(output), "--format", "json").stdout)
    assert {line["model"]: line["rows"] for line in lines} == {
        "prefill": 6, "decode": 6, "handoff": 0, "h2d": 0, "d2h": 0
    }  # fmt: skip
    refused = kvsweep("calibrate", str(tmp_path / "perf.csv"), "--model", "llama-2-70b", "-o", str(tmp_path / "t.yaml"))
    assert refused.exit_code == 2 and "--model, --gpu, --tp: one without the others" in refused.output


def test_a_table_of_several_workers_beside_a_base(tmp_path: Path) -> None:
    base, output, source = tmp_path / "base.yaml", tmp_path / "s.yaml", str(splitwise_csv(tmp_path / "perf.csv"))
    about = roofline(load(), "llama-2-70b", "h100-sxm", 8)
    base.write_text(profile_file(replace(about, name="mine", note="measured by X, CC-BY 4.0")))
    names = ("--model", "llama-2-70b", "--gpu", "h100-sxm", "--tp", "8")
    done = kvsweep("calibrate", source, "--base", str(base), *names, "--note", "on a rack", "-o", str(output))
    assert done.exit_code == 0, done.output
    profile = read_profile(output)
    assert profile.prefill.kind == "measured" and profile.handoff == about.handoff and profile.name == "mine"
    assert profile.note == "on a rack; measured: decode, prefill; the rest as before; measured by X, CC-BY 4.0"
    prompts = tmp_path / "p.csv"
    prompts.write_text("tokens,context,seconds\n")
    refused = kvsweep("calibrate", str(prompts), "--base", str(base), *names, "-o", str(tmp_path / "t.yaml"))
    assert refused.exit_code == 2 and "no SOURCE has rows of several workers" in refused.output


@pytest.mark.parametrize("option", ["--thin", "--overhead-seconds"])
def test_nan_is_within_no_bounds(option: str, tmp_path: Path) -> None:
    refused = kvsweep("calibrate", str(tmp_path), option, "nan", "-o", str(tmp_path / "t.yaml"))
    assert refused.exit_code == 2 and f"'{option}': nan is not a number" in refused.output


def test_decode_is_found_again(tmp_path: Path) -> None:
    model = fit_model("decode", read_source(str(decode_csv(tmp_path / "d.csv"))))
    assert isinstance(model, DecodeModel)
    assert model.batch == (1, 4, 16)
    assert model.base_seconds == pytest.approx([5.1e-3, 5.4e-3, 6.6e-3])
    assert model.context_token_seconds == pytest.approx([1e-8] * 3)
    assert model.held_out_rows == 9 and (model.held_out_error or 0.0) < 1e-9 and model.kind == "measured"


def test_copies_are_found_again(tmp_path: Path) -> None:
    rows = [f"{size},{2e-5 + size / 5e10}" for size in (4096, 65536, 1 << 20, 1 << 24)]
    (tmp_path / "c.csv").write_text("\n".join(["bytes,seconds", *rows]))
    model = fit_model("h2d", read_source(f"h2d={tmp_path / 'c.csv'}"))
    assert isinstance(model, PathModel)
    assert (model.setup_seconds, model.bytes_per_s) == pytest.approx((2e-5, 5e10))
    assert model.held_out_rows == 2 and (model.held_out_error or 0.0) < 1e-6


@pytest.mark.parametrize("header", ["block_bytes,bytes_per_s", "block_kb,dma_GBps"])
def test_block_size_tables(tmp_path: Path, header: str) -> None:
    unit, scale = (1.0, 1.0) if header.startswith("block_bytes") else (1024.0, 1e9)
    rows = [f"{size / unit},{size / (2e-6 + size / 5e10) / scale}" for size in (4096, 65536, 1 << 20, 1 << 24)]
    (tmp_path / "b.csv").write_text("\n".join([header, *rows]))
    model = fit_model("d2h", read_source(f"d2h={tmp_path / 'b.csv'}"))
    assert isinstance(model, PathModel) and model.bytes_per_s == pytest.approx(5e10)


def test_bench_one_batch(tmp_path: Path) -> None:
    lines = [
        {
            "batch_size": n,
            "input_len": 256,
            "output_len": 16,
            "prefill_latency": 0.01 * n,
            "median_decode_latency": 0.005,
        }
        for n in (1, 2)
    ] + [{"batch_size": 1, "input_len": 64, "output_len": 1, "prefill_latency": 0.004}]
    (tmp_path / "b.jsonl").write_text("\n".join(map(json.dumps, lines)))
    prefill, decode = read_source(str(tmp_path / "b.jsonl"))
    assert prefill.rows == ((256, 0, 0.01, 1), (512, 0, 0.02, 2), (64, 0, 0.004, 1))
    assert decode.rows == ((1, 264, 0.005, 1), (2, 528, 0.005, 1))


def test_engine_logs(tmp_path: Path) -> None:
    (tmp_path / "e.log").write_text(
        "[x] Prefill batch, #new-seq: 2, #new-token: 4096, #cached-token: 512, token usage: 0.1, #running-req: 0, "
        "#queue-req: 1, input throughput (token/s): 20480.0, cuda graph: False\n"
        "[x] Decode batch, #running-req: 8, #token: 9000, token usage: 0.3, cuda graph: True, "
        "gen throughput (token/s): 400.0, #queue-req: 0\nsomething else\n"
    )
    prefill, decode = read_source(str(tmp_path / "e.log"))
    assert prefill.rows == ((4096, 256, 0.2, 2),) and decode.rows == ((8, 9000, 0.02, 1),)


def test_nvbandwidth(tmp_path: Path) -> None:
    case = {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["26.0", "N/A"], ["28.0"]]}
    (tmp_path / "n.json").write_text(json.dumps({"nvbandwidth": {"testcases": [case]}}))
    (part,) = read_source(str(tmp_path / "n.json"))
    assert part.kind == "h2d" and part.rows[0][2] == pytest.approx(512 * 2**20 / 27e9)


def test_all_reduce_curves(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("bytes,seconds\n4096,2e-5\n1024,1e-5\n")
    assert read_curve(tmp_path / "r.csv") == {1024.0: 1e-5, 4096.0: 2e-5}
    (tmp_path / "r.csv").write_text("bytes,seconds\n4096,2e-5\n4096,1e-5\n")
    with pytest.raises(InputError, match="a size twice"):
        read_curve(tmp_path / "r.csv")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.bin", "", "not a source kvsweep reads"),
        ("a.csv", "x,y\n1,2\n", "a.csv:1: 'x,y'; allowed: tokens,context,seconds"),
        ("a.csv", "tokens,context,seconds\n1,2\n", "a.csv:2: 2 cells; allowed: 3"),
        ("a.csv", "tokens,context,seconds\n", "no rows"),
        ("a.log", "nothing", "no prefill or decode line"),
        ("a.json", "{}", "no nvbandwidth: testcases"),
        ("a.json", '{"nvbandwidth": {"testcases": []}}', "no test passed of host_to_device_memcpy_ce"),
        ("a.jsonl", '{"batch_size": 1}', "a.jsonl:1: input_len: None; allowed: a number from 0"),
        ("a.jsonl", "{", "a.jsonl:1: not JSON"),
    ],
)
def test_broken_sources_say_where(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_source(str(tmp_path / name))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.csv", "tokens,context,seconds\n0,0,1\n", "tokens: 0; allowed: whole numbers from 1 on"),
        ("d.csv", "batch,context,seconds\n1.5,0,1\n", "batch: 1.5; allowed: whole numbers"),
        ("p.csv", "tokens,context,seconds\n1,-1,1\n", "p.csv:2: context: '-1' is not a number"),
        ("p.csv", "tokens,context,seconds\n1,inf,1\n", "p.csv:2: context: 'inf' is not a number"),
        ("b.jsonl", '{"batch_size": 0, "input_len": 1, "output_len": 1}', "batch_size 0, input_len 1; allowed"),
        ("b.jsonl", '{"batch_size": NaN}', "b.jsonl:1: batch_size: nan; allowed: a number"),
        ("n.json", '{"nvbandwidth": {"testcases": [{"name": "host_to_device_memcpy_ce", "status": "Passed", '
                   '"bandwidth_matrix": [3]}]}}', "bandwidth_matrix: .*; allowed: lists of GB/s"),
        ("s.yaml", "x: 1\n", "s.yaml: format: None; allowed: 'kvsweep step profile 1'"),
    ],
)  # fmt: skip
def test_measurements_that_cannot_be(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_source(str(tmp_path / name))


def test_fits_that_no_profile_may_hold(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    for rows, message in (
        ("64,0,0.01", "prefill steps of 64 tokens alone; allowed: two sizes or more"),
        ("64,0,0\n128,0,1", "a time of 0 s"),
        ("64,0,200\n128,0,400", "fitted to p.csv: prefill: .* is out of range; allowed: 0 to 100 s"),
    ):
        path.write_text(f"tokens,context,seconds\n{rows}\n")
        with pytest.raises(InputError, match=message):
            fitted(BASE, read_source(str(path)))


def test_options_that_say_nothing_of_a_source_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.calibrate.kernel_samples import write_profile

    monkeypatch.chdir(tmp_path)
    assert kvsweep("cluster", "init").exit_code == 0
    prefill_csv(tmp_path / "p.csv"), write_profile(tmp_path / "k")
    for arguments, message in (
        (("p.csv", "--base", "profile.yaml", "--thin", "0.01"), "--thin: says nothing of files"),
        (("p.csv", "--base", "profile.yaml", "--tp", "2"), "--model, --gpu, --tp: one without the others"),
        (("k", "--most-tokens", "9"), "--most-tokens: says nothing of a folder"),
        (("k", "--dtype", "bfloat16"), "--dtype: says nothing of a kernel profile"),
        (("k", "p.csv"), "k is a kernel profile and is fitted alone"),
    ):
        refused = kvsweep("calibrate", *arguments, "-o", "o.yaml")
        assert refused.exit_code == 2 and message in refused.output, refused.output
        assert not (tmp_path / "o.yaml").exists()
    refused = kvsweep("calibrate", "recalibrate", "prefill", "profile.yaml", "p.csv", "-o", "o.txt")
    assert refused.exit_code == 2 and "o.txt has no known suffix" in refused.output


def test_copies_need_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="copy: no 'h2e'; did you mean 'h2d'"):
        read_source("h2e=file.csv")
    rows = (Operation(1.0, 0.0, 1.0), Operation(2.0, 0.0, 0.5))
    path = tmp_path / "a.csv"
    path.write_text("x")
    with pytest.raises(InputError, match="do not grow with bytes"):
        fit_model("h2d", [Measured("h2d", rows, "one copy", path)])


def test_other_models_stay(tmp_path: Path) -> None:
    profile = fitted(BASE, read_source(str(decode_csv(tmp_path / "d.csv"))))
    assert profile.prefill == BASE.prefill and profile.decode != BASE.decode
    assert profile.decode.rows == 9 and profile.h2d.rows is None


def test_models_are_positive_and_do_not_fall(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [
        Operation(float(x), 0.0, float(t)) for x, t in zip(range(1, 40), random.uniform(1e-3, 5e-3, 39), strict=True)
    ]
    path = tmp_path / "noise.csv"
    path.write_text("x")
    for kind in ("prefill", "decode"):
        model = fit_model(kind, [Measured(kind, tuple(rows), "noise", path)])
        found = predicted(model, np.array(rows))
        assert (found > 0).all() and (np.diff(found) >= -1e-12).all()


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert kvsweep("cluster", "init").exit_code == 0
    prefill_csv(tmp_path / "p.csv"), decode_csv(tmp_path / "d.csv")
    done = kvsweep("calibrate", "p.csv", "--base", "profile.yaml", "-o", "one.yaml")
    assert done.exit_code == 0 and "prefill" in done.stdout, done.output
    assert read_profile(Path("one.yaml")).prefill.kind == "measured"
    done = kvsweep("calibrate", "recalibrate", "decode", "one.yaml", "d.csv", "-o", "two.yaml")
    assert done.exit_code == 0, done.output
    two = read_profile(Path("two.yaml"))
    assert two.decode.batch == (1, 4, 16) and two.prefill.token_seconds == pytest.approx(1e-5)
    refused = kvsweep("calibrate", "recalibrate", "decode", "one.yaml", "p.csv", "-o", "three.yaml")
    assert refused.exit_code == 2 and "measures prefill; allowed: decode alone" in refused.output
    refused = kvsweep("calibrate", "p.csv", "-o", "three.yaml")
    assert refused.exit_code == 2 and "--base: missing" in refused.output
    assert not Path("three.yaml").exists()


def test_kernel_profiles_on_the_command_line(tmp_path: Path) -> None:
    from tests.calibrate.kernel_samples import write_profile

    folder, output = write_profile(tmp_path / "k", tp=(1, 2)), tmp_path / "p.yaml"
    done = kvsweep("calibrate", str(folder), "-o", str(output), "--tp", "1")
    assert done.exit_code == 0 and "attention" in done.stdout, done.output
    assert kvsweep("calibrate", str(folder), "-o", str(output), "--tp", "1").exit_code == 2  # it exists
    (tmp_path / "r.csv").write_text("bytes,seconds\n8192,1e-5\n8388608,1e-3\n")
    done = kvsweep(
        "calibrate", str(folder), "-o", str(output), "--force", "--tp", "2", "--allreduce", str(tmp_path / "r.csv")
    )
    assert done.exit_code == 0, done.output
    shown = kvsweep("calibrate", "check", str(output), "--format", "json")
    assert {line["model"] for line in json.loads(shown.stdout)} == {"tokens", "sequences", "attention"}
    figure = tmp_path / "fit.svg"
    done = kvsweep("calibrate", "check", str(output), "--source", str(folder), "--figure", str(figure))
    assert done.exit_code == 0 and figure.exists(), done.output
    refused = kvsweep("calibrate", "check", str(output), "--figure", str(figure))
    assert refused.exit_code == 2 and "one without the other" in refused.output


def test_a_step_profile_as_a_source(tmp_path: Path) -> None:
    """Steps are sums of the made-up kernels; a captured one saves nine starts a layer, of a microsecond each."""
    from tests.calibrate.kernel_samples import DENSE, attention_us, layer_us, write_profile

    path = tmp_path / "steps.yaml"
    assert kvsweep("calibrate", str(write_profile(tmp_path / "k")), "-o", str(path)).exit_code == 0
    prefill, decode = read_source(str(path))
    layer = sum(DENSE[name] for name in DENSE if name not in ("embedding", "final_layernorm")) + DENSE["layernorm"]
    for row in prefill.rows:
        tokens, before = row.size, row.context
        seconds = 32 * layer_us(layer, tokens) + layer_us(3.0, tokens) + 55.0
        seconds += 32 * attention_us(tokens, before, 0, 0)
        assert row.seconds == pytest.approx(seconds * 1e-6, rel=0.01), row
    assert max(row.size for row in prefill.rows) == 256 and {row.context for row in prefill.rows} == {0}
    for row in decode.rows:
        n, k = row.size, row.context / row.size
        seconds = 32 * (layer_us(layer, n) + attention_us(0, 0, n, k) - 9.0) + layer_us(3.0, n) + layer_us(55.0, n)
        assert row.seconds == pytest.approx(seconds * 1e-6, rel=0.01), row
    assert {row.size for row in decode.rows} == {1, 2, 4, 8, 12, 16} and "no host code" in decode.boundary
    with pytest.raises(InputError, match="allowed: --model llama-3.1-8b --tp 1"):
        read_source(str(path), Worker("llama-3.1-8b", "h100-sxm", 2))
