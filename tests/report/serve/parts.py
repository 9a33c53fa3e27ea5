"""What the tests of the dashboard share: a client, and policies and parts of a user."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from kvsweep.report.payload import Payload
from kvsweep.report.serve.app import create_app

HOSTILE = '</script><script>pwned=1</script><img src=x onerror="pwned=2">&amp;\'"` Ünïcødé 日本 ' + "very long " * 100

POLICY = '''
name, label, description, color, order = "{name}", """{label}""", """{label}""", "#123456", {order}
recomputes, modes = "any", ("half",)
def decide(ctx):
    {body}
'''
BASE = "http://127.0.0.1:8000"


def client(policy_files: Sequence[Path] = (), hardware: Sequence[Path] = ()) -> TestClient:
    """Return a client whose server's failures are answers, as they are for everyone else."""
    return TestClient(create_app(policy_files, hardware), base_url=BASE, raise_server_exceptions=False)


def write_policy(path: Path, name: str, label: str = "Mine", body: str = 'return 0.5 * ctx.hit_blocks, "half"') -> Path:
    path.write_text(POLICY.format(name=name, label=label.replace("\\", "\\\\"), body=body, order=99))
    return path


def write_hardware(folder: Path, name: str) -> Path:
    folder.mkdir()
    title = name.replace("'", "''")
    (folder / "gpus.yaml").write_text(
        f"Mine1:\n  name: '{title}'\n  peak_flops: 5.0e+14\n  hbm_bandwidth: 2.0e+12\n  hbm_capacity: 9.0e+10\n"
    )
    return folder


def payload_of(answer: dict[str, Any]) -> Payload:
    return Payload(answer["header"], {name: base64.b64decode(text) for name, text in answer["planes"].items()})
