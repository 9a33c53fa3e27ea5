"""``kvsweep catalog`` through click's runner."""

from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvsweep.catalog.load import FILES, load
from kvsweep.cli.analytic.catalog import KINDS, catalog
from kvsweep.cli.output import TABLE_WIDTH
from kvsweep.errors import InputError


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(catalog, [str(argument) for argument in arguments])


def listed(*arguments: str | Path) -> list[dict[str, object]]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0 and result.stderr == ""
    rows: list[dict[str, object]] = json.loads(result.stdout)
    return rows


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    directory = tmp_path / "mine"
    directory.mkdir()
    (directory / "links.yaml").write_text("Mine: {bandwidth: 1.0e+10}\nPCIe: {bandwidth: 2.0e+10}\n")
    return directory


def test_kinds_are_those_of_the_catalog() -> None:
    assert list(KINDS) == list(FILES)


def test_overview_counts_every_kind() -> None:
    result = run()
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["gpus", "47", "accelerators"]
    assert "kvsweep catalog policies" in result.stderr
    assert {row["kind"]: row["entries"] for row in listed()} == {
        kind: len(load().entries(kind)) for kind in KINDS
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_table_fits_the_terminal_and_lists_every_key(kind: str) -> None:
    result = run(kind)
    assert result.exit_code == 0 and result.stderr == ""
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= TABLE_WIDTH
    assert [line.split()[0] for line in lines[1:]] == list(load().entries(kind))
    assert lines[0].split()[0] == "key" and lines[0].split()[-2:] == ["source", "kind"]


def test_table_shows_human_units() -> None:
    lines = run("gpus").stdout.splitlines()
    assert " ".join(lines[0].split()) == "key name peak [TFLOP/s] HBM [GB/s] HBM [GB] cost [USD] source kind"
    assert lines[1].split() == ["H200", "H200", "4000", "4800", "141", "40000", "kvc-tiersim", "assumed"]
    rows = {line.split()[0]: line.split() for line in run("models").stdout.splitlines()}
    assert rows["gpt-oss-20b"][1:6] == ["20.91", "0.3932", "24.58", "49.15", "3.146"]
    assert rows["llama3-8b"][1:6] == ["8", "2", "–", "–", "–"]


@pytest.mark.parametrize("kind", KINDS)
def test_json_holds_full_entries_in_base_units(kind: str) -> None:
    rows = listed(kind)
    assert [row["key"] for row in rows] == list(load().entries(kind))
    assert all(row["source"] and row["kind"] for row in rows)


def test_json_of_single_entries() -> None:
    h100 = next(row for row in listed("gpus") if row["key"] == "h100-sxm")
    assert h100["peak_flops"] == 9.89e14 and h100["compute"]["fp8_flops"] == 1.979e15  # type: ignore[index]
    store = next(row for row in listed("disks") if row["key"] == "3fs-client")
    assert store["capacity"] is None
    gemma = next(row for row in listed("models") if row["key"] == "gemma-3-27b")
    assert gemma["kv"] == {
        "bytes_per_token": 81_920,
        "bytes_per_token_all_layers": 507_904,
        "fixed_bytes_per_sequence": 436_207_616,
    }


@pytest.mark.parametrize("kind", KINDS)
def test_csv_holds_the_same_entries(kind: str) -> None:
    rows = list(csv.DictReader(io.StringIO(run(kind, "--format", "csv").stdout)))
    assert [row["key"] for row in rows] == list(load().entries(kind))
    assert not {"nan", "inf", "NaN", "Infinity"} & {cell for row in rows for cell in row.values()}


def test_format_may_stand_before_the_kind() -> None:
    assert run("--format", "csv", "links").stdout == run("links", "--format", "csv").stdout
    assert json.loads(run("--format", "csv", "links", "--format", "json").stdout)


def test_hardware_directories_are_laid_over(mine: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "links.yaml").write_text("PCIe: {bandwidth: 3.0e+10}\n")
    rows = {row["key"]: row["bandwidth"] for row in listed("links", "--hardware", mine)}
    assert (rows["Mine"], rows["PCIe"]) == (1e10, 2e10)
    rows = {row["key"]: row["bandwidth"] for row in listed("--hardware", mine, "links", "--hardware", other)}
    assert (rows["Mine"], rows["PCIe"]) == (1e10, 3e10)
    assert listed("--hardware", mine)[3]["entries"] == len(load().links) + 1


def test_policies() -> None:
    rows = listed("policies")
    assert {"default_policy", "all_compute", "performance_aware"} <= {row["name"] for row in rows}
    assert all(
        {"label", "description", "color", "order", "recomputes", "modes", "origin"} <= row.keys() for row in rows
    )
    assert "performance_aware" in run("policies").stdout


def test_sources_resolve_every_key_of_the_source_columns() -> None:
    rows = {row["key"]: row["citation"] for row in listed("sources")}
    assert rows == dict(load().sources)


def test_check_says_what_a_directory_adds_and_changes(mine: Path) -> None:
    result = run("check", mine)
    assert result.exit_code == 0
    assert result.stdout == f"links: adds Mine\nlinks: changes PCIe\n{mine}: valid\n"


def test_check_refuses_a_bad_directory(mine: Path) -> None:
    (mine / "links.yaml").write_text("PCIe: {bandwidth: 64}\n")
    result = run("check", mine)
    assert isinstance(result.exception, InputError) and result.stdout == ""
    assert str(result.exception) == (
        f"{mine / 'links.yaml'}: PCIe: bandwidth: 64 is out of range; allowed: 1e+06 to 1e+15 byte/s"
    )


def test_unknown_kind_names_the_nearest() -> None:
    result = run("gpu")
    assert result.exit_code == 2 and "gpus" in result.stderr


@pytest.mark.parametrize("arguments", [["-h"], ["gpus", "-h"], ["check", "-h"], ["policies", "--help"]])
def test_help(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 0 and "Usage" in result.stdout


def test_show_gives_every_figure_its_source() -> None:
    result = run("show", "h100-sxm")
    assert result.exit_code == 0
    assert "h100-sxm  (gpus): H100 SXM5 80GB" in result.stdout and "(prices): H100 SXM on demand" in result.stdout
    assert re.search(r"memory.bytes_per_s +3.35e[+]12 byte/s [(]3.35 TB/s[)] +vendor +aic-systems", result.stdout)
    assert re.search(r"^aic-systems: ai-dynamo/aiconfigurator", result.stdout, re.M)
    assert json.loads(run("show", "h100-sxm", "--format", "json").stdout)["prices"]["date"] == "2026-11"
    refused = run("show", "zai-org/GLM-4.8")
    assert isinstance(refused.exception, InputError) and "did you mean 'glm-4." in str(refused.exception)


def test_model_tells_what_is_kept_moved_and_allocated(tmp_path: Path) -> None:
    found = json.loads(run("model", "deepseek-v3.2", "--kv-dtype", "fp8", "--format", "json").stdout)
    assert found["kv_bytes_per_token"] == 35_136 and found["moved_bytes_per_token"] == 35_136 + 8_052
    assert found["allocated_bytes_per_token_tp8"] == 8 * found["moved_bytes_per_token"]
    assert found["weight_bytes"] == pytest.approx(674_002_323_648, abs=1)
    assert run("model", "deepseek-v3.2", "--weight-dtype", "bf16").stdout.count("weights in bf16") == 1
    file = tmp_path / "config.json"
    file.write_text("{}")
    refused = run("model", str(file))
    assert f"MODEL: {file}: num_hidden_layers: missing" in str(refused.exception)
    assert "llama3-8b has no shape" in str(run("model", "llama3-8b").exception)
