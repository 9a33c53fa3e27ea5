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
from kvsweep.trace.files import text
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
    "not an object": (GOOD + "\n[1, 2]", "FILE: line 2: item 1: 1 is not a JSON object"),
    "a number": (GOOD + "\n7", "FILE: line 2: 7 is not a JSON object"),
    "two objects": (GOOD + "\n" + GOOD + "x" + GOOD, "FILE: line 2: not JSON: Extra data"),
    "NaN": (GOOD + "\n" + changed(timestamp=float("nan")), "FILE: line 2: not JSON: NaN is no number JSON allows"),
    "infinity": (GOOD + "\n" + changed(input_length=float("inf")), "FILE: line 2: not JSON: Infinity is no number"),
    "huge float": (GOOD + '\n' + GOOD.replace('"timestamp": 0', '"timestamp": 1e999'), "line 2: timestamp: inf is out"),
    "negative time": (changed(timestamp=-5), "FILE: line 1: timestamp: -5 is out of range; allowed: 0 to 1e+20"),
    "time as text": (changed(timestamp="12"), "FILE: line 1: timestamp: '12' is no time; allowed: a number, or a date"),
    "time as truth": (changed(timestamp=True), "FILE: line 1: timestamp: True is not a number"),
    "huge integer time": (changed(timestamp=10**400), "FILE: line 1: timestamp: 1000000000"),
    "negative length": (changed(input_length=-1), "FILE: line 1: input_length: -1 is out of range; allowed: 0 to"),
    "absurd length": (changed(input_length=10**12), "input_length: 1000000000000 is out of range"),
    "fractional length": (changed(output_length=2.5), "FILE: line 1: output_length: 2.5 is not a whole number"),
    "length as list": (changed(output_length=[2]), "FILE: line 1: output_length: [2] is not a number"),
    "length missing": (changed(output_length="absent"), "dropped (1): requests without an output length; --outp"),
    "length null": (changed(output_length=None), "dropped (1): requests without an output length"),
    "ids as text": (changed(hash_ids="abc"), "FILE: line 1: hash_ids: 'abc' is not a list"),
    "ids of text": (changed(hash_ids=["a"]), "FILE: line 1: hash_ids: 'a' is no id"),
    "ids negative": (changed(hash_ids=[0, -1]), "FILE: line 1: hash_ids: -1 is no id"),
    "ids too large": (changed(hash_ids=[2**64]), f"FILE: line 1: hash_ids: {2**64} is no id"),
    "too many ids": (changed(hash_ids=list(range(2000))), "line 1: 2000 blocks for 1500 tokens; allowed: at most 3"),
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
    "csv nan": (SPLITWISE + "nan,2,3\n", "FILE: line 2: arrived_at: 'nan' is no time"),
    "csv negative": (SPLITWISE + "0,-2,3\n", "line 2: num_prefill_tokens: -2 is out"),
    "csv empty cell": (SPLITWISE + "0,,3\n", "num_prefill_tokens: is empty; allowed: a whole number"),
    "csv columns": ("a,b,a\n1,2,3\n", "FILE: line 1: a column stands there twice"),
    "csv quotes": ('a,b\n"1,2\n', "FILE: line 2: not CSV"),
    "header only": ('{"kvsweep_trace": 1, "block_size": 16, "requests": 0}', "FILE: holds no requests that could be"),
    "newer version": ('{"kvsweep_trace": 2, "block_size": 16, "requests": 0}', "kvsweep_trace: 2 is out of range"),
    "cut off": ('{"kvsweep_trace": 1, "block_size": 16, "requests": 3}', "FILE: 0 requests; allowed: 3, as the header"),
    "own runs": (
        '{"kvsweep_trace": 1, "block_size": 16, "requests": 1}\n'
        '{"arrival": 0, "input_tokens": 20, "output_tokens": 1, "blocks": [0, 1000000000000]}',
        "FILE: line 2: blocks: 1000000000000 blocks for 21 tokens; allowed: at most 2",
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
    assert refusal(tmp_path).startswith("FILE: a folder without traces; allowed: one with files that end in .jsonl")


def test_lines_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "MAX_LINE", 200)
    monkeypatch.setattr(text, "MAX_DOCUMENT", 400)
    path = tmp_path / "t.jsonl"
    path.write_text(GOOD + '\n{"a": "' + "x" * 1000)
    assert refusal(path) == "FILE: line 2: longer than allowed: 200 bytes"
    path.write_text('{"a": "' + "x" * 1000)
    assert refusal(path) == "FILE: line 1: longer than allowed: 400 bytes"
    path.write_text("{\n" + "1,\n" * 1000)
    assert refusal(path) == "FILE: one JSON document larger than allowed: 400 bytes"


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
    assert len(trace) == 2 and "dropped (1): blank lines" in map(str, trace.notes)


def test_packed_files_are_read_by_content(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet
    import zstandard

    plain = jsonl(tmp_path / "t.jsonl", samples.MOONCAKE)
    text = plain.read_bytes()
    head, tail = text.splitlines(keepends=True)[0], text.split(b"\n", 1)[1]
    zst = zstandard.ZstdCompressor()
    packed = {
        "t.gz": gzip.compress(text), "t.zst": zst.compress(text), "two.gz": gzip.compress(head) + gzip.compress(tail),
        "two.zst": zst.compress(head) + zst.compress(tail),
    }  # fmt: skip
    for name, data in packed.items():
        (tmp_path / name).write_bytes(data)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(samples.MOONCAKE), tmp_path / "t.parquet")
    expected = read_trace(plain, cache=False)
    for name in (*packed, "t.parquet"):
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


def test_values_may_follow_each_other_and_be_listed(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    pretty, line = json.dumps(samples.MOONCAKE[0], indent=1), json.dumps(samples.MOONCAKE)
    for content in (
        GOOD * 3,
        GOOD + "\n" + GOOD + " " + GOOD,
        line,
        line + "\n",
        pretty * 3,
        pretty + "\n" + pretty + line[:0] + pretty,
    ):
        path.write_text(content)
        assert len(read_trace(path, cache=False)) == 3


@pytest.mark.parametrize("separator", [";", "\t"])
def test_tables_may_be_separated_otherwise(tmp_path: Path, separator: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(samples.AZURE.replace(",", separator))
    assert read_trace(path, cache=False).input_tokens.tolist() == [374, 396]


def test_a_folder_is_one_trace_of_one_format(tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "LICENSE").write_text("words")
    jsonl(folder / "a.jsonl", samples.MOONCAKE[:2])
    (folder / "b.jsonl.gz").write_bytes(gzip.compress(json.dumps(samples.MOONCAKE[2]).encode()))
    trace, alone = (
        read_trace(folder, cache=False),
        read_trace(jsonl(tmp_path / "t.jsonl", samples.MOONCAKE), cache=False),
    )
    assert trace.blocks.tolist() == alone.blocks.tolist() and trace.source == "mooncake runs"
    said = [str(note) for note in trace.notes]
    assert "dropped (1): what else is in the folder: LICENSE" in said
    assert "taken (2): files of the folder, one after the other on one clock" in said
    (folder / "c.csv").write_text(samples.AZURE)
    assert "c.csv: line 2: is table, and a.jsonl mooncake; allowed: a folder of one format" in refusal(folder)
