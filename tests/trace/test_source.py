"""Hostile and packed files: one line that names file, line and field, never a traceback, nothing executed."""

from __future__ import annotations

import gzip
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvsweep.errors import InputError
from kvsweep.trace import source
from kvsweep.trace.read import read_trace
from tests.trace import samples
from tests.trace.samples import jsonl

GOOD = json.dumps(samples.MOONCAKE[0])


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_trace(path, cache=False)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message, message
    return message.replace(str(path), "FILE")


def changed(**fields: Any) -> str:
    row = {**samples.MOONCAKE[0], **fields}
    return json.dumps({name: value for name, value in row.items() if value != "absent"})


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return (sys.exit, ("executed",))


SPLITWISE = "arrived_at,num_prefill_tokens,num_decode_tokens\n"
HOSTILE: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "FILE: holds no requests; allowed: at least one"),
    "only blank lines": ("\n \n\n", "FILE: holds no requests"),
    "truncated": (GOOD + "\n" + GOOD[:50], "FILE: line 2: not JSON"),
    "truncated at once": (GOOD[:50], "FILE: line 1: not JSON"),
    "not an object": (GOOD + "\n[1, 2]", "FILE: line 2: [1, 2] is not a JSON object"),
    "a number": (GOOD + "\n7", "FILE: line 2: 7 is not a JSON object"),
    "two objects": (GOOD + "\n" + GOOD + GOOD, "FILE: line 2: not JSON: Extra data"),
    "NaN": (GOOD + "\n" + changed(timestamp=float("nan")), "FILE: line 2: not JSON: NaN is no number JSON allows"),
    "infinity": (GOOD + "\n" + changed(input_length=float("inf")), "FILE: line 2: not JSON: Infinity is no number"),
    "huge float": (GOOD + '\n' + GOOD.replace('"timestamp": 0', '"timestamp": 1e999'), "line 2: timestamp: inf is out"),
    "negative time": (changed(timestamp=-5), "FILE: line 1: timestamp: -5 is out of range; allowed: 0 to 1e+14"),
    "time as text": (changed(timestamp="12"), "FILE: line 1: timestamp: '12' is not a number"),
    "time as truth": (changed(timestamp=True), "FILE: line 1: timestamp: True is not a number"),
    "huge integer time": (changed(timestamp=10**400), "FILE: line 1: timestamp: 1000000000"),
    "negative length": (changed(input_length=-1), "FILE: line 1: input_length: -1 is out of range; allowed: 0 to"),
    "absurd length": (changed(input_length=10**12), "input_length: 1000000000000 is out of range"),
    "fractional length": (changed(output_length=2.5), "FILE: line 1: output_length: 2.5 is not a whole number"),
    "length as list": (changed(output_length=[2]), "FILE: line 1: output_length: [2] is not a number"),
    "length missing": (changed(output_length="absent"), "FILE: line 1: output_length: is missing; allowed: a value; "),
    "length null": (changed(output_length=None), "FILE: line 1: output_length: is null"),
    "ids as text": (changed(hash_ids="abc"), "FILE: line 1: hash_ids: 'abc' is not a list"),
    "ids of text": (changed(hash_ids=["a"]), "FILE: line 1: hash_ids: 'a' is no id"),
    "ids negative": (changed(hash_ids=[0, -1]), "FILE: line 1: hash_ids: -1 is no id"),
    "ids too large": (changed(hash_ids=[2**63]), f"FILE: line 1: hash_ids: {2**63} is no id"),
    "too many ids": (changed(hash_ids=list(range(2000))), "FILE: line 1: hash_ids: 2000 blocks for 1500 tokens"),
    "session as list": (changed(session_id=[1]), "FILE: line 1: session_id: [1] is no name"),
    "duplicate key": (GOOD[:-1] + ', "timestamp": 9}', "line 1: not JSON: the key 'timestamp' stands there twice"),
    "deep": ("[" * 100_000, "FILE: line 1: not JSON: nested too deeply"),
    "deep later": (GOOD + "\n" + "[" * 100_000, "FILE: line 2: not JSON: nested too deeply"),
    "only empty prompts": (changed(input_length=0, hash_ids=[]), "FILE: holds no requests that could be replayed"),
    "binary": (b"{\x00\x01\x02", "FILE: line 1: binary data"),
    "random bytes": (bytes(range(128, 256)), "FILE: line 1: not UTF-8 text"),
    "latin-1 later": ((GOOD + "\n").encode() + b'{"a": "\xe4"}', "FILE: line 2: not UTF-8 text"),
    "pickle": (pickle.dumps(Bomb()), "FILE: is a pickle, which could run code"),
    "zip": (b"PK\x03\x04abc", "FILE: is a zip archive"),
    "damaged gzip": (gzip.compress(GOOD.encode())[:-12], "FILE: line 1: damaged file"),
    "gzip of noise": (b"\x1f\x8b\x08\x00abcdefghijk", "FILE: line 1: damaged file"),
    "damaged zst": (b"\x28\xb5\x2f\xfdabcdefgh", "FILE: line 1: damaged file"),
    "damaged parquet": (b"PAR1abcdefghPAR1", "FILE: damaged parquet file"),
    "text": ("hello\nworld\n", "FILE: line 2: no known trace format has the fields 'hello'"),
    "only a header": ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "FILE: holds no requests"),
    "csv time": ("TIMESTAMP,ContextTokens,GeneratedTokens\nsoon,1,2\n", "FILE: line 2: TIMESTAMP: 'soon' is no time"),
    "csv cells": (SPLITWISE + "1,2\n", "FILE: line 2: 2 cells; allowed: 3"),
    "csv nan": (SPLITWISE + "nan,2,3\n", "FILE: line 2: arrived_at: 'nan' is not"),
    "csv negative": (SPLITWISE + "0,-2,3\n", "line 2: num_prefill_tokens: -2 is out"),
    "csv empty cell": (SPLITWISE + "0,,3\n", "num_prefill_tokens: '' is not a number"),
    "csv columns": ("a,b,a\n1,2,3\n", "FILE: line 1: a column stands there twice"),
    "csv quotes": ('a,b\n"1,2\n', "FILE: line 2: not CSV"),
    "header only": ('{"kvsweep_trace": 1, "block_size": 16, "requests": 0}', "FILE: holds no requests that could be"),
    "newer version": ('{"kvsweep_trace": 2, "block_size": 16, "requests": 0}', "kvsweep_trace: 2 is out of range"),
    "cut off": ('{"kvsweep_trace": 1, "block_size": 16, "requests": 3}', "FILE: 0 requests; allowed: 3, as the header"),
    "own runs": (
        '{"kvsweep_trace": 1, "block_size": 16, "requests": 1}\n'
        '{"arrival": 0, "input_tokens": 20, "output_tokens": 1, "blocks": [0, 1000000000000]}',
        "FILE: line 2: blocks: 1000000000000 blocks for 20 tokens; allowed: at most 2",
    ),
    "odd runs": (json.dumps({**samples.AGENT[1], "requests": [{"t": 0, "in": 64, "out": 1, "h": [1]}]}),
                 "FILE: line 1: requests[0]: h: 1 numbers; allowed: pairs"),
    "long runs": (json.dumps({**samples.AGENT[1], "requests": [{"t": 0, "in": 64, "out": 1, "h": [1, 10**15]}]}),
                  "requests[0]: h: 1000000000000000 blocks for 64 tokens"),
    "no block size": (json.dumps({"bs": 0, "requests": []}), "FILE: line 1: bs: 0 is out of range"),
    "turn no object": (json.dumps({"bs": 64, "requests": [3]}), "FILE: line 1: requests: [3] is not a list of objects"),
    "columns differ": (json.dumps({**samples.VLLM, "output_lens": [1]}), "FILE: line 1: start_times: not as long"),
    "start is text": (json.dumps({**samples.VLLM, "start_times": ["a", 1, 2]}), "line 1: request 0: start: 'a' is not"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_place(name: str, tmp_path: Path) -> None:
    content, said = HOSTILE[name]
    path = tmp_path / "trace"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert said in refusal(path)


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jsonl") == "FILE: No such file or directory"
    assert "is a folder" in refusal(tmp_path)


def test_a_line_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "MAX_LINE", 100)
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": "' + "x" * 1000)
    assert refusal(path) == "FILE: line 1: longer than allowed: 100 bytes"
    monkeypatch.setattr(source, "MAX_LINE", 10**6)
    monkeypatch.setattr(source, "MAX_DOCUMENT", 100)
    path.write_text("{\n" + "1,\n" * 1000)
    assert refusal(path) == "FILE: one JSON document larger than allowed: 100 bytes"


