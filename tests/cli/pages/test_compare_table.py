"""The table of ``kvsweep compare``."""

from __future__ import annotations

from pathlib import Path

from tests.cli_runner import done


def test_figures_of_hardware_are_told_alike_on_both_sides(tmp_path: Path) -> None:
    """One side is a catalog's number, the other what somebody typed."""
    done("sweep", "-o", tmp_path / "a.nc", "-q", "--hit-ratio", "0.5")
    done("sweep", "-o", tmp_path / "b.nc", "-q", "--hit-ratio", "0.5", "--disk-bandwidth", "7 GB/s")
    text = done("compare", tmp_path / "a.nc", tmp_path / "b.nc").stdout
    (line,) = (line for line in text.splitlines() if line.startswith("disk_bandwidth"))
    assert line.split() == ["disk_bandwidth", "2", "GB/s", "7", "GB/s"]
