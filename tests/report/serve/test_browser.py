"""The dashboard in a browser, against what the library computes for the same inputs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvsweep
from tests.cli.pages.test_serve import started
from tests.report.serve.parts import HOSTILE, write_hardware, write_policy
from tests.report.test_browser import CHROMIUM, REASON

SCRIPT = Path(__file__).parents[2] / "browser" / "serve.mjs"
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

TIER = ("resident_blocks", "capacity_blocks", "utilization", "overflow_blocks")
RATES = ("storage_throughput", "recompute_throughput", "hit_blocks", "miss_blocks")
CARD = ("total_time", "latency_ratio", "gpu_utilization", "storage_utilization", "slo_margin")
CARD_BLOCKS = ("storage_blocks", "recompute_blocks", "reassigned_hit_blocks")
REFUSED = "Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return options that add a policy and a GPU with hostile names."""
    folder = tmp_path_factory.mktemp("serve")
    policy = write_policy(folder / "mine.py", "mine", HOSTILE)
    return {"policy_files": [policy], "hardware": [write_hardware(folder / "hw", HOSTILE)]}


@pytest.fixture(scope="module")
def seen(files: dict[str, Any]) -> dict[str, Any]:
    """Return what a reader saw of a dashboard with a policy and a part of a user."""
    server, lines = started("--policy-file", str(files["policy_files"][0]), "--hardware", str(files["hardware"][0]))
    try:
        run = subprocess.run(
            ["node", str(SCRIPT), lines[-1].split()[3] + "/"], capture_output=True, text=True, timeout=400, check=False,
            env=os.environ | {"CHROMIUM": str(CHROMIUM)},
        )  # fmt: skip
    finally:
        server.send_signal(signal.SIGINT)
        server.communicate(timeout=30)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def check_point(observed: dict[str, Any], files: dict[str, Any]) -> dict[str, Any]:
    """Compare every number of the tab Single Point with `kvsweep.simulate`; return the row it should show.

    Blocks are shown as tokens.
    """
    answer = kvsweep.simulate(**observed["body"], **files)
    row: dict[str, Any] = answer["results"][0]
    policies = list(answer["slo_summary"])
    tokens = answer["experiment"]["tokens_per_block"]
    tiers = [
        [tier[name] * (tokens if name.endswith("blocks") else 1) for name in TIER] for tier in row["placement"]["tiers"]
    ]
    np.testing.assert_allclose(observed["tiers"], tiers, rtol=1e-15)
    np.testing.assert_allclose(observed["rates"], [row[name] * tokens for name in RATES], rtol=1e-15)
    assert list(observed["cards"]) == policies
    for name, card in observed["cards"].items():
        numbers = [row[name][field] for field in CARD] + [row[name][field] * tokens for field in CARD_BLOCKS]
        np.testing.assert_allclose(card["numbers"], numbers, rtol=1e-15)
        assert (card["state"] == "Pass") is row[name]["meets_slo"]
    assert observed["latency"] == [row[name]["total_time"] for name in policies]
    split = [row[name][field] for name in policies for field in ("storage_time", "recompute_time")]
    assert observed["split"] == split
    passing = sum(row[name]["meets_slo"] for name in policies)
    start = "No policy meets" if not passing else "All" if passing == len(policies) else f"{passing} of {len(policies)}"
    assert observed["answer"].startswith(start)
    return row


def check_sweep(observed: dict[str, Any], files: dict[str, Any]) -> None:
    """Compare the tab SLO Sweep with `kvsweep.sweep`: the answer, the cursor, the counts, the success curve."""
    ds = kvsweep.sweep(**observed["body"], **files)
    dims = [dim for dim in ds["meets_slo"].dims if dim != "policy"]
    assert observed["dims"] == dims
    state = observed["state"]
    here = ds.isel({dim: state["at"][dim] for dim in dims})
    for policy in range(ds.sizes["policy"]):
        assert float(observed["cursor"][f"total_time-{policy}"]) == float(here["total_time"].values[policy])
        assert int(observed["cursor"][f"verdict-{policy}"]) == int(here.kvsweep.verdict.values[policy])
        held = {dim: index for dim, index in state["at"].items() if dim not in (state["x"], state["y"])}
        counts = np.bincount(ds.kvsweep.verdict.isel(held).values[policy].ravel(), minlength=4)
        assert [int(observed["counts"][f"{policy}-{code}"]) for code in range(4)] == counts.tolist()
    rates = ds.kvsweep.success_rate([dim for dim in dims if dim != state["chart"]]).transpose("policy", ...)
    np.testing.assert_allclose(observed["success"], rates.values, atol=1e-12)
    passes = int(ds["meets_slo"].sum([dim for dim in ds["meets_slo"].dims if dim != "policy"]).max())
    assert f"({passes:,})" in observed["answer"] or passes == 0


