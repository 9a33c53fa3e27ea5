"""Streamed reductions against the same reductions of the stored grid."""

from __future__ import annotations

import numpy as np
import pytest

import kvsweep
from kvsweep.errors import InputError
from kvsweep.grid.reduce import REDUCTIONS

AXES = {"stack": ["h200", "a100_ddr4_sata"], "total_blocks": [10_000, 60_000], "hit_ratio": "0:1:n6",
        "request_rate": "0.01:0.5:n9", "p95_seconds": "1:60:n8"}  # fmt: skip


@pytest.mark.parametrize("over", [
    ("request_rate", "p95_seconds"), ("p95_seconds",), ("request_rate",), ("hit_ratio",), ("stack", "p95_seconds"),
    ("stack", "total_blocks", "placement", "hit_ratio", "request_rate", "p95_seconds"),
])  # fmt: skip
@pytest.mark.parametrize("slab", [1 << 18, 10])
def test_reductions_equal_those_of_the_stored_grid(
    over: tuple[str, ...], slab: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = kvsweep.sweep(**AXES, dtype="f8", squeeze=False)
    monkeypatch.setattr("kvsweep.grid.evaluate.slabs.__defaults__", (slab,))
    reduced = kvsweep.sweep(**AXES, reduce=list(REDUCTIONS), reduce_over=over, squeeze=False)
    time, sufficient = stored.total_time, stored.kvsweep.sufficient
    expected = {
        "success_rate": stored.meets_slo.mean(over),
        "total_time_mean": time.mean(over),
        "total_time_min": time.min(over),
        "total_time_max": time.max(over),
        "reassigned_hit_blocks_mean": stored.reassigned_hit_blocks.mean(over),
    }
    for name, values in expected.items():
        assert reduced[name].dims == values.dims
        assert np.allclose(reduced[name], values, rtol=1e-12, atol=0)
    for index, name in enumerate(stored.policy.values):
        share = (sufficient == index).mean(over)
        assert np.allclose(reduced.sufficient_share.sel(policy=name), share, rtol=1e-12, atol=0)
    assert reduced.attrs["kvsweep_kind"] == "reduction"
    assert all(dim in reduced.attrs["kvsweep_reduced_over"] for dim in over)


def test_reductions_do_not_depend_on_threads() -> None:
    runs = [kvsweep.sweep(**AXES, reduce="total_time_mean", threads=threads) for threads in (1, 2, 5)]
    assert all(np.array_equal(runs[0].total_time_mean, run.total_time_mean) for run in runs)


def test_memory_does_not_grow_with_the_grid() -> None:
    """A grid of 4e7 points x 4 policies would take 1.6 GB stored; the reduction keeps a few slabs."""
    import tracemalloc

    kvsweep.sweep(hit_ratio=0.5, reduce="success_rate")
    tracemalloc.start()
    kvsweep.sweep(hit_ratio="0:1:n40", request_rate="0.1:1:n1000", p95_seconds="1:60:n1000", reduce="success_rate")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduce": "succes_rate"}, "reduce: no 'succes_rate'; did you mean 'success_rate'"),
        ({"reduce": []}, "reduce: "),
        ({"reduce": "success_rate", "reduce_over": "rate"}, "reduce_over: no 'rate'"),
        ({"reduce": "success_rate", "reduce_over": []}, "reduce_over"),
    ],
)
def test_unknown_reductions_and_dims_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        kvsweep.sweep(**options)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_missing_blocks_are_laid_out_only_where_they_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Total x hit ratio may be a grid far larger than memory."""
    axes = {"total_blocks": "1:20:1", "hit_ratio": "0:1:n30", "request_rate": 0.1, "p95_seconds": 10}
    kept = kvsweep.sweep(**axes, reduce="success_rate")
    assert kept.miss_blocks.shape == (20, 30)
    monkeypatch.setattr("kvsweep.grid.sweep._miss_coord", lambda plan: pytest.fail("laid out"))
    ds = kvsweep.sweep(**axes, reduce="success_rate", reduce_over="hit_ratio")
    assert "miss_blocks" not in ds.coords and ds.total_blocks.size == 20
