"""The machine the decisions were timed on: their cost is a property of it and not of the modelled hardware."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numba

_CPUINFO = Path("/proc/cpuinfo")
_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def host() -> dict[str, str | int]:
    """Return CPU model, cores this process may use, frequency governor where the system tells, and versions."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found: dict[str, str | int] = {"cpu_model": _cpu_model(), "cpu_cores": cores}
    if governor := _text(_GOVERNOR).strip():
        found["cpu_governor"] = governor
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return found | {"python": python, "numba": numba.__version__, "system": platform.platform()}


def _cpu_model() -> str:
    names = [line.split(":", 1)[1].strip() for line in _text(_CPUINFO).splitlines() if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _text(path: Path) -> str:
    """Return the text of a file of the system, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
