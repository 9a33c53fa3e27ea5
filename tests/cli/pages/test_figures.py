"""``kvsweep figures`` and ``kvsweep roofline`` through click's runner."""

from __future__ import annotations

import csv
import io
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kvsweep.cli.analytic.roofline import roofline
from kvsweep.cli.pages.figures import figures
from kvsweep.errors import InputError
from kvsweep.results.netcdf import write_netcdf
from tests.results.sweep_samples import small, wide

SCRIPTS = Path(__file__).parents[3] / "figures"
NAMES = (
    "heatmap",
    "success",
    "sufficient",
    "violins",
    "roofline",
    "permutations",
    "affinity",
    "ttl",
    "sources",
    "cliff",
    "capacity",
)


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(figures, [str(argument) for argument in arguments])


def refused(*arguments: str | Path) -> str:
    result = run(*arguments)
    assert isinstance(result.exception, InputError)
    return str(result.exception)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("figures")
    write_netcdf(small(), folder / "small.nc")
    write_netcdf(wide(), folder / "wide.nc")
    return folder


@pytest.mark.parametrize("kind", ["heatmap", "sufficient", "success"])
def test_figures_of_a_sweep(kind: str, folder: Path) -> None:
    target = folder / f"{kind}.png"
    result = run(kind, folder / "small.nc", "-o", target)
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {target}\n"
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "arguments",
    [("violins", "--gpu", "H100", "--compression", "0.1"), ("roofline", "--stack", "h200"), ("permutations",)],
)
def test_figures_of_the_catalog(arguments: tuple[str, ...], tmp_path: Path) -> None:
    assert run(*arguments, "-o", tmp_path / "figure.svg").exit_code == 0
    assert (tmp_path / "figure.svg").read_text().startswith("<?xml")


def test_a_slice_is_chosen_with_select_and_axes(folder: Path, tmp_path: Path) -> None:
    chosen = ("--select", "placement=auto", "--select", "request_rate=0.1", "--select", "policy=default_policy")
    result = run("heatmap", folder / "wide.nc", "--x", "stack", *chosen, "-o", tmp_path / "figure.pdf")
    assert result.exit_code == 0 and (tmp_path / "figure.pdf").read_bytes().startswith(b"%PDF")


def test_what_is_wrong_is_told_before_anything_is_written(folder: Path, tmp_path: Path) -> None:
    out, wide_file = tmp_path / "figure.png", folder / "wide.nc"
    assert (
        refused("heatmap", wide_file, "-o", out) == "stack is open: h200, a5000; choose one, as in --select stack=h200"
    )
    assert "is not DIM=VALUE" in refused("heatmap", wide_file, "--select", "stack", "-o", out)
    assert "given twice" in refused(
        "heatmap", wide_file, "--select", "stack=h200", "--select", "stack=a5000", "-o", out
    )
    assert "--x: the sweep has no dim 'rate'" in refused("sufficient", wide_file, "--x", "rate", "-o", out)
    assert "suffix .gif" in refused("heatmap", wide_file, "-o", tmp_path / "figure.gif")
    assert "no such file" in refused("success", tmp_path / "no.nc", "-o", out)
    assert "--gpu: no 'H10'; did you mean 'H100'?" in refused("violins", "--gpu", "H10", "-o", out)
    assert "--stack: no 'h20'; did you mean 'h200'?" in refused("roofline", "--stack", "h20", "-o", out)
    assert "--y: request_rate is the dim of the columns" in refused(
        "heatmap", wide_file, "--y", "request_rate", "-o", out
    )
    for ratio in ("0", "-1", "nan", "inf", "1e-320"):
        assert "--compression: " in refused("violins", "--compression", ratio, "-o", out)
    assert "--hardware: " in refused("roofline", "--hardware", tmp_path / "none", "-o", out)
    assert run("heatmap", wide_file).exit_code == 2
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_overwritten_only_with_force(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "figure.png"
    out.write_text("mine")
    assert "--force" in refused("heatmap", folder / "small.nc", "-o", out)
    assert out.read_text() == "mine"
    assert run("heatmap", folder / "small.nc", "-o", out, "--force").exit_code == 0


def test_hardware_of_the_user_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "gpus.yaml").write_text("Mine: {peak_flops: 1.0e+15, hbm_bandwidth: 3.0e+12, hbm_capacity: 1.0e+11}\n")
    assert run("violins", "--gpu", "Mine", "--hardware", tmp_path, "-o", tmp_path / "figure.png").exit_code == 0


def test_roofline_prints_the_curves() -> None:
    result = CliRunner().invoke(roofline, ["--stack", "h200", "--blocks", "500,64000", "--format", "json"])
    assert json.loads(result.stdout) == [
        {"stack": "h200", "cost_dollars": 42650, "blocks": 500, "compute_seconds": pytest.approx(0.064),
         "storage_compute_seconds": pytest.approx(0.06420833333333334)},
        {"stack": "h200", "cost_dollars": 42650, "blocks": 64000, "compute_seconds": pytest.approx(8.192),
         "storage_compute_seconds": pytest.approx(8.253335784313725)},
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(CliRunner().invoke(roofline, ["--format", "csv"]).stdout)))
    assert len(rows) == 5 * 7 and {row["stack"] for row in rows} >= {"h200", "a5000"}
    assert CliRunner().invoke(roofline, []).stdout.splitlines()[0].split()[:2] == ["stack", "cost"]
    assert "--blocks" in str(CliRunner().invoke(roofline, ["--blocks", "1:0:1"]).exception)
    assert "did you mean 'h200'" in str(CliRunner().invoke(roofline, ["--stack", "h20"]).exception)


def test_help_loads_no_drawing() -> None:
    code = (
        "import sys, kvsweep.cli.pages.figures, kvsweep.cli.pages.compare, kvsweep.cli.analytic.roofline\n"
        "assert not {'matplotlib', 'xarray', 'numba'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", NAMES)
def test_scripts_are_short_and_make_their_figure(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = SCRIPTS / f"{name}.py"
    assert len(script.read_text().splitlines()) <= 30
    monkeypatch.setattr(sys, "argv", [str(script), str(tmp_path / "figure.png")])
    runpy.run_path(str(script), run_name="__main__")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_gallery_holds_every_figure_in_small() -> None:
    pictures = {path.stem: path.stat().st_size for path in (SCRIPTS / "gallery").glob("*.png")}
    assert set(pictures) == set(NAMES)
    assert max(pictures.values()) < 120_000


def test_files_of_somebody_else_are_drawn_with_what_they_hold(tmp_path: Path) -> None:
    ds = small().assign_attrs(kvsweep_config="{[: :")
    ds["policy_color"] = "policy", ["}</style>", "", *["#12"] * (ds.sizes["policy"] - 2)]
    ds.to_netcdf(tmp_path / "odd.nc")
    for kind in ("heatmap", "sufficient", "success"):
        assert run(kind, tmp_path / "odd.nc", "-o", tmp_path / f"{kind}.png").exit_code == 0
