"""``kvsweep serve``: the dashboard and its API on a port of this machine."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

import click

from kvsweep import signals
from kvsweep.catalog.load import ENVIRONMENT
from kvsweep.cli.options import POLICY_FILES, Files, say
from kvsweep.errors import InputError, ResultError, shown

NEEDED = ("fastapi", "uvicorn", "starlette", "pydantic")


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="Port; 0 takes any free one."
)
@click.option(
    "--policy-file", "policy_files", type=Files(), multiple=True, metavar="FILE",
    envvar=POLICY_FILES, show_envvar=True, help="Python file with a policy of your own; repeatable.",
)  # fmt: skip
@click.option(
    "--hardware", type=click.Path(path_type=Path), multiple=True, metavar="DIR",
    help=f"Directory of catalog files laid over the built-in ones; repeatable. {ENVIRONMENT} may name more.",
)  # fmt: skip
def serve(host: str, port: int, policy_files: tuple[Path, ...], hardware: tuple[Path, ...]) -> None:
    """Serve the dashboard: single points and SLO sweeps in the browser, and the HTTP API behind them.

    It listens on this machine only unless --host says otherwise. Ctrl-C ends it.
    """
    try:
        import uvicorn

        from kvsweep.policies.registry import load_policies
        from kvsweep.report.serve.app import create_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise InputError(f"serve: {error.name} is not installed; pip install 'kvsweep[serve]'") from None
    app = create_app(policy_files, hardware, (host, socket.gethostname()))
    for line in load_policies(policy_files).problems:
        say(line)
    listener = _listen(host, port)
    address, bound = listener.getsockname()[:2]
    say(f"kvsweep dashboard on http://{f'[{host}]' if ':' in host else host}:{bound} (Ctrl-C ends it)")
    if not ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        say(f"warning: {address} can be reached by other machines, and there is no password")
    _run(uvicorn, app, listener)


def _listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; raises InputError naming the option that is to blame."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError):
        raise InputError(f"--host: {shown(host)} is no address or name of a machine; allowed: 127.0.0.1, …") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise _not_bound(error, host, port) from None
    return listener


def _not_bound(error: OSError, host: str, port: int) -> Exception:
    import errno

    if error.errno == errno.EADDRINUSE:
        return InputError(f"--port: {port} is in use on {host}; allowed: a free port, or 0 for any")
    if error.errno == errno.EADDRNOTAVAIL:
        return InputError(f"--host: {shown(host)} is not an address of this machine; allowed: 127.0.0.1, 0.0.0.0, …")
    if error.errno == errno.EACCES:
        return InputError(f"--port: {port} needs privileges; allowed: a port from 1024, or 0 for any")
    return ResultError(f"cannot listen on {host} port {port}: {error.strerror or error}")


def _run(uvicorn: Any, app: Any, listener: socket.socket) -> None:
    """Answer requests until interrupted; connections that are kept open do not hold up the end."""
    # Only requests cut off by the end would be logged, each with a traceback: whatever else fails, the guard reports.
    config = uvicorn.Config(
        app, log_level="critical", access_log=False, lifespan="off", ws="none", server_header=False,
        proxy_headers=False, timeout_graceful_shutdown=2,
    )  # fmt: skip
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        signals.forget()
    finally:
        listener.close()
