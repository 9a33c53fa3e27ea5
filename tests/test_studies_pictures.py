"""The pictures of a KV hierarchy: their figures from full simulations, and what must hold of them."""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import study_samples
import xarray as xr
from cli_runner import done, refused

import kvsweep
from kvsweep.cluster.config import EngineRules
from kvsweep.report.plots.pictures import capacity_figure, cliff_figure, pareto, pareto_figure, sources_figure
from kvsweep.studies import pictures
from kvsweep.studies.pictures import bounds, capacity_study, next_terabyte, sources, tiers_table, worker_cluster
from kvsweep.trace.generate import generate

matplotlib.use("Agg")
PROFILE = study_samples.profile()
TRACE = {"generate": "qa", "sessions": 30, "turns": 6}


@pytest.mark.parametrize("fidelity", study_samples.FIDELITIES)
def test_sources_are_ordered_and_recompute_is_its_formula(fidelity: str) -> None:
    ds = sources(PROFILE, fidelity, (1000, 4000))
    ttft = ds["ttft"]
    assert (ttft.sel(source="device") < ttft.sel(source="host")).all()
    assert (ttft.sel(source="host") < ttft.sel(source="recompute")).all()
    model, tokens = PROFILE.prefill, 4000
    prefill = model.fixed_seconds + model.token_seconds * tokens + model.token_pair_seconds * tokens**2 / 2
    pages = -(-tokens // 64)
    handoff = (
        PROFILE.handoff.setup_seconds + pages * round(64 * PROFILE.kv_bytes_per_token) / PROFILE.handoff.bytes_per_s
    )
    decode = PROFILE.decode.base_seconds[0] + PROFILE.decode.context_token_seconds[0] * tokens
    if fidelity == "engine":  # the first token comes with the prompt, after a prebuilt round
        decode = EngineRules().prebuilt_seconds
    found = float(ttft.sel(source="recompute", prompt_tokens=tokens))
    assert found == pytest.approx(max(prefill, model.least_seconds) + handoff + decode, rel=1e-6)
    assert len(sources_figure(ds).axes[0].get_lines()) == 3


@pytest.fixture(scope="module")
def capacity() -> xr.Dataset:
    config = worker_cluster(2, 32_768, 0)
    study = capacity_study(PROFILE, config, TRACE, [0, 65_536, 262_144, 1 << 20])
    study["axes"]["eviction"] = ["lru", "lfu"]
    return kvsweep.cluster.sweep(study)


def test_capacity_grows_up_to_the_infinite_cache(capacity: xr.Dataset) -> None:
    ratio = capacity["token_hit_ratio"].sel(eviction="lru").values
    trace = generate("qa", 30, 0, turns=6)
    limit = bounds(trace, [32_768 + tokens for tokens in capacity["host_tokens"].values])
    assert (np.diff(ratio) >= 0).all() and (np.diff(limit.lru) >= 0).all()
    # A request computes its last token whatever is cached, and shares whole pages only.
    assert ratio[-1] == pytest.approx(limit.infinite, abs=0.02) and (np.array(limit.lru) <= limit.infinite).all()
    (ax,) = capacity_figure(capacity, limit.lru, limit.infinite).axes
    assert len(ax.get_lines()) == 4


def test_the_next_terabyte_is_the_slope(capacity: xr.Dataset) -> None:
    rows = next_terabyte(capacity, 1e6)
    assert rows[0]["host_terabytes"] == 0 and np.isnan(rows[0]["hit_ratio_per_terabyte"])
    gained = rows[2]["token_hit_ratio"] - rows[1]["token_hit_ratio"]
    assert rows[2]["hit_ratio_per_terabyte"] == pytest.approx(gained / ((262_144 - 65_536) * 1e6 / 1e12))


def test_tiers_side_by_side(capacity: xr.Dataset) -> None:
    rows = tiers_table(capacity.sel(eviction="lru").isel(host_tokens=[0, 2]))
    assert rows[0]["tiers"] == "device only" and rows[1]["tiers"] == "+ host 0.262M tokens"
    assert rows[0]["hit_share_l2"] == 0 < rows[1]["hit_share_l2"]
    assert rows[1]["bytes_moved"] > rows[0]["bytes_moved"] and rows[1]["hit_ratio"] > rows[0]["hit_ratio"]


def test_the_cliff_comes_later_with_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "DOCUMENTS", (4, 24, 96))
    monkeypatch.setattr(pictures, "CLIFF_REQUESTS", 200)
    ds = pictures.with_working_sets(kvsweep.cluster.sweep(pictures.cliff_study(PROFILE, (0, 524_352))))
    ttft = ds["ttft"].sel(statistic="mean")
    assert float(ttft.sel(host_tokens=0, working_set=768_000)) > 2 * float(ttft.sel(host_tokens=0, working_set=32_000))
    assert (ttft.sel(host_tokens=524_352) <= ttft.sel(host_tokens=0) * 1.01).all()
    assert len(cliff_figure(ds, 262_144).axes) == 2


def test_the_pareto_front_is_what_nothing_exceeds() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random(60), rng.random(60)
    x[3], y[5] = np.nan, np.nan
    front = pareto(x, y)
    for i in set(range(60)) - {3, 5}:
        beaten = any((x[j] >= x[i] and y[j] > y[i]) or (x[j] > x[i] and y[j] >= y[i]) for j in range(60))
        assert (i in front) != beaten
    ds = kvsweep.cluster.sweep(study_samples.study(axes={"n_decode": [1, 2], "rate_scale": [1, 4]}))
    assert pareto_figure(ds).axes[0].get_xlabel().startswith("Tokens per second and user")


def test_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done("trace", "generate", "--preset", "qa", "--sessions", "12", "-o", "trace.jsonl", "-q")
    rows = json.loads(done("study", "capacity", "--trace", "trace.jsonl", "-o", "c.png", "--data", "c.nc", "--format",
                           "json", "-q").stdout)  # fmt: skip
    assert rows[-1]["token_hit_ratio"] >= rows[0]["token_hit_ratio"] and "one_lru_of_all_room" in rows[0]
    done("figures", "curve", "c.nc", "--x", "host_tokens", "--lines", "eviction", "--value", "token_hit_ratio",
         "-o", "curve.png")  # fmt: skip
    done("report", "c.nc")
    assert "device only" in done("study", "tiers", "--trace", "trace.jsonl", "-q").stdout
    done("study", "sources", "-o", "s.png", "-q")
    done("figures", "pareto", "c.nc", "-o", "p.pdf")
    for arguments, message in [
        (("study", "tiers", "-o", "t.png"), "--output: this study is a table"),
        (("study", "sources", "-o", "s.png"), "s.png exists"),
        (("study", "cliff", "--profile", "none.yaml"), "none.yaml: No such file"),
        (("study", "capacity", "--trace", "none.jsonl"), "none.jsonl: No such file"),
    ]:
        assert message in refused(*arguments, "-q")
