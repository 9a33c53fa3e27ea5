"""What follows from a stored sweep: times, utilisations, verdicts, success rates (arrays in, arrays out)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable

import numpy as np
import xarray as xr

from kvsweep.errors import InputError, unknown_name
from kvsweep.results.analysis.ranking import simplest_first
from kvsweep.results.names import attributes

VERDICTS = ("fail", "throughput_only", "latency_only", "pass")
"""States of a point against its SLO, in the order of their codes."""


def hit_blocks(ds: xr.Dataset) -> xr.DataArray:
    """Return the cached blocks [block] of each point."""
    return ds["total_blocks"] - ds["miss_blocks"]


def storage_time(ds: xr.Dataset) -> xr.DataArray:
    """Return the restore time [s] of each policy, by the side of the prefix it recomputes."""
    return _of_each("storage_time", ds, _storage_time_of)


def recompute_time(ds: xr.Dataset) -> xr.DataArray:
    """Return the recompute time [s] of each policy; where positions matter, by the side of the prefix it recomputes."""
    if _positional(ds) is None:
        return _named("recompute_time", _linear_recompute_time(ds), ds)
    return _of_each("recompute_time", ds, _recompute_time_of)


def _of_each(name: str, ds: xr.Dataset, of: Callable[[xr.Dataset], xr.DataArray]) -> xr.DataArray:
    """Return ``of(ds)`` of every policy."""
    if "policy" not in ds.dims:
        return _named(name, of(ds), ds)
    times = [of(ds.isel(policy=index)) for index in range(ds.sizes["policy"])]
    return _named(name, xr.concat(times, dim=ds["policy"], coords="minimal", compat="override"), ds)


def _positional(ds: xr.Dataset) -> xr.DataArray | None:
    """Return where positions of tokens matter (`Deployment.is_positional`); None for a sweep without such points."""
    if "token_pair_seconds" not in ds.variables:
        return None
    return (ds["cost_model"] != "linear") | (ds["overlap"] != "ideal")


def _storage_time_of(ds: xr.Dataset) -> xr.DataArray:
    side, positional = str(ds["policy_recomputes"].values), _positional(ds)
    if positional is None and side == "any":
        return _blended_time(ds)
    order = ("disk", "dram", "vram") if side == "tail" else ("vram", "dram", "disk")
    taken = ds["reassigned_hit_blocks"].astype("f8")
    time: xr.DataArray | float = 0.0
    outside: xr.DataArray | float = 0.0
    for tier in order:
        held = ds["tier_hit_blocks"].sel(tier=tier, drop=True)
        left = (held - taken).clip(min=0.0)
        taken = (taken - held).clip(min=0.0)
        time = time + left / ds["tier_throughput"].sel(tier=tier, drop=True)
        outside = outside + (left if tier != "vram" else 0.0)
    assert isinstance(time, xr.DataArray)
    if positional is None:
        return time
    linear = _blended_time(ds) if side == "any" else time
    assert isinstance(outside, xr.DataArray)
    return (time + ds["setup_seconds"].where(outside > 0.0, 0.0)).where(positional, linear)


def _blended_time(ds: xr.Dataset) -> xr.DataArray:
    """Return the time [s] of hits that all tiers restore alike."""
    return (hit_blocks(ds) - ds["reassigned_hit_blocks"].astype("f8")) / ds["storage_throughput"]


def _linear_recompute_time(ds: xr.Dataset) -> xr.DataArray:
    return (ds["miss_blocks"] + ds["reassigned_hit_blocks"].astype("f8")) / ds["recompute_throughput"]


def _recompute_time_of(ds: xr.Dataset) -> xr.DataArray:
    reassigned = ds["reassigned_hit_blocks"].astype("f8")
    hits, end = hit_blocks(ds), _prefix_time(ds, ds["total_blocks"])
    if str(ds["policy_recomputes"].values) == "tail":
        time = end - _prefix_time(ds, hits - reassigned)
    else:
        time = _prefix_time(ds, reassigned) + end - _prefix_time(ds, hits)
    positional = _positional(ds)
    assert positional is not None
    return time.where(positional, _linear_recompute_time(ds))


def _prefix_time(ds: xr.Dataset, blocks: xr.DataArray) -> xr.DataArray:
    """Return the time [s] of computing the first `blocks` [block] of a prompt, see `Context.prefix_seconds`."""
    tokens = blocks * ds["tokens_per_block"]
    return tokens * (ds["token_seconds"] + 0.5 * ds["token_pair_seconds"] * tokens)


def gpu_utilization(ds: xr.Dataset) -> xr.DataArray:
    """Return request rate times recompute time [1]."""
    return _named("gpu_utilization", ds["request_rate"] * recompute_time(ds), ds)


def storage_utilization(ds: xr.Dataset) -> xr.DataArray:
    """Return request rate times restore time [1]."""
    return _named("storage_utilization", ds["request_rate"] * storage_time(ds), ds)


def latency_ratio(ds: xr.Dataset) -> xr.DataArray:
    """Return total time over latency target [1]."""
    return _named("latency_ratio", ds["total_time"].astype("f8") / ds["p95_seconds"], ds)


def slo_margin(ds: xr.Dataset) -> xr.DataArray:
    """Return latency target minus total time [s]."""
    return _named("slo_margin", ds["p95_seconds"] - ds["total_time"].astype("f8"), ds)


def max_violation(ds: xr.Dataset) -> xr.DataArray:
    """Return the largest excess [1] over the three limits; 0 wherever the stored verdict is a pass."""
    latency, throughput = latency_ratio(ds), _throughput_ratio(ds)
    worst = latency.where(latency >= throughput, throughput) - 1.0
    return _named("max_violation", xr.where(ds["meets_slo"] == 1, 0.0, worst.clip(min=0.0)), ds)


def verdict(ds: xr.Dataset) -> xr.DataArray:
    """Return the state of each point as a code of `VERDICTS`.

    A pass is the stored one, decided in float64. Where rounding to the stored precision makes a failing point
    look as if it met both limits, the limit it is closest to is the one that fails.
    """
    latency, throughput = latency_ratio(ds), _throughput_ratio(ds)
    latency_ok = (latency <= 1.0) & ~((throughput <= 1.0) & (latency >= throughput))
    throughput_ok = (throughput <= 1.0) & ~((latency <= 1.0) & (throughput > latency))
    code = xr.where(ds["meets_slo"] == 1, 3, xr.where(latency_ok, 2, xr.where(throughput_ok, 1, 0)))
    return _flags(_named("verdict", code.astype("i1"), ds), range(4), VERDICTS)


def _throughput_ratio(ds: xr.Dataset) -> xr.DataArray:
    gpu, storage = gpu_utilization(ds), storage_utilization(ds)
    return gpu.where(gpu >= storage, storage)


def success_rate(ds: xr.Dataset, over: Iterable[Hashable]) -> xr.DataArray:
    """Return the share [1] of points along `over` that meet the SLO; dims the sweep squeezed out count as one point."""
    wanted = [over] if isinstance(over, str) else list(over)
    for dim in wanted:
        if dim not in ds.dims and dim not in ds.coords:
            raise unknown_name("over", str(dim), [str(name) for name in ds["meets_slo"].dims])
    dims = [dim for dim in wanted if dim in ds["meets_slo"].dims]
    return _named("success_rate", ds["meets_slo"].mean(dims, dtype="f8"), ds)


def sufficient(ds: xr.Dataset) -> xr.DataArray:
    """Return the index along `policy` of the simplest policy that meets the SLO, -1 where none does.

    Simplest: fewest decision modes, then display order.
    """
    index = xr.full_like(ds["meets_slo"].isel(policy=0, drop=True), -1, dtype="i2")
    for policy in reversed(simplest_first(ds["policy_modes"].values, ds["policy_order"].values)):
        index = xr.where(ds["meets_slo"].isel(policy=policy, drop=True) == 1, np.int16(policy), index)
    names = [str(name) for name in ds["policy"].values]
    return _flags(_named("sufficient", index, ds), range(-1, len(names)), ("none", *names))


def speedup(ds: xr.Dataset, faster: str, slower: str) -> xr.DataArray:
    """Return ``T_slower / T_faster`` [1]: how many times faster the first policy is than the second."""
    times = ds["total_time"].astype("f8")
    quick, slow = (times.isel(policy=policy_index(ds, name), drop=True) for name in (faster, slower))
    return _named("speedup", slow / quick, ds)


def policy_index(ds: xr.Dataset, name: str, what: str = "policy") -> int:
    """Return the position of the policy called `name`, by id or by label; an unknown one is an error naming `what`."""
    ids = [str(known) for known in ds["policy"].values]
    labels = [str(known) for known in ds["policy_label"].values] if "policy_label" in ds.coords else []
    for names in (ids, labels):
        if name in names:
            return names.index(name)
    raise unknown_name(what, name, ids)


_NUMBERS = (
    "meets_slo", "total_time", "reassigned_hit_blocks", "decision_mode", "total_blocks", "miss_blocks",
    "request_rate", "p95_seconds", "storage_throughput", "recompute_throughput", "tokens_per_block",
)  # fmt: skip
_DESCRIBED = (*_NUMBERS, "policy", "policy_label", "policy_color", "policy_modes", "policy_order", "tier_hit_blocks")
"""What every full sweep holds; a file of somebody else may lack any."""


def require_sweep(ds: xr.Dataset) -> None:
    """Raise InputError when `ds` holds reductions or something else than a full sweep."""
    missing = {"reassigned_hit_blocks", "total_time", "meets_slo"} - set(map(str, ds.data_vars))
    missing |= {name for name in _DESCRIBED if name not in ds.variables}
    if missing:
        raise InputError(f"this Dataset has no {', '.join(sorted(missing))}; allowed: the result of a full sweep")
    empty = [str(dim) for dim, length in ds.sizes.items() if not length]
    if empty:
        raise InputError(f"this Dataset has no points along {', '.join(empty)}; allowed: the result of a full sweep")
    texts = [name for name in _NUMBERS if ds[name].dtype.kind not in "biuf"]
    if texts:
        raise InputError(f"{texts[0]} of this Dataset does not hold numbers; allowed: the result of a full sweep")


def require_policies(ds: xr.Dataset) -> None:
    """Raise InputError when `ds` is no full sweep with a dim of policies, which a slice may lack."""
    require_sweep(ds)
    if "policy" not in ds.dims:
        raise InputError("this Dataset has no dim policy; allowed: one policy as a list, as in ds.isel(policy=[0])")


def _named(name: str, array: xr.DataArray, ds: xr.Dataset) -> xr.DataArray:
    dims = [dim for dim in ds["meets_slo"].dims if dim in array.dims]
    return array.transpose(*dims).rename(name).assign_attrs(attributes(name))


def _flags(array: xr.DataArray, values: range, meanings: tuple[str, ...]) -> xr.DataArray:
    codes = np.array(values, dtype=array.dtype)
    return array.assign_attrs(flag_values=codes, flag_meanings=" ".join(meanings))
