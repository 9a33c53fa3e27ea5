"""The FastAPI application: three routes of the API, its description, and the page."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.middleware import Middleware
from fastapi.responses import HTMLResponse

from kvsweep.errors import InputError
from kvsweep.report.serve.bodies import SimulateBody, SweepBody, details_of_input, details_of_types
from kvsweep.report.serve.engine import Engine, Timings, Unavailable
from kvsweep.report.serve.guard import Guard, Json
from kvsweep.report.serve.page import dashboard
from kvsweep.version import __version__


def create_app(
    policy_files: Sequence[Path] = (), hardware: Sequence[Path] = (), host_names: Collection[str] = ()
) -> FastAPI:
    """Return the dashboard as an ASGI application.

    Parameters
    ----------
    policy_files : Python files with policies of the user; no request can name any
    hardware : directories of catalog files laid over the built-in ones
    host_names : names besides ``localhost`` and plain addresses that clients may call this server by

    Raises
    ------
    InputError
        For a policy file or directory that cannot be read.
    """
    engine = Engine(policy_files, hardware)
    engine.check()
    app = FastAPI(
        title="kvsweep", version=__version__, summary="Restore or recompute: single points and sweeps",
        # The pages FastAPI has for these load scripts from elsewhere.
        docs_url=None, redoc_url=None,
        middleware=[Middleware(Guard, names=host_names)],
    )  # fmt: skip
    _add_errors(app)
    _add_routes(app, engine)
    return app


def _add_routes(app: FastAPI, engine: Engine) -> None:
    page, policy = dashboard()

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    def index() -> HTMLResponse:
        return HTMLResponse(page, headers={"Content-Security-Policy": policy})

    answer: dict[int | str, dict[str, object]] = {
        200: {"content": {"application/json": {"schema": {"type": "object"}}}},
        503: {"description": "The server cannot answer at the moment"},
    }

    @app.get("/api/catalog", response_class=Json, responses=answer)
    def catalog() -> Json:
        """Parts, models, policies, fields with their ranges, defaults and limits."""
        return Json(engine.catalog())

    @app.post("/api/simulate", response_class=Json, responses=answer)
    def simulate(body: SimulateBody) -> Json:
        """Every policy's outcome for one request size or several, as `kvsweep.simulate` returns it."""
        return _timed(engine.simulate(body.model_dump(exclude_none=True)))

    @app.post("/api/sweep", response_class=Json, responses=answer)
    def sweep(body: SweepBody) -> Json:
        """A sweep as reports embed it: `header`, and `planes` as gzipped bytes in base64; beside them `warnings`."""
        return _timed(engine.sweep(body.model_dump(exclude_none=True)))


def _timed(answer: tuple[dict[str, object], Timings]) -> Json:
    content, timings = answer
    return Json(content, headers={"Server-Timing": timings.header()})


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(InputError)
    def of_input(request: Request, error: InputError) -> Json:
        return Json({"detail": details_of_input(error)}, status_code=422)

    @app.exception_handler(RequestValidationError)
    def of_types(request: Request, error: RequestValidationError) -> Json:
        return Json({"detail": details_of_types(error.errors())}, status_code=422)

    @app.exception_handler(Unavailable)
    def of_server(request: Request, error: Unavailable) -> Json:
        return Json({"detail": str(error)}, status_code=503)

    @app.exception_handler(MemoryError)
    def of_memory(request: Request, error: MemoryError) -> Json:
        return Json({"detail": "out of memory; try fewer points"}, status_code=503)
