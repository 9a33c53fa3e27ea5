"""Traces that come through a pipe, and what has no end."""

from __future__ import annotations

import gzip
import json
import os
import threading
from pathlib import Path

import pytest

from kvsweep.errors import InputError
from kvsweep.policies.registry import load_policies
from kvsweep.trace.read import read_trace
from tests.cli_runner import refused, run
from tests.studies.samples import written
from tests.trace import samples

TEXT = "".join(json.dumps(row) + "\n" for row in samples.MOONCAKE).encode()


def piped(path: Path, *parts: bytes) -> Path:
    """Return a pipe through which a thread sends `parts`, one at a time."""
    os.mkfifo(path)

    def send() -> None:
        with path.open("wb", buffering=0) as end:
            for part in parts:
                end.write(part)

    threading.Thread(target=send, daemon=True).start()
    return path


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_read_as_the_file_is(pack: object, tmp_path: Path) -> None:
    data = pack(TEXT)  # type: ignore[operator]
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    file = read_trace(tmp_path / "a.jsonl")
    for number, parts in enumerate([(data,), (data[:3], data[3:]), tuple(bytes([byte]) for byte in data)]):
        assert read_trace(piped(tmp_path / f"pipe{number}", *parts)).input_tokens.tolist() == file.input_tokens.tolist()


def test_commands_read_pipes_and_studies_refuse_them(tmp_path: Path) -> None:
    result = run("trace", "stats", piped(tmp_path / "pipe", TEXT), "--format", "json")
    assert result.exit_code == 0 and json.loads(result.stdout)["requests"] == len(samples.MOONCAKE)
    os.mkfifo(tmp_path / "other")
    message = refused("cluster", "sweep", written(tmp_path, trace="other"), "-q")
    assert f"trace: {tmp_path / 'other'}: is a pipe or a device, which is read but once" in message


def test_what_has_no_end_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/dev/zero: line 1: binary data"):
        read_trace("/dev/zero")
    with pytest.raises(InputError, match="is parquet from a pipe"):
        read_trace(piped(tmp_path / "pipe", b"PAR1" + bytes(100)))
    assert "longer than allowed" in load_policies(["/dev/zero"]).problems[0]
