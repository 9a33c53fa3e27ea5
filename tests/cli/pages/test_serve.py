"""``kvsweep serve``: where it listens, what it refuses and how it ends."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvsweep.cli.pages import serve as command
from tests.cli_runner import done, refused


@pytest.fixture
def taken() -> Iterator[int]:
    """Return a port that something else listens on."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        yield other.getsockname()[1]


def started(*options: str) -> tuple[subprocess.Popen[str], list[str]]:
    """Return a running server and the lines it printed up to its address."""
    code = "import sys; from kvsweep.cli import main; main(sys.argv[1:])"
    server = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", "0", *options], stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    lines = []
    while "dashboard on http" not in (lines or [""])[-1]:
        line = server.stderr.readline()
        assert line, (server.wait(), lines)
        lines.append(line.strip())
    return server, lines


def test_it_answers_on_loopback_and_ends_quietly_with_ctrl_c() -> None:
    server, lines = started()
    url = lines[-1].split()[3]
    assert url.startswith("http://127.0.0.1:")
    # Straight to this machine, whatever proxy the environment names.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{url}/api/catalog", timeout=30) as answer:
        assert json.load(answer)["defaults"]["dashboard"]["stack"] == "h200"
        assert "server" not in answer.headers
    server.send_signal(signal.SIGINT)
    _, rest = server.communicate(timeout=30)
    assert (server.returncode, rest) == (0, "")


def test_other_machines_are_mentioned() -> None:
    server, _ = started("--host", "0.0.0.0")
    assert server.stderr is not None
    assert server.stderr.readline().startswith("warning: 0.0.0.0 can be reached by other machines")
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=30)


def test_problems_of_policies_are_printed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("name = 1 +")
    server, lines = started("--policy-file", str(tmp_path / "mine.py"))
    assert "left out: SyntaxError" in lines[0]
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=30)


def test_a_port_in_use_is_refused(taken: int) -> None:
    assert refused("serve", "--port", str(taken)) == (
        f"--port: {taken} is in use on 127.0.0.1; allowed: a free port, or 0 for any"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--host", "not a host"), "--host: 'not a host' is no address or name"),
        (("--host", ""), "--host"),
        (("--host", "a" * 300), "--host"),
        (("--host", "203.0.113.7"), "--host: '203.0.113.7' is not an address of this machine"),
        (("--port", "70000"), "--port"),
        (("--policy-file", "no-such-file.py"), "--policy-file: no-such-file.py: no such file"),
        (("--hardware", "no-such-folder"), "--hardware: 'no-such-folder' is not a directory"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(options: tuple[str, ...], message: str) -> None:
    assert message in refused("serve", *options)


@pytest.mark.parametrize("module", ["fastapi", "uvicorn"])
def test_without_the_extra_it_says_what_to_install(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("kvsweep.report.serve")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    assert refused("serve") == f"serve: {module} is not installed; pip install 'kvsweep[serve]'"


def test_the_rest_of_the_package_does_not_import_the_extra() -> None:
    code = (
        "import sys, kvsweep.report.page, kvsweep.cli.pages.serve, kvsweep.grid.sweep;"
        f"print([name for name in {command.NEEDED!r} if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert found.stdout.strip() == "[]"


def test_help_says_where_it_listens() -> None:
    text = done("serve", "--help").stdout
    assert "127.0.0.1" in text and "8000" in text


def test_requests_cut_off_by_the_end_leave_no_traceback() -> None:
    process, lines = started("--port", "0")
    port = int(lines[-1].partition("127.0.0.1:")[2].split()[0])
    with socket.create_connection(("127.0.0.1", port)) as slow:
        slow.sendall(b"POST /api/simulate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/", method="HEAD")) as answer:
            assert answer.status == 200 and answer.read() == b""
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert errors == ""
