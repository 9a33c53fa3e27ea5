"""What is beyond the model's context is refused, cut or served before the core sees it, and counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvsweep.catalog import load
from kvsweep.cluster import run
from kvsweep.cluster.inputs.config import parse_config
from kvsweep.cluster.inputs.roofline import roofline
from kvsweep.cluster.inputs.service_profile import Profile
from kvsweep.cluster.outcome.summary import summarize
from kvsweep.cluster.setup.context import admitted, with_context
from kvsweep.errors import InputError
from kvsweep.trace.model import Trace
from tests.cli_runner import done
from tests.trace.samples import made

CASES = Path(__file__).parents[2] / "trace" / "cases"
LIMIT = 40_960
"""Context of qwen3-8b in the catalog [token]."""


@pytest.fixture(scope="module")
def profile() -> Profile:
    return roofline(load(), "qwen3-8b", "h100-sxm", 1)


def cluster(**changes: Any) -> dict[str, Any]:
    worker = {"tp": 1, "device_tokens": 262_144}
    return {"workers": [{"role": "prefill", **worker}, {"role": "decode", **worker}], **changes}


def requests() -> Trace:
    """Return five turns of a session, of which the second is as long as the context and the third a token longer."""
    lengths = [(500, 9), (LIMIT - 9, 9), (LIMIT - 9, 10), (600, 9), (50_000, 9)]
    return made([(float(i), *each, []) for i, each in enumerate(lengths)], sessions=[0] * 5)


def test_requests_beyond_are_refused_and_the_others_are_served_as_without_them(profile: Profile) -> None:
    ds = run(requests(), cluster(), profile)
    assert ds["rejected"].values.tolist() == [0, 0, 1, 0, 1]
    alone = run(requests().select(np.array([0, 1, 3])), cluster(), profile)
    for name in ("ttft", "e2e", "uncached_tokens", "prefill_worker", "queue_delay"):
        assert np.array_equal(ds[name].values[[0, 1, 3]], alone[name].values, equal_nan=True), name
    assert ds["arrival"].values.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert ds["prefill_worker"].values[[2, 4]].tolist() == [-1, -1] and np.isnan(ds["ttft"].values[[2, 4]]).all()
    assert ds["prompt_tokens"].values[4] == 50_000
    assert summarize(ds)["context"] == {"tokens": LIMIT, "beyond": "refuse", "requests": 2}
    said = f"dropped (2): prompt and answer beyond the context of {LIMIT} tokens: refused, as the engine does"
    assert any(note.startswith(said) for note in ds.attrs["kvsweep_trace_notes"].splitlines()) or said in str(
        ds.attrs["kvsweep_trace_notes"]
    )


def test_they_may_be_cut_or_served(profile: Profile) -> None:
    cut = run(requests(), cluster(context={"beyond": "cut"}), profile)
    assert cut["prompt_tokens"].values.tolist() == [500, LIMIT - 9, LIMIT - 9, 600, LIMIT - 1]
    assert cut["output_tokens"].values.tolist() == [9, 9, 9, 9, 1] and not cut["rejected"].values.any()
    served = run(requests(), cluster(context={"beyond": "serve"}), profile)
    assert served["prompt_tokens"].values[4] == 50_000 and not served["rejected"].values.any()
    assert [summarize(ds)["context"]["requests"] for ds in (cut, served)] == [2, 2]


def test_a_turn_after_one_that_is_refused_waits_for_both(profile: Profile) -> None:
    config = with_context(parse_config(cluster(workload={"mode": "closed"}), "c"), profile)
    found = admitted(requests(), config)
    # Think times of the five turns are 0, 1, 2, 3 and 4 s, the first one's of no account.
    assert found.trace.think.tolist()[1:] == [1.0, 2.0 + 3.0] and found.kept.tolist() == [
        True,
        True,
        False,
        True,
        False,
    ]
    ds = run(requests(), cluster(workload={"mode": "closed"}), profile)
    assert ds["rejected"].values.tolist() == [0, 0, 1, 0, 1] and np.isnan(ds["arrival"].values[[2, 4]]).all()
    assert ds["arrival"].values[3] == pytest.approx(ds["finish"].values[1] + 5.0)


def test_the_limit_is_the_files_the_catalogs_or_none(profile: Profile) -> None:
    def limit(model: str, **context: Any) -> int | None:
        named = Profile(**{name: getattr(profile, name) for name in profile.__slots__} | {"model": model})
        return with_context(parse_config(cluster(context=context), "c"), named).context.tokens

    assert (
        limit("qwen3-8b") == LIMIT and limit("Qwen/Qwen3-8B") == LIMIT and limit("meta-llama/Llama-3.1-8B") == 131_072
    )
    assert limit("qwen3-8b", tokens=500) == 500 and limit("") is None and limit("mine") is None
    with pytest.raises(
        InputError, match="context: all 5 requests are longer than 100 tokens, prompt and answer; allowed"
    ):
        run(requests(), cluster(context={"tokens": 100}), profile)
    with pytest.raises(InputError, match="context: beyond: no 'drop'"):
        run(requests(), cluster(context={"beyond": "drop"}), profile)


def test_the_command_tells_of_them(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("cluster.yaml", "profile.yaml")]
    done("cluster", "init", "--preset", "vllm", "-o", files[0], "--profile", files[1])
    trace, steps = CASES / "over_context.csv", "h100-sxm-llama-3.1-8b"
    ran = done("cluster", "run", trace, "--config", files[0], "--profile", steps, "-o", tmp_path / "run.nc")
    assert "dropped (1): prompt and answer beyond the context of 131072 tokens: refused" in ran.stderr
    summary = done("cluster", "summary", tmp_path / "run.nc").stdout
    assert summary.startswith("2 requests, 1 rejected; 1 beyond the context of 131072 tokens: refused; ")
