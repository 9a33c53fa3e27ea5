"""The grid engine: kernels beside NumPy, the plain Python loop and the bandwidth of filling the same bytes."""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure, beside, best_seconds, in_turn, median_ratio, wall
from kvsweep.costs.request import request_context
from kvsweep.grid.evaluate import Evaluator, Slab, run_slabs
from kvsweep.grid.plan import Plan, make_plan
from kvsweep.policies.outcome import outcome
from kvsweep.policies.registry import load_policies

SCAN = "performance_aware"
FIXED = ("default_policy", "all_compute")

# Every point misses its SLO when balanced, so that the scan of seven candidates really runs.
PRESSED = {"stack": "a100_ddr5_nvme", "total_blocks": 50_000, "request_rate": "0.2:2:n100"}
DEMO = {
    "stack": "h200", "total_blocks": 200_000, "placement": "auto",
    "hit_ratio": "0:1:0.01", "request_rate": "0.002:0.2:n100", "p95_seconds": "5:60:n100",
}  # fmt: skip


REAL = {
    "gpu": "h100-sxm", "model": "llama-3.1-8b", "placement": "manual:1,2,1", "total_blocks": 6000,
    "p95_seconds": "0.05:5:n100",
}  # fmt: skip
"""A machine on which positions matter, and policies choose otherwise than all or nothing."""

FEW = ("performance_aware", "front_k_overlap")


def measure(tiny: bool) -> list[Figure]:
    """Return all figures of the grid engine."""
    sizes = [2_000] if tiny else [1_000_000, 10_000_000]
    found = []
    for points in sizes:
        found += kernels(points)
    found += positional_kernels(sizes[0], FEW if tiny else list(load_policies()))
    return found + [whole_command(tiny), reduction(tiny)]


def pressed_plan(points: int) -> Plan:
    """Return a plan of about `points` points on which the scan runs everywhere."""
    n_targets = 10 if points < 100_000 else 100
    n_rates = 10 if points < 100_000 else 100
    options = PRESSED | {
        "hit_ratio": f"0.05:0.95:n{points // n_rates // n_targets}",
        "request_rate": f"0.2:2:n{n_rates}",
        "p95_seconds": f"1:60:n{n_targets}",
    }
    return make_plan(options)


def kernels(points: int) -> list[Figure]:
    """Return points per second of each policy: kernel on one and two threads, NumPy, Python; and the fill."""
    plan = pressed_plan(points)
    points = plan.n_points
    evaluator = Evaluator(plan, lambda line: None)
    slab = Slab(slice(0, plan.n_rows), slice(0, plan.shape[-2]), slice(0, plan.shape[-1]), points)
    rows = evaluator.rows(slab).copy()
    out = evaluator.buffers((plan.n_rows, *plan.shape[-2:]))

    def fill() -> None:
        for array in out:
            array.fill(1)

    size = f"{points:.0e} points".replace("e+0", "e")
    found = [Figure(f"fill of the same bytes, {size}", points / best_seconds(fill) / 1e6, "M points/s")]
    loop = python_loop(plan)
    for name, policy in plan.policies.items():

        def kernel(policy: Any = policy) -> None:
            evaluator.evaluate(policy, rows, slab, out)

        times = in_turn([wall(kernel), wall(fill)], 7)
        one = points / min(times[0])
        # What the row claims to time: every point of this plan must take the scan.
        assert name != SCAN or (out[3] == policy.modes.index("best_effort")).all()
        found.append(_kernel_figure(name, size, points, times, loop[name]))
        found.append(_threads_figure(name, size, plan, evaluator, out, one))
        found.append(Figure(f"{name}, NumPy, {size}", numpy_rate(name, plan, rows) / 1e6, "M points/s"))
    return found


