"""``kvsweep trace``: results on stdout, notes on stderr, refusals of one line, equal bytes for equal seeds."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from kvsweep.cli.cluster import trace as command
from kvsweep.trace.formats import FORMATS
from kvsweep.trace.generate import PRESETS
from kvsweep.trace.read import read_trace
from kvsweep.trace.write import WRITERS
from tests.cli_runner import done, refused
from tests.trace import samples
from tests.trace.samples import jsonl


@pytest.fixture
def mooncake(tmp_path: Path) -> Path:
    return jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)


def test_choices_are_those_of_the_package() -> None:
    assert set(command.WRITE_FORMATS) == set(WRITERS)
    assert tuple(PRESETS) == command.PRESETS
    for name in FORMATS:
        assert f"\n  {name} " in command.FORMATS_HELP


def test_help_loads_no_numpy() -> None:
    code = "import sys, kvsweep.cli.cluster.trace; print([n for n in ('numpy', 'numba') if n in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_reading_loads_no_numba(mooncake: Path) -> None:
    code = (
        "import sys; from kvsweep.trace import read_trace; from kvsweep.trace.stats import trace_stats; "
        "trace_stats(read_trace(sys.argv[1])); print([n for n in ('numba', 'xarray') if n in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code, mooncake], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_stats_json_has_the_fixed_keys(mooncake: Path) -> None:
    found = json.loads(done("trace", "stats", mooncake, "--format", "json", "--lru", "2, 8").stdout)
    assert list(found)[:8] == [
        "requests", "duration_seconds", "request_rate", "input_tokens", "output_tokens", "infinite_hit_ratio",
        "lru_hit_ratio", "reuse_seconds",
    ]  # fmt: skip
    assert list(found["input_tokens"]) == ["mean", "p50", "p90", "p99"]
    assert found["requests"] == 3 and found["lru_hit_ratio"] == {"2": 0.0, "8": 0.32}


def test_stats_table_and_csv(mooncake: Path, tmp_path: Path) -> None:
    result = done("trace", "stats", mooncake)
    assert result.stdout.startswith("Requests   3 over 3 s (1 requests/s)\nKV blocks  6 different ones of 512 tokens\n")
    assert "LRU cache [block]" in result.stdout and "infinite" in result.stdout
    assert (
        result.stderr == f"{mooncake}: taken (3): times in ms (as documented); blocks of 512 tokens (as documented)\n"
    )
    header, row = done("trace", "stats", mooncake, "--format", "csv").stdout.splitlines()
    assert header.startswith("requests,duration_seconds") and row.startswith("3,3.0")
    saved = done("trace", "stats", mooncake, "-o", tmp_path / "s.json")
    assert json.loads((tmp_path / "s.json").read_text())["requests"] == 3 and "wrote" in saved.stderr


def test_stats_without_blocks(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(samples.AZURE)
    result = done("trace", "stats", tmp_path / "t.csv")
    assert "KV blocks  none known" in result.stdout and "LRU" not in result.stdout
    assert "assumed (2): no block ids" in result.stderr
    assert done("trace", "stats", tmp_path / "t.csv", "-q").stderr == ""


def test_the_report_is_on_stderr_also_from_the_cache(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.AGENT)
    first, again = (done("trace", "stats", path, "--format", "json") for _ in range(2))
    assert first.stderr == again.stderr and "assumed (2): session starts: Poisson" in first.stderr
    json.loads(first.stdout)


def test_block_sizes_are_converted_or_chosen(tmp_path: Path, mooncake: Path) -> None:
    for option in ("--regroup", "--block-size"):
        smaller = json.loads(done("trace", "stats", mooncake, option, "64", "--format", "json").stdout)
        assert (smaller["block_size"], smaller["distinct_blocks"]) == (64, 36 if option == "--regroup" else 6)
    tokens = jsonl(tmp_path / "k.jsonl", samples.TOKENS)
    assert (
        json.loads(done("trace", "stats", tokens, "--block-size", "10", "--format", "json").stdout)["block_size"] == 10
    )


def test_generate_is_the_same_for_a_seed(tmp_path: Path) -> None:
    def made(name: str, *options: str) -> bytes:
        done("trace", "generate", "--preset", "qa", "--sessions", "5", *options, "-o", tmp_path / name)
        return (tmp_path / name).read_bytes()

    first, again, other = made("a.jsonl", "--seed", "1"), made("b.jsonl", "--seed", "1"), made("c.jsonl", "--seed", "2")
    assert first == again != other
    assert made("a.jsonl.gz", "--seed", "1") == made("b.jsonl.gz", "--seed", "1")
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == first
    assert done("trace", "generate", "--preset", "qa", "--sessions", "5", "--seed", "1").stdout.encode() == first


@pytest.mark.parametrize("preset", command.PRESETS)
def test_generate_takes_its_options(preset: str, tmp_path: Path) -> None:
    output = tmp_path / "t.jsonl"
    options = [
        "--rate",
        "30/min",
        "--input-tokens",
        "500",
        "--output-tokens",
        "20",
        "--block-size",
        "32",
        "--arrivals",
        "fixed",
    ]
    done("trace", "generate", "--preset", preset, "--sessions", "40", *options, "-o", output)
    trace = read_trace(output)
    assert trace.block_size == 32 and 300 < trace.input_tokens[trace.turn == 0].mean() < 700
    if preset != "coding":
        assert trace.arrival[1] == 2.0


def test_convert_between_formats(tmp_path: Path, mooncake: Path) -> None:
    own, back, table = tmp_path / "own.jsonl", tmp_path / "back.jsonl", tmp_path / "t.csv"
    done("trace", "convert", mooncake, "-o", own)
    done("trace", "convert", own, "--to", "mooncake", "-o", back)
    assert [json.loads(line) for line in back.read_text().splitlines()] == samples.MOONCAKE
    done("trace", "convert", mooncake, "-o", table)
    assert table.read_text().startswith("TIMESTAMP,ContextTokens,GeneratedTokens\n2000-01-01 00:00:00.000000,1500,5\n")
    assert done("trace", "convert", mooncake, "--to", "mooncake").stdout == back.read_text()


def test_convert_changes_times(mooncake: Path) -> None:
    def times(*options: str) -> list[float]:
        text = done("trace", "convert", mooncake, "--to", "mooncake", *options).stdout
        return [json.loads(line)["timestamp"] for line in text.splitlines()]

    assert times("--time-scale", "2") == [0, 0, 6000]
    assert times("--rate", "3/min") == [0, 0, 60000]
    spread = times("--spread", "3", "--seed", "1")
    assert spread == times("--spread", "3", "--seed", "1") and spread == sorted(spread) and len(set(spread)) == 3


def test_the_grid_is_pointed_out_and_left(tmp_path: Path) -> None:
    rows = [{**samples.MOONCAKE[0], "timestamp": 3000 * (i // 5)} for i in range(50)]
    path = jsonl(tmp_path / "t.jsonl", rows)
    assert "arrivals sit on a grid of 3 s" in done("trace", "stats", path).stderr
    result = done("trace", "convert", path, "--spread", "auto", "-o", tmp_path / "o.jsonl")
    assert "on a grid" not in result.stderr
    assert "on a grid" not in done("trace", "stats", tmp_path / "o.jsonl").stderr


def test_sample_keeps_groups(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    done("trace", "generate", "--preset", "coding", "--sessions", "30", "--turns", "3", "-o", path)
    result = done("trace", "sample", path, "--share", "50%", "--interquartile", "-o", tmp_path / "s.jsonl")
    assert "wrote" in result.stderr
    assert 0 < len(read_trace(tmp_path / "s.jsonl")) < len(read_trace(path))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stats"], "Missing argument 'FILE'"),
        (["stats", "none.jsonl"], "none.jsonl: No such file"),
        (["stats", "t.jsonl", "--lru", "0"], "--lru: '0'; allowed"),
        (["stats", "t.jsonl", "--lru", "1,,2"], "--lru: "),
        (["stats", "t.jsonl", "--lru", "x"], "--lru: "),
        (["stats", "t.jsonl", "--regroup", "48"], "--regroup: a block size of 48 tokens; allowed"),
        (["stats", "t.jsonl", "--from", "agent"], "t.jsonl: line 1: block_size: is missing"),
        (["stats", "t.jsonl", "--from", "csv"], "'csv' is not one of"),
        (["stats", "t.jsonl", "--session-rate", "0"], "--session-rate: '0' is out of range"),
        (["stats", "t.jsonl", "-o", "x.txt"], "--output: x.txt has no known suffix"),
        (["stats", ".."], "a folder without traces"),
        (["convert", "t.jsonl", "--rate", "nan"], "--rate: 'nan' is out of range"),
        (["convert", "t.jsonl", "--rate", "1", "--time-scale", "2"], "--rate: given together with --time-scale"),
        (["convert", "t.jsonl", "--time-scale", "-1"], "--time-scale: '-1' is out of range"),
        (["convert", "t.jsonl", "--spread", "auto"], "--spread: the arrivals sit on no grid"),
        (["convert", "t.jsonl", "--spread", "0"], "--spread: '0' is out of range"),
        (["convert", "t.jsonl", "--spread", "x"], "--spread: 'x' is not a number"),
        (["convert", "t.jsonl", "-o", "x.nc"], "--output: x.nc has no known suffix; allowed: .jsonl"),
        (["convert", "t.jsonl", "-o", "t.jsonl"], "--output: t.jsonl is an input, too"),
        (["convert", "t.jsonl", "-o", "no/t.jsonl"], "--output: the folder no does not exist"),
        (["sample", "t.jsonl"], "--share: missing"),
        (["sample", "t.jsonl", "--share", "0"], "--share: '0' is out of range"),
        (["sample", "t.jsonl", "--share", "2"], "--share: 2 is out of range"),
        (["sample", "t.jsonl", "--interquartile"], "no sessions"),
        (["generate"], "Missing option '--preset'"),
        (["generate", "--preset", "chat"], "'chat' is not one of"),
        (["generate", "--preset", "qa", "--sessions", "0"], "--sessions"),
        (["generate", "--preset", "qa", "--sessions", "9999999"], "--sessions"),
        (["generate", "--preset", "qa", "--seed", "-1"], "--seed"),
        (["generate", "--preset", "qa", "--rate", "inf"], "--rate: 'inf' is out of range"),
        (["generate", "--preset", "qa", "--think", "5"], "--think: preset qa has none"),
        (["generate", "--preset", "uniform", "--turns", "5"], "--turns: preset uniform has none"),
        (["generate", "--preset", "qa", "--input-tokens", "1e11"], "--input-tokens: 1e+11 tokens; allowed"),
        (["make"], "make"),
    ],
)  # fmt: skip
def test_refusals(arguments: list[str], said: str, mooncake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mooncake.parent)
    assert said in refused("trace", *arguments)
    assert sorted(path.name for path in mooncake.parent.iterdir()) == ["t.jsonl"]


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)
    path.write_text(path.read_text()[:-20])
    assert refused("trace", "stats", path).startswith(f"{path}: line 3: not JSON")
