"""The sentences of the headline against counts taken directly from the Dataset."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kvsweep
from kvsweep.report.headline import Headline, headline, share
from kvsweep.report.labels import label, listed, number, shorten
from tests.report.datasets import several, small


def of(ds) -> Headline:
    dims = [dim for dim in ds["meets_slo"].dims if dim != "policy"]
    return headline(ds, ds.kvsweep.verdict.values.astype(np.uint8), dims)


@pytest.mark.parametrize("make", [small, several])
def test_the_answer_names_the_policy_that_passes_most_with_its_count(make):
    ds = make()
    passes = ds["meets_slo"].sum([dim for dim in ds["meets_slo"].dims if dim != "policy"]).values
    found = of(ds)
    assert str(ds["policy_label"].values[passes.argmax()]) in found.sentences[0]
    assert f"({passes.max():,})" in found.sentences[0]
    assert found.counts[:, 3].tolist() == passes.tolist()
    gap = f"{passes.max() - passes.min():,} fewer"
    assert any(gap in text for text in found.sentences)


def test_sufficient_counts_are_those_of_the_accessor():
    ds = several()
    sufficient = ds.kvsweep.sufficient.values
    expected = [int((sufficient == index).sum()) for index in (*range(ds.sizes["policy"]), -1)]
    assert of(ds).sufficient.tolist() == expected


def test_where_it_fails_is_the_smallest_box_of_failures():
    ds = small()
    worst = int(ds["meets_slo"].sum(["hit_ratio", "request_rate", "p95_seconds"]).values.argmin())
    label = str(ds["policy_label"].values[worst])
    text = next(text for text in of(ds).sentences if text.startswith(f"{label} fails"))
    fails = ds["meets_slo"].isel(policy=worst) == 0
    for dim, name in (("hit_ratio", "hit ratio"), ("request_rate", "request rate"), ("p95_seconds", "latency target")):
        values = ds[dim].values[fails.any([each for each in fails.dims if each != dim]).values]
        bounds = re.search(rf"{name} ([≤≥]) ([\d.]+)", text)
        if bounds is None:
            assert len(values) == ds.sizes[dim] or name in text
        else:
            edge = values.max() if bounds[1] == "≤" else values.min()
            assert float(bounds[2]) == pytest.approx(edge, rel=1e-3)


def test_all_pass_and_none_pass():
    easy = of(kvsweep.sweep(stack="h200", hit_ratio=0.5, request_rate="0.01,0.02", p95_seconds="50,60"))
    assert easy.sentences[0] == "Every policy meets the SLO at all 4 points."
    hard = of(kvsweep.sweep(stack="h200", hit_ratio=0.5, request_rate="10,20", p95_seconds="0.01,0.02"))
    assert hard.sentences == ["No policy meets the SLO at any of the 4 points."]
    one = of(kvsweep.sweep(stack="h200", hit_ratio=0.5, request_rate=0.01, p95_seconds=60))
    assert one.sentences[0] == "Every policy meets the SLO at the one point there is."


def test_shares_say_all_and_none_only_when_true():
    assert [share(0, 9), share(9, 9)] == ["0\xa0%", "100\xa0%"]
    assert share(1, 100_000) == "under 0.1\xa0%"
    assert share(99_999, 100_000) == "over 99.9\xa0%"
    assert share(1, 3) == "33.3\xa0%"


def test_words():
    assert listed(["a"]) == "a" and listed(["a", "b", "c"]) == "a, b and c"
    assert shorten("a\n  b" + "x" * 100, 10) == "a bxxxxxx…"
    assert [number(12345.0), number(0.00012345), number(float("inf"))] == ["12,345", "0.0001234", "infinite"]


def test_one_point_has_no_shares_and_no_axes():
    ds = kvsweep.sweep(hit_ratio=0.5, request_rate=0.02, p95_seconds=10)
    told = of(ds).sentences
    assert told[0].endswith("meet the SLO at the one point there is.") and told[1] == "Recompute misses it."
    assert told[2] == "IO-aware policy takes 8.205 s, Recompute 16.41 s."
    assert not any(word in text for text in told for word in ("axis", "median", "fewer"))


def test_labels_begin_with_a_capital_but_for_names_with_their_own() -> None:
    assert label("n_vllm") == "vLLM workers" and label("vllm_token_budget") == "vLLM token budget"
    assert label("n_colocated") == "Workers that prefill and decode" and label("page_size") == "Page size"
