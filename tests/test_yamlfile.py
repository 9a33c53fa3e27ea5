"""The reader of YAML: plain values within bounds, merges as the specification has them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import xarray as xr

from kvsweep.cluster.outcome.summary import objectives
from kvsweep.errors import InputError
from kvsweep.results.attrs import list_attr, mapping_attr
from kvsweep.yamlfile import MAX_BYTES, MAX_VALUES, read_yaml_file, read_yaml_mapping
from tests.cli_runner import refused

BOMB = Path(__file__).parent / "cases" / "hostile" / "merge-bomb.yaml"
ALIASES = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [{', '.join(10 * [f'*a{i - 1}'])}]\n" for i in range(1, 9))
DEEP = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 200))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BOMB.read_text(), "f:6: more than 300000 values"),
        (ALIASES, "more than 300000 values"),
        (DEEP, "or 100 levels of them"),
        ("a: " + 101 * "[" + 101 * "]", "f:1: more than 100 levels"),
        ("a: " + 50_000 * "[", "broken YAML"),
        ("a: [" + MAX_VALUES * "1," + "]", "f: more than 300000 values"),
        ("a: '" + MAX_BYTES * "x" + "'", "f: longer than allowed: 16777216 bytes"),
        ("a: &a [*a]", "f:1: a value that holds itself"),
        ("b: 1\na: !!timestamp 'x'", "f:2: 'timestamp' is no plain value; allowed: text, numbers, true, false, null"),
        ("a: !!python/object/apply:os.system [ls]", "is no plain value"),
        ("a: !!bool x", "f: not readable as YAML"), ("a: !!int ''", "f: not readable as YAML"),
        ('a: "x\\0y"', "f:1: text with a null character"), ('"\\0": 1', "f:1: text with a null character"),
        ("a: {<<: 5}", "f:1: << merges what is no mapping"), ("a: {<<: [{b: 1}, 5]}", "<< merges what is no mapping"),
        ("a: {b: 1, b: 2}", "f:1: key 'b' given twice, first on line 1"),
    ],
)  # fmt: skip
def test_what_is_out_of_bounds_is_refused_at_once(text: str, said: str) -> None:
    began = time.process_time()
    with pytest.raises(InputError) as error:
        read_yaml_mapping(text.encode(), "f")
    assert said in str(error.value) and len(str(error.value)) < 200
    assert time.process_time() - began < 2.0


def test_files_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="/dev/zero: longer than allowed"):
        read_yaml_file(Path("/dev/zero"))
    for command in (("sweep", BOMB), ("cluster", "sweep", BOMB), ("catalog", "check", BOMB.parent)):
        assert "merge-bomb.yaml" in refused(*command)


def test_merges_are_those_of_the_specification() -> None:
    """Own keys win, then the mapping that is named first; in merges of merges, too."""
    text = (
        "a: &a {x: 1, y: 5}\nb: &b {<<: *a, x: 2}\nc: {<<: *b}\nd: {<<: [*a, *b], z: 3}\ne: {<<: [*b, *a], y: 4}\n"
        "f: {x: 0, <<: *b}\n"
    )
    read = read_yaml_mapping(text.encode(), "f")
    assert read["b"] == read["c"] == {"x": 2, "y": 5}
    assert read["d"] == {"x": 1, "y": 5, "z": 3} and read["e"] == {"x": 2, "y": 4} and read["f"] == {"x": 0, "y": 5}
    assert read_yaml_mapping(b"a: {<<: {x: 1}, <<: {x: 2, y: 3}}", "f") == {"a": {"x": 1, "y": 3}}


def test_dates_stay_text() -> None:
    assert read_yaml_mapping(b"title: 2024-05-01", "f") == {"title": "2024-05-01"}


@pytest.mark.parametrize(
    "text", [BOMB.read_text(), ALIASES, "a: &a [*a]", "slo: 5", "slo: {ttft_seconds: x}", "\ud800"]
)
def test_attributes_of_somebody_else_are_bounded(text: str) -> None:
    ds = xr.Dataset(attrs={"kvsweep_config": text, "kvsweep_foresight": text})
    assert list_attr(ds, "kvsweep_foresight") == [] and objectives(ds) == {}
    assert mapping_attr(ds, "kvsweep_config") == {} or "slo" in text
