"""Server time of the dashboard's sweep (360 cells x 11 hit ratios, all policies) beside a bare request's."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from http.client import HTTPConnection

import uvicorn

from benchmarks.figures import Figure, beside, in_turn, wall
from kvsweep.report.serve.app import create_app

JSON = {"Content-Type": "application/json"}
SWEEP = b'{"stack": "h200", "placement": "auto", "total_blocks": 150000}'
POINT = b'{"stack": "h200", "placement": "auto", "total_blocks": 150000, "hit_ratio": 0.9, "p95_seconds": 10}'


def measure(tiny: bool) -> list[Figure]:
    """Return the wall times [ms] of requests over one kept connection, and the steps the server names itself."""
    config = uvicorn.Config(create_app(), port=0, log_level="error", lifespan="off", ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    connection = HTTPConnection("127.0.0.1", port)
    try:
        return _figures(connection, rounds=2 if tiny else 30)
    finally:
        connection.close()
        server.should_exit = True
        thread.join()


def _figures(connection: HTTPConnection, rounds: int) -> list[Figure]:
    steps: dict[str, float] = {}

    def asking(method: str, path: str, body: bytes | None = None) -> Callable[[], None]:
        def ask() -> None:
            connection.request(method, path, body, JSON if body else {})
            response = connection.getresponse()
            response.read()
            for part in (response.headers["Server-Timing"] or "").split(", "):
                step, _, milliseconds = part.partition(";dur=")
                if milliseconds and path == "/api/sweep":
                    steps[step] = min(steps.get(step, 1e9), float(milliseconds))

        return ask

    bare, point, swept = (
        asking("GET", "/api/nothing"), asking("POST", "/api/simulate", POINT), asking("POST", "/api/sweep", SWEEP),
    )  # fmt: skip
    for warm in (bare, point, swept):
        warm()
    times = in_turn([wall(bare), wall(point), wall(swept)], rounds)
    named = ", ".join(f"{step} {steps[step]:.3g}" for step in ("plan", "evaluate", "pack"))
    names = ("single point, 4 policies", f"sweep of 360 x 11 points ({named} ms)")
    return [
        beside(name, "ms", "bare request [ms]", (asked, times[0]), 1e3)
        for name, asked in zip(names, times[1:], strict=True)
    ]
