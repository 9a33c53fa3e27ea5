"""What all tests share: compiled kernels in a folder of this run, no settings of the user, the reference cases."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

CASES = Path(__file__).parent / "cases"
FIDELITIES = ("paper", "engine")
"""Fidelities of the cluster simulator that its oracles are asked of."""

# Set before any test module imports kvsweep; subprocesses inherit it.
# In CI the folder is the one CI made, so that all is compiled anew; else that of the run before.
_CACHE = os.environ.get("KVSWEEP_CACHE_DIR") if os.environ.get("CI") else None
for name in [name for name in os.environ if name.startswith("KVSWEEP_") and name != "KVSWEEP_DATA"]:
    del os.environ[name]
os.environ["KVSWEEP_CACHE_DIR"] = _CACHE or str(Path(tempfile.gettempdir()) / f"kvsweep-tests-{os.getuid()}")


def reference_cases(kind: str) -> list[dict[str, Any]]:
    """Return the handed reference cases of one kind."""
    cases: list[dict[str, Any]] = json.loads((CASES / "analytic.json").read_text())["cases"]
    return [case for case in cases if case["kind"] == kind]


@pytest.fixture(params=FIDELITIES)
def fidelity(request: pytest.FixtureRequest) -> str:
    """Return each fidelity of the cluster simulator in turn."""
    return str(request.param)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Turn a skip into a failure in CI, where every tool is installed and nothing may be passed over."""
    report = yield
    if report.skipped and os.environ.get("CI") and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
