"""The API of the dashboard: answers equal to the library's, refusals that name the field, and never a 500."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvsweep
from kvsweep.catalog.load import FILES
from kvsweep.cli.output import to_json
from kvsweep.costs.inputs import NUMBER_FIELDS, PART_FIELDS
from kvsweep.report.payload import pack
from kvsweep.report.serve import engine, limits
from kvsweep.report.serve.guard import Guard
from tests.report.serve.parts import BASE, HOSTILE, client, payload_of, write_hardware, write_policy
from tests.report.test_payload import read

STEPS = ("plan", "evaluate", "pack", "total")


@pytest.fixture(scope="module")
def api() -> TestClient:
    return client()


def details(response: Any) -> dict[str, str]:
    """Return the messages of a refusal by field, those of no field under an empty name."""
    assert response.status_code == 422, response.text
    return {".".join(each["loc"][1:]): each["msg"] for each in response.json()["detail"]}


def test_the_catalog_holds_every_part_policy_and_field(api: TestClient) -> None:
    found = api.get("/api/catalog").json()
    catalog = kvsweep.catalog.load()
    assert set(PART_FIELDS.values()) == set(FILES) - {"prices"}
    for name, kind in PART_FIELDS.items():
        assert [entry["key"] for entry in found["parts"][name]] == list(catalog.entries(kind))
    policies = kvsweep.policies.load_policies()
    assert [policy["id"] for policy in found["policies"]] == list(policies)
    assert [field["name"] for field in found["fields"]] == list(NUMBER_FIELDS)
    for field in found["fields"]:
        expected = NUMBER_FIELDS[field["name"]]
        assert (field["lowest"], field["whole"], field["allowed"]) == (
            expected.lowest,
            expected.whole,
            expected.allowed,
        )
    assert found["defaults"]["dashboard"]["stack"] == "h200"
    assert found["defaults"]["dashboard"]["placement"] == "auto"


def test_parts_set_the_fields_they_say(api: TestClient) -> None:
    """A deployment given by the figures of its parts is the one given by their keys."""
    found = api.get("/api/catalog").json()["parts"]
    chosen = {name: found[name][3] for name in ("gpu", "dram", "disk", "link", "model")}
    by_key = api.post("/api/simulate", json={name: entry["key"] for name, entry in chosen.items()}).json()
    figures = {field: value for entry in chosen.values() for field, value in entry["sets"].items() if value is not None}
    by_figure = api.post("/api/simulate", json=figures).json()
    assert by_figure["results"] == by_key["results"]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stack": "h200", "placement": "auto", "total_blocks": 200_000, "hit_ratio": 0.9, "p95_seconds": 10},
        {"gpu": "A100", "dram": "DDR4", "gpu_count": 2, "placement": "manual:1,2,3", "hit_ratio": "0:1:0.25"},
        {"model": "llama3-70b", "gpu_eta": "25 %", "miss_blocks": [0, 10], "request_rate": "30/min"},
        {"total_blocks": 0, "policies": "default_policy,all_compute", "placement": "auto"},
        {"model_params": 1e15, "placement": "manual:1,0,0", "bytes_per_block": "2MB"},
    ],
)
def test_simulate_equals_the_library(api: TestClient, options: dict[str, Any]) -> None:
    response = api.post("/api/simulate", json=options)
    assert response.status_code == 200, response.text
    assert response.json() == json.loads(to_json(kvsweep.simulate(**options)))
    assert [step for step in STEPS if f"{step};dur=" in response.headers["server-timing"]] == [
        "plan",
        "evaluate",
        "total",
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"stack": "h200", "placement": "auto", "total_blocks": 150_000},
        {"stack": ["h200", "a5000"], "gpu_eta": "0.1:0.9:n5", "hit_ratio": 0.5, "p95_seconds": [1, 10, "30 s"]},
        {"placement": "simplex:3", "miss_blocks": "0,100", "total_blocks": "1000:3000:1000", "request_rate": 0.1},
        {"total_blocks": 10, "hit_ratio": 1, "request_rate": 1, "p95_seconds": 1, "policies": ["all_compute"]},
    ],
)
def test_sweep_equals_the_library(api: TestClient, options: dict[str, Any]) -> None:
    response = api.post("/api/sweep", json=options)
    assert response.status_code == 200, response.text
    ds = kvsweep.sweep(**options)
    answered, packed = payload_of(response.json()), pack(ds)
    assert json.loads(to_json(answered.header)) == json.loads(to_json(packed.header))
    assert answered.planes == packed.planes
    for policy in range(ds.sizes["policy"]):
        assert np.array_equal(read(answered, f"total_time.{policy}").ravel(), ds["total_time"].values[policy].ravel())
        assert np.array_equal(read(answered, f"verdict.{policy}").ravel(), ds.kvsweep.verdict.values[policy].ravel())
    assert response.json()["warnings"] == str(ds.attrs.get("kvsweep_warnings", "")).splitlines()
    assert all(f"{step};dur=" in response.headers["server-timing"] for step in STEPS)


REFUSED = [
    ({"gpu_count": 0}, "gpu_count", "allowed: a whole number >= 1"),
    ({"gpu_count": True}, "gpu_count", "allowed"),
    ({"gpu_count": {"a": 1}}, "gpu_count", "allowed"),
    ({"gpu_eta": "two"}, "gpu_eta", "is not a number"),
    ({"request_rate": 0}, "request_rate", "a number >= 1e-09"),
    ({"p95_seconds": "1e999"}, "p95_seconds", "out of range"),
    ({"stack": "h20"}, "stack", "did you mean 'h200'?"),
    ({"gpu": 5}, "gpu", "GET /api/catalog"),
    ({"gpu_counts": 1}, "gpu_counts", "did you mean 'gpu_count'?"),
    ({"placement": "attic"}, "placement", "manual:V,D,K"),
    ({"policies": "mine"}, "policies", "choose from performance_aware"),
    ({"policies": []}, "policies", "no points"),
    ({"hit_ratio": 0.5, "miss_blocks": 1}, "miss_blocks", "not both"),
    ({"total_blocks": 5, "miss_blocks": 6}, "miss_blocks", "allowed: 0 to the smallest total"),
    ({"policy_files": ["/etc/passwd"]}, "policy_files", "no 'policy_files'"),
    ({"hardware": "/tmp"}, "hardware", "no 'hardware'"),
    ({"dtype": "f8"}, "dtype", "no 'dtype'"),
]


@pytest.mark.parametrize(("body", "field", "message"), REFUSED)
@pytest.mark.parametrize("path", ["/api/simulate", "/api/sweep"])
def test_a_refusal_names_the_field_and_what_is_allowed(api: TestClient, path: str, body: Any, field: str, message: str):
    found = details(api.post(path, json=body))
    assert list(found) == [field]
    assert message in found[field]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"1", b'"x"', b"null", b"\xff", b"[" * 60_000, b"9" * 5_000])
def test_a_body_that_is_no_object_is_refused(api: TestClient, content: bytes) -> None:
    for kind in ("application/json", "text/plain", ""):
        response = api.post("/api/sweep", content=content, headers={"content-type": kind})
        assert response.status_code in (400, 422), response.text
        assert response.json()["detail"]


def test_sizes_are_limited(api: TestClient) -> None:
    long = details(api.post("/api/sweep", json={"hit_ratio": "0:1:1e-9"}))
    assert "at most 200000" in long["hit_ratio"]
    wide = {"hit_ratio": "0:1:0.001", "total_blocks": "1000:2000:1", "request_rate": 1, "p95_seconds": 1}
    assert set(details(api.post("/api/sweep", json=wide))) == {"total_blocks", "hit_ratio"}
    assert "at most" in details(api.post("/api/sweep", json={"placement": "simplex:1000"}))["placement"]
    assert set(details(api.post("/api/sweep", json={"gpu_count": "1:1000:1", "dram_count": "1:1000:1"}))) == {
        "gpu_count",
        "dram_count",
    }
    assert "at most 1000" in details(api.post("/api/simulate", json={"total_blocks": "1:2000:1"}))["total_blocks"]
    big = b'{"policies": "' + b"x" * limits.MAX_BODY + b'"}'
    for chunks in (big, iter([big[:1000], big[1000:]])):
        response = api.post("/api/simulate", content=chunks, headers={"content-type": "application/json"})
        assert response.status_code == 413, response.text


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_BODY_SECONDS", 0.05)
    sent: list[Any] = []

    async def receive() -> Any:
        await asyncio.sleep(0.02)  # a byte at a time, for ever
        return {"type": "http.request", "body": b" ", "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "scheme": "http",
        "method": "POST",
        "path": "/api/simulate",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(Guard(client().app, ())(scope, receive, send))
    assert sent[0]["status"] == 408 and (b"connection", b"close") in sent[0]["headers"]
    assert b"did not arrive within 0.05 s" in sent[1]["body"]


def test_only_this_server_s_own_names_are_answered(api: TestClient) -> None:
    for host in ("localhost:8000", "127.0.0.1", "[::1]:8000", "192.168.0.7:80"):
        assert api.get("/api/catalog", headers={"host": host}).status_code == 200
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "[", "[::1", "localhost@evil"):
        assert api.get("/api/catalog", headers={"host": host}).status_code == 421, host
    for origin in ("http://evil.example", "null", "https://127.0.0.1:8000"):
        assert api.post("/api/simulate", json={}, headers={"origin": origin}).status_code == 403
    assert api.post("/api/simulate", json={}, headers={"origin": BASE}).status_code == 200


def test_every_answer_carries_its_headers(api: TestClient) -> None:
    answers = [api.get(path) for path in ("/", "/api/catalog", "/openapi.json", "/nothing")]
    answers += [api.post("/api/sweep", json={"gpu": 1}), api.delete("/"), api.get("/", headers={"host": "evil"})]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy and "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
    assert "connect-src 'self'" in answers[0].headers["content-security-policy"]
    assert not any("http" in part for part in answers[0].headers["content-security-policy"].split())


def test_the_description_names_every_field_and_no_page_comes_from_elsewhere(api: TestClient) -> None:
    described = api.get("/openapi.json").json()
    assert set(described["paths"]) == {"/api/catalog", "/api/simulate", "/api/sweep"}
    schemas = described["components"]["schemas"]
    for name in ("Simulation", "Sweep"):
        assert set(schemas[name]["properties"]) == {*PART_FIELDS, *NUMBER_FIELDS, "placement", "policies"}
        assert schemas[name]["additionalProperties"] is False
    for path in ("/docs", "/redoc"):
        assert api.get(path).status_code == 404


def test_policies_and_parts_of_a_user_appear_and_hostile_names_stay_text(tmp_path: Path) -> None:
    policy = write_policy(tmp_path / "mine.py", "mine", HOSTILE)
    own = client([policy], [write_hardware(tmp_path / "hw", HOSTILE)])
    found = own.get("/api/catalog").json()
    assert found["policies"][-1]["label"] == HOSTILE
    assert found["parts"]["gpu"][-1]["name"].split() == HOSTILE.split()
    answer = own.post("/api/sweep", json={"gpu": "Mine1", "hit_ratio": 0.5}).json()
    assert answer["header"]["policies"][-1]["label"] == HOSTILE
    assert "mine" in own.post("/api/simulate", json={"gpu": "Mine1"}).json()["slo_summary"]
    assert "pwned" not in own.get("/").text


def test_a_broken_policy_is_reported_and_the_others_answer(tmp_path: Path) -> None:
    broken = write_policy(tmp_path / "broken.py", "broken", body="return ctx.nothing, 'half'")
    own = client([broken])
    for path, body in (("/api/simulate", {}), ("/api/sweep", {"hit_ratio": 0.5})):
        response = own.post(path, json=body)
        assert response.status_code == 200, response.text
        assert any("broken" in line for line in response.json()["warnings"])
    alone = own.post("/api/simulate", json={"policies": "broken"})
    assert "no policy can be evaluated" in details(alone)[""]
    broken.write_text("name = 1 +")
    assert "SyntaxError" in own.get("/api/catalog").json()["problems"][0]
    broken.unlink()
    for response in (own.get("/api/catalog"), own.post("/api/simulate", json={})):
        assert response.status_code == 503
        assert response.json()["detail"].startswith("--policy-file: ")


def test_a_missing_file_is_refused_at_the_start(tmp_path: Path) -> None:
    for options in ({"policy_files": [tmp_path / "no.py"]}, {"hardware": [tmp_path / "no"]}):
        with pytest.raises(kvsweep.errors.InputError, match="--policy-file|--hardware"):
            client(**options)


def test_an_unexpected_error_is_logged_and_not_shown(
    api: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(plan: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(engine, "simulate_plan", fail)
    response = api.post("/api/simulate", json={})
    assert response.status_code == 503
    assert "secret" not in response.text and "Traceback" not in response.text
    assert "a secret" in caplog.text
    monkeypatch.setattr(engine, "simulate_plan", lambda plan: (_ for _ in ()).throw(MemoryError))
    assert api.post("/api/simulate", json={}).json() == {"detail": "out of memory; try fewer points"}


def test_computations_take_turns(api: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "MAX_WAIT", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def slow(plan: Any) -> dict[str, Any]:
        inside.set()
        leave.wait(10)
        return {}

    monkeypatch.setattr(engine, "simulate_plan", slow)
    first = threading.Thread(target=lambda: api.post("/api/simulate", json={}))
    first.start()
    assert inside.wait(10)
    assert api.post("/api/sweep", json={}).status_code == 503
    leave.set()
    first.join()


NAMES = (*PART_FIELDS, *NUMBER_FIELDS, "placement", "policies", "policy_files", "zz", "\ud800", "")
NASTY = st.sampled_from(
    ["", " ", "nan", "inf", "-1", "0", "1e400", "1:2", "1:2:0", "2:1:-0.5", "0:1:n3", "log:0:1:n2", "log:1:9:n2", ",",
     "1,1", "\ud800", "\x00", "𝟙", "١", "1" * 5000, "0:1:1e-400", "1e-999999:1:1", "manual:1,1,1", "manual:nan,1,1",
     "simplex:4", "simplex:²", "auto,disk", "h200", "A100", "llama3-8b", "default_policy", "64GB/s", "50 %", "%", "n",
     "0:1:n", "0:1:n²"]
)  # fmt: skip
LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | NASTY | st.integers(0, 10)
ANY = st.recursive(
    LEAF, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
)
BODY = st.dictionaries(st.sampled_from(NAMES), LEAF | st.lists(LEAF, max_size=3) | ANY, max_size=4)
PATHS = st.sampled_from(["/api/simulate", "/api/sweep"])


def well_behaved(response: Any) -> None:
    assert response.status_code in (200, 400, 413, 422), (response.status_code, response.text[:500])
    assert "Traceback" not in response.text
    json.loads(response.content, parse_constant=lambda name: pytest.fail(f"{name} is no standard JSON"))


@given(PATHS, BODY | ANY)
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_json_is_a_server_error(api: TestClient, path: str, body: Any) -> None:
    content = json.dumps(body).encode()
    well_behaved(api.post(path, content=content, headers={"content-type": "application/json"}))


SMALL = {"total_blocks": 1000, "hit_ratio": 0.5, "request_rate": 0.1, "p95_seconds": 1}


@given(PATHS, st.sampled_from(sorted(NUMBER_FIELDS)), LEAF | st.lists(LEAF, max_size=3))
@settings(max_examples=250, deadline=None)
def test_no_value_of_a_field_is_a_server_error(api: TestClient, path: str, name: str, value: Any) -> None:
    body = {**SMALL, name: value}
    if name == "miss_blocks":
        del body["hit_ratio"]
    well_behaved(api.post(path, content=json.dumps(body).encode(), headers={"content-type": "application/json"}))


@given(
    st.binary(max_size=60), st.sampled_from(["application/json", "text/plain", "application/json; charset=utf-16", ""])
)
@settings(max_examples=100, deadline=None)
def test_no_bytes_are_a_server_error(api: TestClient, content: bytes, kind: str) -> None:
    well_behaved(api.post("/api/simulate", content=content, headers={"content-type": kind}))


def test_the_starting_point_shows_policies_that_differ(api: TestClient) -> None:
    start = api.get("/api/catalog").json()["defaults"]["dashboard"]
    answer = api.post("/api/simulate", json=start).json()
    assert set(answer["slo_summary"].values()) == {"pass", "fail"}
    assert all(tier["resident_blocks"] for tier in answer["results"][0]["placement"]["tiers"])
    assert dataclasses.is_dataclass(kvsweep.catalog.load().stacks[start["stack"]])


def test_a_policy_without_end_does_not_make_the_server_busy_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = "while ctx.hit_blocks >= 0.0 and ctx.request_rate > 99.0:\n        pass\n    return 0.0, 'half'"
    server = client([write_policy(tmp_path / "p.py", "endless", body=body)])
    point = {"policies": "endless", "request_rate": "1"}
    assert server.post("/api/simulate", json=point).status_code == 200
    assert server.post("/api/simulate", json={"gpu": "none"}).status_code == 422
    monkeypatch.setattr(limits, "MAX_COMPUTE", 0.3)
    stuck = server.post("/api/simulate", json={**point, "request_rate": "100"})
    assert stuck.status_code == 503 and "did not end within 0.3 s" in stuck.text
    monkeypatch.undo()
    assert server.post("/api/simulate", json=point).status_code == 200
