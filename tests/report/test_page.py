"""The page: one file, nothing loaded, every text escaped, a policy that fits."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner

import kvsweep
from kvsweep.cli.pages.report import report
from kvsweep.errors import InputError
from kvsweep.report import write_report
from kvsweep.report.page import SCRIPTS, asset, fill, json_for_script, viewer_script
from kvsweep.report.payload import pack
from kvsweep.report.provenance import command_line, python_call, source_rows
from kvsweep.report.sweep_page import EMBEDDED, render
from tests.cli_runner import done
from tests.report.datasets import HOSTILE, hostile, small


class Reader(HTMLParser):
    """Collects the elements of a page with their attributes, and the text of scripts and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, dict[str, str | None], str]] = []
        self.text = ""
        self.open: tuple[str, dict[str, str | None]] | None = None

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self.open = (tag, dict(attrs)) if tag in ("script", "style") else None

    def handle_data(self, data):
        if self.open:
            self.raw.append((*self.open, data))
        else:
            self.text += data

    def handle_endtag(self, tag):
        self.open = None


def parsed(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


@pytest.fixture(scope="module")
def page() -> str:
    ds = small()
    return render(ds, pack(ds))


def test_hashes_of_the_policy_are_those_of_script_and_style(page):
    reader = parsed(page)
    policy = next(attrs["content"] for tag, attrs in reader.elements if attrs.get("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy and "http" not in policy
    live = [text for tag, attrs, text in reader.raw if tag == "style" or "type" not in attrs]
    assert len(live) == 2
    for text in live:
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in policy


def test_nothing_is_loaded_and_no_style_attribute_is_needed(page):
    for tag, attrs in parsed(page).elements:
        assert not {"src", "srcset", "style", "action"} & set(attrs), tag
        assert not [name for name in attrs if name.startswith("on")]
        if "href" in attrs:
            assert attrs["href"] == "data:,"
    assert "http://www.w3.org/2000/svg" in page  # a name, not an address
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_the_command_and_the_headline_are_on_the_page(page):
    ds = small()
    text = parsed(page).text
    assert command_line(ds) in text
    for sentence in pack(ds).header["headline"]:
        assert sentence in text
    for name in ("kvsweep_catalog_sha256", "source", "comment", "references"):
        assert ds.attrs[name] in text
    for entry, citation in source_rows(ds):
        assert entry in text and citation in text
    assert "exact" in text


def test_the_python_call_makes_the_same_sweep():
    ds = small()
    names: dict = {}
    exec(python_call(ds), names)
    assert names["ds"].drop_attrs().identical(ds.drop_attrs())


@pytest.mark.parametrize("options", [
    {"stack": ["h200", "a5000"], "placement": ["auto", "manual:1,2,3"], "dtype": "f8", "hit_ratio": [0, 0.5]},
    {"miss_blocks": [0, 10], "link_bandwidth": "log:1e9:1e11:n3", "policies": ["all_compute"], "request_rate": 0.1},
])  # fmt: skip
def test_the_command_makes_the_same_sweep(options, tmp_path):
    ds = kvsweep.sweep(**options)
    command = shlex.split(command_line(ds))
    file = tmp_path / "sweep.nc"
    done(*command[1 : command.index("--output")], "--output", file)
    with kvsweep.open(file) as again:
        assert again.load().drop_attrs().identical(ds.drop_attrs())


def test_hostile_texts_stay_text():
    ds = hostile()
    page = render(ds, pack(ds))
    reader = parsed(page)
    tags = [tag for tag, _ in reader.elements]
    scripts = [attrs for tag, attrs in reader.elements if tag == "script"]
    assert "img" not in tags
    assert sum("type" not in attrs for attrs in scripts) == 1
    assert all(attrs["id"].startswith("kv-") for attrs in scripts if "type" in attrs)
    header = next(text for _, attrs, text in reader.raw if attrs.get("id") == "kv-header")
    assert json.loads(header)["policies"][0]["label"] == HOSTILE
    assert "pwned=1" in reader.text


def test_filled_in_text_is_not_filled_again():
    assert fill("{{a}} {{b}}", {"a": "{{b}}", "b": "1"}) == "{{b}} 1"
    assert json_for_script("</script>&") == '"\\u003c/script\\u003e\\u0026"'


def test_the_viewer_alone_has_no_data_source():
    script = viewer_script()
    assert "embeddedSource" not in script
    assert "embeddedSource" in viewer_script(EMBEDDED)
    for name in SCRIPTS:
        assert "innerHTML" not in asset(name) and "eval(" not in asset(name)


def test_the_file_is_reproducible_and_small(tmp_path):
    ds = small()
    write_report(ds, tmp_path / "a.html")
    write_report(ds, tmp_path / "b.html")
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    assert (tmp_path / "a.html").stat().st_size < 1.4 * pack(ds).n_bytes + 130_000


def test_the_command_writes_refuses_and_overwrites(tmp_path):
    from kvsweep.results.netcdf import write_netcdf

    source, output = tmp_path / "sweep.nc", tmp_path / "report.html"
    write_netcdf(small(), source)
    run = CliRunner().invoke(report, [str(source), "-o", str(output)])
    assert run.exit_code == 0 and "wrote" in run.stderr and run.stdout == ""
    again = CliRunner().invoke(report, [str(source), "-o", str(output)])
    assert isinstance(again.exception, InputError) and "--force" in str(again.exception)
    assert CliRunner().invoke(report, [str(source), "-o", str(output), "--force"]).exit_code == 0
    before = output.read_bytes()
    over = CliRunner().invoke(report, [str(source), "-o", str(output), "--force", "--max-points", "10"])
    assert isinstance(over.exception, InputError) and "--max-points" in str(over.exception)
    assert output.read_bytes() == before
    other = CliRunner().invoke(report, [str(source), "-o", str(tmp_path / "report.txt")])
    assert isinstance(other.exception, InputError)


def test_opened_files_make_the_same_page_as_the_sweep(tmp_path):
    from kvsweep.results.netcdf import write_netcdf

    ds = small()
    write_netcdf(ds, tmp_path / "sweep.nc")
    with kvsweep.open(tmp_path / "sweep.nc") as opened:
        assert render(opened, pack(opened)) == render(ds, pack(ds))