@given(st.binary(max_size=60))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_bring_it_down(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "noise"
    for head in (b"", b"{", GOOD.encode() + b"\n", b"a,b\n", b"\x1f\x8b", b"PAR1"):
        path.write_bytes(head + data)
        try:
            read_trace(path, cache=False)
        except InputError as error:
            assert str(path) in str(error)


def test_blank_lines_marks_and_line_ends_are_no_matter(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode() + b"\r\n\r\n" + GOOD.encode())
    trace = read_trace(path, cache=False)
    assert len(trace) == 2 and [str(note) for note in trace.notes] == ["dropped (1): blank lines"]


def test_packed_files_are_read_by_content(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet
    import zstandard

    plain = jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)
    text = plain.read_bytes()
    for name, data in {"t.gz": gzip.compress(text), "t.zst": zstandard.ZstdCompressor().compress(text)}.items():
        (tmp_path / name).write_bytes(data)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(samples.MOONCAKE), tmp_path / "t.parquet")
    expected = read_trace(plain, cache=False)
    for name in ("t.gz", "t.zst", "t.parquet"):
        found = read_trace(tmp_path / name, cache=False)
        assert found.blocks.tolist() == expected.blocks.tolist() and found.arrival.tolist() == expected.arrival.tolist()


@pytest.mark.parametrize(("magic", "module"), [(b"\x28\xb5\x2f\xfd", "zstandard"), (b"PAR1", "pyarrow")])
def test_optional_readers_say_how_to_install_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, magic: bytes, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "t"
    path.write_bytes(magic + b"abc")
    assert refusal(path) == f"FILE: needs {module}; install it with: pip install 'kvsweep[data]'"