def positional_kernels(points: int, names: Sequence[str]) -> list[Figure]:
    """Return points per second of kernels where positions matter, beside the Python loop and their linear twins."""
    axes = {"hit_ratio": f"0.05:0.95:n{max(2, points // 10_000)}", "request_rate": "0.2:2:n100", "overlap": "layerwise"}
    real = make_plan({**REAL, **axes, "policies": names})
    linear = make_plan(
        {**REAL, **axes, "policies": names, "cost_model": "linear", "path_model": "summed", "overlap": "ideal"}
    )
    loop, found = python_loop(real, 1000), []
    sides = [_evaluation(plan) for plan in (real, linear)]
    for name in real.policies:
        here, twin = (min(times) for times in in_turn([wall(side(name)) for side in sides], 5))
        rate, plain = (real.n_points / seconds for seconds in (here, twin))
        label = f"{name}, positional kernel on 1 thread"
        beside_loop = Figure(label, rate / 1e6, "M points/s", "Python loop", loop[name] / 1e6, rate / loop[name])
        found.append(beside_loop.at_least(300, " x the Python loop"))
        found.append(Figure(label, rate / 1e6, "M points/s", "linear kernel", plain / 1e6, rate / plain))
    return found


def _evaluation(plan: Plan) -> Callable[[str], Callable[[], None]]:
    """Return a function that gives, for a policy, one that evaluates all of `plan`."""
    evaluator = Evaluator(plan, lambda line: None)
    slab = Slab(slice(0, plan.n_rows), slice(0, plan.shape[-2]), slice(0, plan.shape[-1]), plan.n_points)
    rows, out = evaluator.rows(slab).copy(), evaluator.buffers((plan.n_rows, *plan.shape[-2:]))
    return lambda name: lambda: evaluator.evaluate(plan.policies[name], rows, slab, out)


def _kernel_figure(name: str, size: str, points: int, times: list[list[float]], loop: float) -> Figure:
    """Return the figure of a kernel, whose `times` stand beside those of the fill; `loop` is the Python loop's rate."""
    label, rate = f"{name}, kernel on 1 thread, {size}", points / min(times[0])
    if name in FIXED and size.startswith("1e6"):
        share, fill = median_ratio(times[1], times[0]), points / min(times[1])
        return Figure(label, rate / 1e6, "M points/s", "fill", fill / 1e6, share).at_least(0.3, " of the fill")
    figure = Figure(label, rate / 1e6, "M points/s", "Python loop", loop / 1e6, rate / loop)
    return figure.at_least(1000, " x the Python loop") if name == SCAN else figure


def _threads_figure(name: str, size: str, plan: Plan, evaluator: Evaluator, out: Any, one: float) -> Figure:
    policy = plan.policies[name]

    def work(slab: Slab) -> None:
        rows = evaluator.rows(slab)
        evaluator.evaluate(policy, rows, slab, [array[slab.rows, slab.rates, slab.targets] for array in out])

    two = plan.n_points / best_seconds(lambda: list(run_slabs(plan, work, 2, None)))
    return Figure(f"{name}, slabs on 2 threads, {size}", two / 1e6, "M points/s", "1 thread", one / 1e6, two / one)


