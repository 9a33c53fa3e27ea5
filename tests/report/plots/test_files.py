"""Figure files: suffixes, refusals, equal bytes, metadata, embedded fonts, and a style nobody's settings change."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure
from PIL import Image

from kvsweep.errors import InputError
from kvsweep.report.plots.files import write_figure
from kvsweep.report.plots.sweeps import heatmap
from tests.results.sweep_samples import small


def figure() -> Figure:
    return heatmap.figure(small(), {"policy": "default_policy"})


@pytest.mark.parametrize("suffix", [".pdf", ".svg", ".png"])
def test_equal_figures_give_equal_bytes(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    write_figure(figure(), first)
    with matplotlib.rc_context({"font.size": 20, "svg.hashsalt": "mine", "savefig.dpi": 30}):
        write_figure(figure(), second)
    assert first.read_bytes() == second.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [first.name, second.name], "no temporary file stays"


def test_metadata_name_the_picture_and_its_maker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    for suffix in ("pdf", "svg", "png"):
        write_figure(figure(), tmp_path / f"figure.{suffix}")
    svg = (tmp_path / "figure.svg").read_text()
    assert "<dc:title>Which requests meet their SLO — h200" in svg and "<dc:date>2023-11-14" in svg
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/CreationDate (D:20231114" in pdf and b"/Creator (kvsweep " in pdf
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.info["Title"].startswith("Which requests") and picture.info["Software"].startswith("kvsweep ")


def test_fonts_are_embedded(tmp_path: Path) -> None:
    write_figure(figure(), tmp_path / "figure.pdf")
    pdf = (tmp_path / "figure.pdf").read_bytes()
    assert b"/FontFile2" in pdf and not re.search(rb"/Subtype /Type3\b", pdf)
    write_figure(figure(), tmp_path / "figure.svg")
    svg = (tmp_path / "figure.svg").read_text()
    assert "<text" not in svg and "DejaVuSans" in svg, "text is drawn as outlines"


def test_dpi_sets_the_pixels(tmp_path: Path) -> None:
    for dpi, width in ((50, 360), (None, 1152)):
        write_figure(figure(), tmp_path / "figure.png", force=True, dpi=dpi)
        with Image.open(tmp_path / "figure.png") as picture:
            assert picture.width == width


def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"suffix \.jpg; allowed: \.pdf, \.svg, \.png"):
        write_figure(figure(), tmp_path / "figure.jpg")
    with pytest.raises(InputError, match="suffix missing"):
        write_figure(figure(), tmp_path / "figure")
    (tmp_path / "figure.png").write_text("mine")
    with pytest.raises(InputError, match="--force"):
        write_figure(figure(), tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_text() == "mine"


def test_the_gallery_leaves_pictures_alone_that_show_the_same(tmp_path: Path) -> None:
    put = runpy.run_path(str(Path(__file__).parents[3] / "figures" / "make_gallery.py"), run_name="gallery")["put"]
    picture = Image.effect_noise((60, 40), 50.0).convert("RGB").quantize(128, dither=Image.Dither.NONE)
    target = tmp_path / "picture.png"
    picture.save(target, compress_level=1)
    packed = target.read_bytes()
    assert not put(picture, target) and target.read_bytes() == packed
    assert put(picture.rotate(180), target) and target.read_bytes() != packed
