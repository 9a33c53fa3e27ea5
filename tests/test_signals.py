"""A signal ends a command, whatever runs: nothing is written, and nothing else is blamed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli_runner import GOOD_POLICY, run

CODES = [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "terminated")]
WHEN_DECIDING = """
import os, signal
def decide(ctx):
    {}
    return 0.0, "half"
"""
RAISED = "os.kill(os.getpid(), signal.{0})"
SWALLOWED = "try:\n        os.kill(os.getpid(), signal.{0})\n    except BaseException:\n        pass"


@pytest.mark.parametrize(("name", "code", "word"), CODES)
@pytest.mark.parametrize("how", [RAISED, SWALLOWED])
def test_a_signal_is_never_a_policys_own(how: str, name: str, code: int, word: str, tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    policy = tmp_path / "mine.py"
    policy.write_text(GOOD_POLICY + WHEN_DECIDING.format(how.format(name)))
    output = tmp_path / "x.json"
    result = run("simulate", "--policy-file", policy, "-o", output)
    assert (result.exit_code, result.stdout) == (code, "")
    assert result.stderr == f"kvsweep: error: {word}\n"
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
    assert before == (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))


@pytest.mark.parametrize("where", ["decide", "import"])
def test_what_a_policy_raises_of_its_own_stays_its_own(where: str, tmp_path: Path) -> None:
    own = "class Mine(BaseException):\n    pass\n"
    raising = "raise Mine('done')" if where == "import" else "def decide(ctx):\n    raise Mine('done')"
    policy = tmp_path / "mine.py"
    policy.write_text(GOOD_POLICY + own + raising)
    for command in (("simulate",), ("sweep", "--hit-ratio", "0.5")):
        result = run(*command, "--policy-file", policy)
        assert result.exit_code == 0 and "performance_aware" in result.stdout
        assert "Mine" in result.stderr


ENDLESS = """
def decide(ctx):
    x = 1.0
    while x > 0.0:
        x = x + 1.0 if x < 1e6 else 1.0
    return x, "half"
"""


def test_compiled_code_without_end_is_ended(tmp_path: Path) -> None:
    """No handler of Python runs in the main thread while that is in compiled code."""
    policy = tmp_path / "mine.py"
    policy.write_text(GOOD_POLICY + ENDLESS)
    code = (
        "import sys, threading, os, signal, time\n"
        "from kvsweep import signals\n"
        "from kvsweep.cli import main\n"
        "from kvsweep.jit import policies as jit\n"
        "signals.GRACE_SECONDS = 0.5\n"
        "def later():\n"
        "    while not jit.is_compiled(policy):\n"
        "        time.sleep(0.2)\n"
        "    time.sleep(1.0)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "from kvsweep.policies.registry import load_policies\n"
        "policy = load_policies([sys.argv[1]])['mine']\n"
        "threading.Thread(target=later, daemon=True).start()\n"
        "main(['sweep', '--policies', 'mine', '--hit-ratio', '0.5', '--policy-file', sys.argv[1], '-o', sys.argv[2]])"
    )
    command = [sys.executable, "-c", code, policy, tmp_path / "x.nc"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (found.returncode, found.stderr.splitlines()[-1]) == (143, "kvsweep: error: terminated")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]
