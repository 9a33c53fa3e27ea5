"""The loop of a vLLM worker: up to two steps in flight, the next scheduled when the oldest ends."""

from __future__ import annotations

from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.schedule import arrive, deliver, schedule
from kvsweep.cluster.vllm.state import Worker
from kvsweep.cluster.vllm.steptime import StepTimes, extrapolated, step_picoseconds


def serve(w: Worker, times: StepTimes) -> int:
    """Serve all requests; return DONE, GROW for a full log (call again), or STUCK for a request that never fits."""
    while w.run[c.ARRIVED] < len(w.request) or w.run[c.N_RUNNING] + w.run[c.N_WAITING] + w.run[c.N_FLIGHT] > 0:
        if w.run[c.N_LOG] == len(w.log):
            return c.GROW
        arrive(w)
        schedule(w)
        if w.step[c.TOKENS] > 0:
            slot = _launch(w, times)
            oldest = w.flight_end[w.run[c.FLIGHT_HEAD]]
            if w.run[c.N_FLIGHT] < w.limits[c.STEPS_IN_FLIGHT] and oldest > w.run[c.NOW] and slot >= 0:
                continue
        if w.run[c.N_FLIGHT] > 0:
            w.run[c.NOW] = max(w.run[c.NOW], w.flight_end[w.run[c.FLIGHT_HEAD]])
            deliver(w)
        elif w.run[c.ARRIVED] < len(w.request):
            w.run[c.NOW] = max(w.run[c.NOW], w.request[w.run[c.ARRIVED], c.ARRIVAL])
        elif w.run[c.N_RUNNING] + w.run[c.N_WAITING] > 0:
            return c.STUCK
    return c.DONE


def _launch(w: Worker, times: StepTimes) -> int:
    """Put the scheduled step behind those in flight and log it; return its slot."""
    slot = (w.run[c.FLIGHT_HEAD] + w.run[c.N_FLIGHT]) % w.limits[c.STEPS_IN_FLIGHT]
    start = max(w.run[c.NOW], w.run[c.GPU_FREE])
    end = start + step_picoseconds(times, w.step)
    w.flight_end[slot] = end
    w.run[c.GPU_FREE] = end
    w.run[c.N_FLIGHT] += 1
    line = w.log[w.run[c.N_LOG]]
    line[c.START], line[c.END] = start, end
    line[c.LOG_TOKENS], line[c.LOG_CHUNK], line[c.LOG_ROWS] = w.step[c.TOKENS], w.step[c.CHUNK], w.step[c.ROWS]
    line[c.LOG_RUNNING], line[c.LOG_WAITING] = w.run[c.N_RUNNING], w.run[c.N_WAITING]
    line[c.LOG_FREE] = w.run[c.N_FREE]
    line[c.LOG_EXTRAPOLATED] = extrapolated(times, w.step)
    w.run[c.N_LOG] += 1
    return int(slot)