def python_loop(plan: Plan, sample: int = 3000) -> dict[str, float]:
    """Return points per second of the plain loop: per point build the context, decide, evaluate."""
    rates, deployment = plan.deployments[0].rates(), (0.0, 0.0, 1.0)
    total = float(plan.numbers("total_blocks")[0])
    axes = [plan.numbers(name).tolist() for name in (plan.hit_dim, "request_rate", "p95_seconds")]
    step = max(1, plan.n_points // sample)
    points = [
        (float(round(total * (1.0 - hit))), rate, target)
        for hit, rate, target in itertools.islice(itertools.product(*axes), 0, None, step)
    ]
    found = {}
    for name, policy in plan.policies.items():

        def loop(policy: Any = policy) -> None:
            for missing, rate, target in points:
                outcome(policy, request_context(rates, deployment, (total, missing), rate, target, policy.recomputes))

        found[name] = len(points) / best_seconds(loop, 5)
    return found


def numpy_rate(name: str, plan: Plan, rows: NDArray[np.float64]) -> float:
    """Return points per second of the same policy written with NumPy arrays and broadcasting."""
    from kvsweep.jit import kernels as fields

    rate = plan.numbers("request_rate")[None, :, None]
    target = plan.numbers("p95_seconds")[None, None, :]
    total, miss, hit, storage, recompute = (
        rows[index][:, None, None]
        for index in (fields.TOTAL, fields.MISS, fields.HIT, fields.STORAGE, fields.RECOMPUTE)
    )

    def judged(k: Any) -> tuple[Any, Any]:
        restore, compute = (hit - k) / storage, (miss + k) / recompute
        time = np.maximum(restore, compute)
        worst = np.maximum(time / target, rate * np.maximum(compute, restore)) - 1.0
        return time, np.maximum(worst, 0.0)

    def run() -> Any:
        if name == "default_policy":
            return judged(np.zeros_like(hit))
        if name == "all_compute":
            return judged(hit)
        balanced = np.clip(total * recompute / (storage + recompute) - miss, 0.0, hit)
        best_time, least = judged(balanced)
        if name != SCAN:  # all hits are on disk here, where the tail is the plain balance
            return best_time, least
        corners = (0.0 * hit, hit, recompute / rate - miss, target * recompute - miss, hit - storage / rate,
                   hit - target * storage)  # fmt: skip
        for corner in corners:
            time, worst = judged(np.clip(corner, 0.0, hit))
            better = (worst < least) | ((worst == least) & (time < best_time))
            least, best_time = np.where(better, worst, least), np.where(better, time, best_time)
        return best_time, least

    return plan.n_points / best_seconds(run, 3)


WRITER = """
import sys, numba, numpy as np, xarray as xr, netCDF4
from pathlib import Path
from kvsweep.results.netcdf import write_netcdf
shape = tuple(int(n) for n in sys.argv[2].split(","))
names = {"reassigned_hit_blocks": "f4", "total_time": "f4", "meets_slo": "i1", "decision_mode": "i1"}
dims = ("policy", "hit_ratio", "request_rate", "p95_seconds")
data = np.load(sys.argv[3])
write_netcdf(xr.Dataset({name: (dims, data[name]) for name in names}), Path(sys.argv[1]))
"""


def whole_command(tiny: bool) -> Figure:
    """Return the time of a warm ``kvsweep sweep`` beside a process that imports the same and writes equal arrays."""
    axes = DEMO | ({"hit_ratio": "0:1:0.1"} if tiny else {})
    options = [part for name, value in axes.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        arrays = Path(folder) / "arrays.npz"
        import kvsweep

        ds = kvsweep.sweep(**axes)
        np.savez(arrays, **{str(name): ds[name].values for name in ds.data_vars})
        shape = ",".join(str(length) for length in ds.total_time.shape)
        sweep = [sys.executable, "-m", "kvsweep", "sweep", *options, "--force", "--quiet", "-o", f"{folder}/sweep.nc"]
        write = [sys.executable, "-c", WRITER, f"{folder}/write.nc", shape, str(arrays)]
        times = in_turn([wall(_runner(sweep)), wall(_runner(write))], 1 if tiny else 7)
    name = f"kvsweep sweep, {ds.total_time[0].size:,} points x {ds.sizes['policy']} policies to NetCDF"
    return beside(name, "s", "imports and writing equal arrays", times).at_most(2, " x")


def _runner(command: list[str]) -> Callable[[], Any]:
    return lambda: subprocess.run(command, check=True, capture_output=True)


# Peak memory from VmHWM: the resource module would count what the parent held when it forked.
REDUCER = """
import sys, kvsweep
n = sys.argv[1]
kvsweep.sweep(stack="h200", hit_ratio=f"0:1:n{n}", request_rate=f"0.01:0.3:n{n}", p95_seconds=f"5:60:n{n}",
              reduce="success_rate,sufficient,total_time_mean,total_time_max")
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def reduction(tiny: bool) -> Figure:
    """Return the peak memory of reducing a grid of 1e9 points."""
    n = 30 if tiny else 1000
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", REDUCER, str(n)], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - start
    peak = float(done.stdout) * 1024 / 1e6
    stored = n**3 * 4 * 10 / 1e6
    name = f"peak memory of reducing {n**3:.0e} points x 4 policies ({seconds:.3g} s)"
    return Figure(name, peak, "MB", "stored", stored, peak / stored).at_most(0.01, " of what is stored")
