"""Parsed traces are kept by content; a damaged or foreign cache file is ignored and written again."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from kvsweep.cache import cache_directory, write_whole
from kvsweep.trace import cached
from kvsweep.trace.model import Trace
from kvsweep.trace.read import ReadOptions, read_trace
from tests.trace import samples
from tests.trace.samples import jsonl, traces
from tests.trace.test_write import same


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traces"


def test_the_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", "/x")
    assert cache_directory("traces") == Path("/x/traces")
    monkeypatch.delenv("KVSWEEP_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", "/y")
    assert cache_directory("kernels") == Path("/y/kvsweep/kernels")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory("traces") == Path.home() / ".cache" / "kvsweep" / "traces"


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OSError, match="no"):
        write_whole(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


@given(traces())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_stored_comes_back(tmp_path: Path, trace: Trace) -> None:
    cached.store(tmp_path / "t.npz", trace)
    found = cached.load(tmp_path / "t.npz")
    assert found is not None and same(found, trace) and found.notes == trace.notes and found.source == trace.source


def test_the_second_reading_parses_nothing(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.AGENT)
    first = read_trace(path)
    assert len(list(folder.glob("*.npz"))) == 1
    monkeypatch.setattr("kvsweep.trace.read._read", None)
    again = read_trace(path)
    assert same(first, again) and again.notes == first.notes


def test_content_options_and_code_make_the_key(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.TOKENS)
    assert read_trace(path).block_size == 16
    assert read_trace(path, ReadOptions(block_size=8)).block_size == 8
    assert read_trace(path, ReadOptions(time_unit="ms")).duration == 2e6
    assert read_trace(path, ReadOptions(output_tokens=9)).output_tokens.tolist() == [3, 5, 4]
    jsonl(path, samples.TOKENS[:2])
    assert len(read_trace(path)) == 2
    monkeypatch.setattr(cached, "_code", lambda: b"edited")
    read_trace(path)
    assert len(list(folder.glob("*.npz"))) == 6


def test_files_beside_the_trace_belong_to_the_key(tmp_path: Path, folder: Path) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.RAGPULSE)
    assert read_trace(path).block_size == 0
    for name, rows in samples.RAG_LENGTHS.items():
        jsonl(tmp_path / name, rows)
    assert read_trace(path).block_size == 16


def damages(data: bytes) -> list[bytes]:
    middle = len(data) // 2
    return [
        b"",
        b"noise",
        data[:middle],
        data[:middle] + b"\xff\xff\xff\xff" + data[middle + 4 :],
        data[: len(data) - 30],
    ]


@pytest.mark.parametrize("which", range(5))
def test_a_damaged_file_is_written_again(tmp_path: Path, folder: Path, which: int) -> None:
    path = jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)
    expected = read_trace(path)
    (entry,) = folder.glob("*.npz")
    whole = entry.read_bytes()
    entry.write_bytes(damages(whole)[which])
    assert same(read_trace(path), expected)
    assert cached.load(entry) is not None


def test_pickles_and_foreign_files_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", about=np.array([{"a": 1}], dtype=object))
    assert cached.load(tmp_path / "t.npz") is None
    np.savez(tmp_path / "u.npz", other=np.zeros(3))
    assert cached.load(tmp_path / "u.npz") is None


def test_arrays_that_do_not_belong_together_are_not_loaded(tmp_path: Path) -> None:
    trace = samples.made([(0.0, 100, 1, [1, 2]), (1.0, 100, 1, [1])])
    cached.store(tmp_path / "t.npz", trace)
    with np.load(tmp_path / "t.npz") as data:
        arrays = dict(data)
    np.savez(tmp_path / "t.npz", **{**arrays, "arrival": arrays["arrival"][:1]})
    assert cached.load(tmp_path / "t.npz") is None


def test_a_directory_that_cannot_be_written_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KVSWEEP_CACHE_DIR", str(tmp_path / "file"))
    assert len(read_trace(jsonl(tmp_path / "t.jsonl", samples.MOONCAKE))) == 3