def test_it_starts_on_h200_and_auto(seen: dict[str, Any]) -> None:
    for body in (seen["point"][0]["body"], seen["start"]["body"]):
        assert (body["stack"], body["placement"]) == ("h200", "auto")


def test_single_point_shows_what_simulate_returns(seen: dict[str, Any], files: dict[str, Any]) -> None:
    bodies = {json.dumps(observed["body"]) for observed in seen["point"]}
    # An A100 preset with its GPU changed to an H200 is the preset it started with.
    assert (len(bodies), len(seen["point"])) == (12, 13)
    assert seen["point"][2]["body"]["stack"] == "h200"
    for observed in seen["point"]:
        check_point(observed, files)


def test_the_newest_of_a_burst_stays(seen: dict[str, Any], files: dict[str, Any]) -> None:
    assert seen["burst"]["body"]["total_blocks"] == 1_000_000
    check_point(seen["burst"], files)


def test_slo_sweep_shows_what_sweep_returns(seen: dict[str, Any], files: dict[str, Any]) -> None:
    bodies = {json.dumps(observed["body"]) for observed in seen["sweep"]["seen"]}
    assert len(bodies) == len(seen["sweep"]["seen"]) == 7
    for observed in seen["sweep"]["seen"]:
        check_sweep(observed, files)
    assert seen["sweep"]["seen"][-1]["dims"] == ["gpu", "hit_ratio", "request_rate", "p95_seconds"]
    assert "at most 200000" in seen["sweep"]["refused"]


def test_the_sweep_starts_at_the_point_one_looks_at(seen: dict[str, Any], files: dict[str, Any]) -> None:
    first = seen["sweep"]["seen"][0]
    point = seen["burst"]["body"]
    assert (point["hit_ratio"], point["p95_seconds"]) == (0.5, "500ms")
    ds = kvsweep.sweep(**first["body"], **files)
    at = {name: float(ds[name][first["state"]["at"][name]]) for name in ("hit_ratio", "p95_seconds")}
    assert at == {"hit_ratio": 0.5, "p95_seconds": pytest.approx(0.5, rel=1e-12)}


def test_a_mistake_is_shown_at_its_field_and_keeps_the_last_result(seen: dict[str, Any]) -> None:
    found = seen["mistakes"]
    assert found["invalid"] == "true"
    assert "1.5 is out of range; allowed" in found["message"]
    assert "Hit ratio: 1.5 is out of range" in found["status"]
    assert found["answer"] == found["before"]
    assert (found["mended"], found["hidden"]) == (None, True)


def test_the_fragment_survives_a_reload(seen: dict[str, Any]) -> None:
    assert seen["after"] == seen["before"]
    assert seen["after"]["sweep"]["state"]["pin"]
    assert "share.vram=90" in seen["after"]["hash"]


def test_nothing_comes_from_elsewhere_and_the_console_is_silent(seen: dict[str, Any]) -> None:
    assert seen["foreign"] == []
    # The browser itself notes the two refusals that were provoked.
    assert seen["console"] == [REFUSED, REFUSED]


def test_axe_finds_nothing(seen: dict[str, Any]) -> None:
    assert seen["axe"] == [[], [], [], []]
    assert seen["mistakes"]["axe"] == []


def test_the_keyboard_reaches_everything(seen: dict[str, Any], files: dict[str, Any]) -> None:
    found = seen["keyboard"]
    names = (
        "total_blocks",
        "hit_ratio-slider",
        "placement-auto",
        "share-disk",
        "stack",
        "gpu",
        "model",
        "gpu_eta-slider",
    )
    assert {f"kd-{name}" for name in names} <= set(found["reached"])
    assert found["point"]["body"]["placement"].startswith("manual:")
    check_point(found["point"], files)
    assert (found["tab"], found["map"]) == ("kd-tab-sweep", "plot")
    assert found["pinned"]


def test_it_fits_narrow_and_wide_windows(seen: dict[str, Any]) -> None:
    assert (seen["wide"], seen["narrow"]) == (0, [0, 0])


def test_nothing_is_cut_or_too_small_to_read(seen: dict[str, Any]) -> None:
    for page, found in seen["legible"].items():
        cut = [each for each in found["cut"] if "pwned" not in each]  # endless names are meant to be
        assert (page, cut, found["small"]) == (page, [], [])


def test_hostile_names_stay_text(seen: dict[str, Any]) -> None:
    assert seen["injected"] == {"pwned": None, "images": 0, "scripts": 1}
    title = seen["point"][0]["cards"]["mine"]["title"]
    assert HOSTILE in title
