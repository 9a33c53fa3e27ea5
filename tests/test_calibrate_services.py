"""Sources of measured operations and the fits of service models: made-up rows whose coefficients are known."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_runner import run as kvsweep

from kvsweep.calibrate.services import fit_model, fitted, predicted
from kvsweep.calibrate.sources import Measured, read_allreduce, read_source
from kvsweep.catalog import load
from kvsweep.cluster.profile import DecodeModel, PathModel, PrefillModel, read_profile
from kvsweep.cluster.profiles import shipped
from kvsweep.cluster.roofline import roofline
from kvsweep.cluster.vllm.profile import read_step_profile
from kvsweep.errors import InputError

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
    model, fit = fit_model("prefill", read_source(str(prefill_csv(tmp_path / "p.csv"))))
    assert isinstance(model, PrefillModel)
    assert (model.fixed_seconds, model.token_seconds, model.token_pair_seconds) == pytest.approx((1e-3, 1e-5, 1e-9))
    assert fit.held_out_rows == fit.rows == 12 and fit.error < 1e-9
    assert model.tokens is not None and (model.tokens.low, model.tokens.high) == (64, 4096)
    assert model.context_tokens is not None and model.context_tokens.high == 4096 + 8192


def test_decode_is_found_again(tmp_path: Path) -> None:
    model, fit = fit_model("decode", read_source(str(decode_csv(tmp_path / "d.csv"))))
    assert isinstance(model, DecodeModel)
    assert model.batch == (1, 4, 16)
    assert model.base_seconds == pytest.approx([5.1e-3, 5.4e-3, 6.6e-3])
    assert model.context_token_seconds == pytest.approx([1e-8] * 3)
    assert fit.error < 1e-9 and model.kind == "measured"


def test_copies_are_found_again(tmp_path: Path) -> None:
    rows = [f"{size},{2e-5 + size / 5e10}" for size in (4096, 65536, 1 << 20, 1 << 24)]
    (tmp_path / "c.csv").write_text("\n".join(["bytes,seconds", *rows]))
    model, fit = fit_model("h2d", read_source(f"h2d={tmp_path / 'c.csv'}"))
    assert isinstance(model, PathModel)
    assert (model.setup_seconds, model.bytes_per_s) == pytest.approx((2e-5, 5e10))
    assert fit.error < 1e-6


@pytest.mark.parametrize("header", ["block_bytes,bytes_per_s", "block_kb,dma_GBps"])
def test_block_size_tables(tmp_path: Path, header: str) -> None:
    unit, scale = (1.0, 1.0) if header.startswith("block_bytes") else (1024.0, 1e9)
    rows = [f"{size / unit},{size / (2e-6 + size / 5e10) / scale}" for size in (4096, 65536, 1 << 20, 1 << 24)]
    (tmp_path / "b.csv").write_text("\n".join([header, *rows]))
    model, _ = fit_model("d2h", read_source(f"d2h={tmp_path / 'b.csv'}"))
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
    assert prefill.rows == ((256, 0, 0.01), (512, 0, 0.02), (64, 0, 0.004))
    assert decode.rows == ((1, 264, 0.005), (2, 528, 0.005))


def test_engine_logs(tmp_path: Path) -> None:
    (tmp_path / "e.log").write_text(
        "[x] Prefill batch, #new-seq: 2, #new-token: 4096, #cached-token: 512, token usage: 0.1, #running-req: 0, "
        "#queue-req: 1, input throughput (token/s): 20480.0, cuda graph: False\n"
        "[x] Decode batch, #running-req: 8, #token: 9000, token usage: 0.3, cuda graph: True, "
        "gen throughput (token/s): 400.0, #queue-req: 0\nsomething else\n"
    )
    prefill, decode = read_source(str(tmp_path / "e.log"))
    assert prefill.rows == ((4096, 512, 0.2),) and decode.rows == ((8, 9000, 0.02),)


def test_nvbandwidth(tmp_path: Path) -> None:
    case = {"name": "host_to_device_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["26.0", "N/A"], ["28.0"]]}
    (tmp_path / "n.json").write_text(json.dumps({"nvbandwidth": {"testcases": [case]}}))
    (part,) = read_source(str(tmp_path / "n.json"))
    assert part.kind == "h2d" and part.rows[0][2] == pytest.approx(512 * 2**20 / 27e9)


def test_all_reduce_curves(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("bytes,seconds\n4096,2e-5\n1024,1e-5\n")
    assert read_allreduce(tmp_path / "r.csv") == ([1024.0, 4096.0], [1e-5, 2e-5])
    (tmp_path / "r.csv").write_text("bytes,seconds\n4096,2e-5\n4096,1e-5\n")
    with pytest.raises(InputError, match="a size twice"):
        read_allreduce(tmp_path / "r.csv")


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
        ("a.jsonl", '{"batch_size": 1}', "a.jsonl:1: input_len: None"),
        ("a.jsonl", "{", "a.jsonl:1: not JSON"),
    ],
)
def test_broken_sources_say_where(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        read_source(str(tmp_path / name))


def test_copies_need_a_known_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="copy: no 'h2e'; did you mean 'h2d'"):
        read_source("h2e=file.csv")
    rows = ((1.0, 0.0, 1.0), (2.0, 0.0, 0.5))
    path = tmp_path / "a.csv"
    path.write_text("x")
    with pytest.raises(InputError, match="do not grow with bytes"):
        fit_model("h2d", [Measured("h2d", rows, "one copy", path)])


def test_other_models_stay(tmp_path: Path) -> None:
    profile, fits = fitted(BASE, read_source(str(decode_csv(tmp_path / "d.csv"))))
    assert profile.prefill == BASE.prefill and profile.decode != BASE.decode
    assert [fit.kind for fit in fits] == ["decode"]


def test_models_are_positive_and_do_not_fall(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    rows = [(float(x), 0.0, float(t)) for x, t in zip(range(1, 40), random.uniform(1e-3, 5e-3, 39), strict=True)]
    path = tmp_path / "noise.csv"
    path.write_text("x")
    for kind in ("prefill", "decode"):
        model, _ = fit_model(kind, [Measured(kind, tuple(rows), "noise", path)])
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
    from kernel_samples import write_profile

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


def test_shipped_profiles_state_where_they_are_from() -> None:
    for name, path in shipped().items():
        assert "MIT" in read_step_profile(path).note or "Apache" in read_step_profile(path).note
        lines = json.loads(kvsweep("calibrate", "check", name, "--format", "json").stdout)
        assert all(line["rows"] > line["held_out_rows"] > 0 and line["held_out_error"] < 0.05 for line in lines)
        assert all(line["source"] and line["boundary"] for line in lines)
