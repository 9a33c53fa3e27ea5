"""Tables, JSON and CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.cli.options import say
from kvsweep.cli.output import TABLE_WIDTH, Column, print_table, to_csv, to_json

ROWS = [{"key": "a", "rate": 1.5e9, "size": math.inf}, {"key": "long", "rate": 123456789e3, "size": None}]
COLUMNS = [
    Column("key", lambda row: row["key"]),
    Column("rate [GB/s]", lambda row: row["rate"] / 1e9),
    Column("size", lambda row: row["size"]),
]


def test_table_aligns_text_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(ROWS, COLUMNS)
    assert capsys.readouterr().out.splitlines() == [
        "key   rate [GB/s]  size",
        "a             1.5     –",
        "long        123.5     –",
    ]


def test_empty_table_has_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([], COLUMNS)
    assert capsys.readouterr().out == "key  rate [GB/s]  size\n"


def test_wide_tables_shorten_text_but_not_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"key": "k" * 60, "text": "t" * 200, "number": 7}]
    print_table(rows, [Column(name, lambda row, name=name: row[name]) for name in ("key", "text", "number")])
    line = capsys.readouterr().out.splitlines()[1]
    assert len(line) == TABLE_WIDTH and line.startswith("k" * 60) and "t…" in line and line.endswith("7")


@dataclass(frozen=True)
class Group:
    size: float


@dataclass(frozen=True)
class Row:
    key: str
    group: Group | None
    modes: tuple[str, ...] = ()


def test_json_is_standard() -> None:
    row = Row("ö", Group(math.inf), ("a",))
    assert json.loads(to_json([row, math.nan, True])) == [
        {"key": "ö", "group": {"size": None}, "modes": ["a"]},
        None,
        True,
    ]
    assert "ö" in to_json(row)


def test_csv_has_one_header_and_a_column_for_each_field_of_a_group() -> None:
    text = to_csv([Row("a", None), Row("b,c", Group(1.0), ("x",)), Row("d", Group(math.nan))])
    assert text == 'key,modes,group.size\na,[],\n"b,c","[""x""]",1.0\nd,[],'


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())


@given(st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_any_nesting_becomes_standard_json(value: Any) -> None:
    def refuse(literal: str) -> None:
        raise AssertionError(literal)

    json.loads(to_json(value), parse_constant=refuse)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.floats(), min_size=1), min_size=1))
def test_csv_holds_no_nan_or_infinity(rows: list[dict[str, float]]) -> None:
    read = list(csv.DictReader(io.StringIO(to_csv(rows))))
    for row, given_row in zip(read, rows, strict=False):
        for name, value in given_row.items():
            assert row[name] == (repr(value) if math.isfinite(value) else "")


def test_what_a_terminal_would_obey_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([{"name": "a\x1b[31mb\x9b2J\udcff é"}], [Column("Name", lambda row: row["name"])])
    say("title\x1b]0;x\x07")
    assert capsys.readouterr() == ("Name\na\\x1b[31mb\\x9b2J\\udcff é\n", "title\\x1b]0;x\\x07\n")
