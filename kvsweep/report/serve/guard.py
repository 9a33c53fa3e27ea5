"""The outermost layer: who may ask, how much, and that every answer carries its headers and none a traceback."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import math
from collections.abc import Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvsweep.report.serve import limits

logger = logging.getLogger("kvsweep.serve")

HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
NOTHING_LOADS = "default-src 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of answers that are no page."""


class Json(Response):
    """Standard JSON in ASCII: null for infinite and undefined numbers, and nothing that cannot be encoded."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return `content` as bytes."""
        return json.dumps(_standard(content), allow_nan=False, separators=(",", ":")).encode("ascii")


class Guard:
    """ASGI middleware around `app`; see the module. `names` are host names this server may be called by."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = {name.casefold() for name in names} | {"localhost"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Content-Security-Policy", NOTHING_LOADS)
            await send(message)

        try:
            await self._answer(scope, receive, send_with_headers)
        except Exception:
            logger.exception("unexpected error answering %s %s", scope["method"], scope["path"])
            if not started:
                problem = Json({"detail": "unexpected error; the server's log says more"}, status_code=503)
                await problem(scope, receive, send_with_headers)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if not self._is_own(host):
            # A page elsewhere may have its name point here (DNS rebinding); its requests still carry that name.
            refusal = Json({"detail": "this host name is not the server's; use its address"}, status_code=421)
        elif headers.get("origin", f"http://{host}").casefold() != f"{scope['scheme']}://{host}".casefold():
            refusal = Json({"detail": "requests from other sites are not answered"}, status_code=403)
        else:
            try:
                async with asyncio.timeout(limits.MAX_BODY_SECONDS):
                    body = await _read(headers, receive)
            except TimeoutError:
                said = f"the body did not arrive within {limits.MAX_BODY_SECONDS:g} s"
                refusal = Json({"detail": said}, status_code=408, headers={"Connection": "close"})
            else:
                if body is not None:
                    await self._app(scope, _Replay(body, receive), send)
                    return
                said = f"the body is too large; allowed: at most {limits.MAX_BODY} bytes"
                refusal = Json({"detail": said}, status_code=413)
        await refusal(scope, receive, send)

    def _is_own(self, host: str) -> bool:
        """Return whether a Host header holds an address or a name of this server."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class _Replay:
    """A `receive` that yields a body read before, and then what else the connection says."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


async def _read(headers: Headers, receive: Receive) -> bytes | None:
    """Return the whole body, None as soon as it is known to be longer than allowed."""
    stated = headers.get("content-length", "0")
    if not stated.isdecimal() or int(stated[:12]) > limits.MAX_BODY:
        return None
    body: bytes = b""
    while True:
        message = await receive()
        body += bytes(message.get("body", b""))
        if len(body) > limits.MAX_BODY:
            return None
        if not message.get("more_body", False):
            return body


def _standard(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _standard(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_standard(each) for each in value]
    return value
