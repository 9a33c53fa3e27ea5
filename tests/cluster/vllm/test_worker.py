"""The vLLM worker: rules by hand, compiled against plain source, and against the slow twin."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvsweep.cluster.shared import columns as col
from kvsweep.cluster.simulation.lone_worker import Arrival, Served, content_keys, run
from kvsweep.cluster.vllm import columns as c
from kvsweep.cluster.vllm.limits import Limits
from kvsweep.cluster.vllm.steptime import step_picoseconds
from kvsweep.errors import InputError, ResultError
from tests.cluster.vllm.naive import Request, Worker
from tests.cluster.vllm.naive_time import step_seconds
from tests.cluster.vllm.samples import step_times, workload

TIMES = step_times()
LIMITS = Limits(n_blocks=40, block_tokens=4, token_budget=32, max_sequences=6)


def twin(requests: list[Arrival], limits: Limits) -> list[Request]:
    """Return the requests as the slow twin serves them."""

    def duration(contents: list[tuple[int, int]]) -> int:
        return max(1, int(step_seconds(TIMES, contents) * 1e12 + 0.5))

    worker = Worker(
        limits.n_blocks, limits.block_tokens, limits.token_budget, limits.max_sequences, duration,
        limits.reserve_full, limits.steps_in_flight,
    )  # fmt: skip
    made = [
        Request(i, round(each.arrival * 1e12), each.prompt_tokens, each.output_tokens, list(each.keys))
        for i, each in enumerate(requests)
    ]
    worker.run(made)
    return made


def one(served: Served, row: int = 0) -> dict[str, float]:
    """Return what became of one request, times in microseconds."""
    names = {"first": col.FIRST_TOKEN, "finish": col.FINISHED, "scheduled": col.ADMITTED}
    return {name: round(float(served.request[row, column]) * 1e-6, 3) for name, column in names.items()}


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    blocks=st.integers(22, 60),
    budget=st.integers(2, 70),
    sequences=st.integers(1, 8),
    reserve=st.booleans(),
    flight=st.integers(1, 3),
)
def test_the_worker_is_its_slow_twin(
    seed: int, blocks: int, budget: int, sequences: int, reserve: bool, flight: int
) -> None:
    limits = Limits(
        n_blocks=blocks, block_tokens=4, token_budget=budget, max_sequences=sequences, reserve_full=reserve,
        steps_in_flight=flight,
    )  # fmt: skip
    requests = workload(seed, 25)
    served = run(requests, limits, TIMES)
    for row, request in zip(served.request, twin(requests, limits), strict=True):
        # Summed in another order, the two step times differ in the last digit: a picosecond or so each.
        assert abs(row[col.FIRST_TOKEN] - request.first_token) < 10_000
        assert abs(row[col.FINISHED] - request.finish) < 10_000
        assert (row[c.PREEMPTIONS], row[c.HIT]) == (request.preemptions, request.hit_tokens)


def test_the_compiled_worker_is_the_plain_one() -> None:
    requests = workload(7, 60)
    compiled, plain = (run(requests, LIMITS, TIMES, plain=plain) for plain in (False, True))
    np.testing.assert_array_equal(compiled.request, plain.request)
    np.testing.assert_array_equal(compiled.steps, plain.steps)


def test_everything_is_released_and_counted() -> None:
    requests = workload(3, 80)
    served = run(requests, LIMITS, TIMES)
    assert served.steps[-1, c.LOG_FREE] >= 0
    assert (served.request[:, c.RECEIVED] == [each.output_tokens for each in requests]).all()
    assert (served.request[:, c.HELD] == 0).all() and (served.request[:, c.IN_FLIGHT] == 0).all()
    assert served.request[:, c.PREEMPTIONS].sum() > 0


def test_a_request_alone() -> None:
    """Prompt 10 (step of 10 tokens, not captured), then two captured steps of one token."""
    served = run([Arrival(0.0, 10, 3, [0, 1, 2])], LIMITS, TIMES)
    prompt = 1000 + 10 * 10 + 1 + 2 + (1e-2 * 64 * 32) * 10 / 64
    decodes = [1000 + 10 + 1 + 2 - 10 + 1e-2 * 8 * k for k in (10, 11)]
    assert one(served) == {
        "scheduled": 0.0,
        "first": pytest.approx(prompt, abs=1e-3),
        "finish": pytest.approx(prompt + sum(decodes), abs=2e-3),
    }


def test_a_block_is_found_in_the_pass_that_computes_it() -> None:
    same = list(range(3))
    served = run([Arrival(0.0, 12, 1, same), Arrival(0.0, 12, 1, same)], LIMITS, TIMES)
    assert served.request[:, c.HIT].tolist() == [0, 8]  # at least one token is computed: two of three blocks
    assert len(served.steps) == 1


def test_what_arrives_during_a_step_runs_two_steps_later() -> None:
    served = run([Arrival(0.0, 4, 4, [0, 1]), Arrival(1e-6, 4, 1, [5])], LIMITS, TIMES)
    ends = served.steps[:, c.END]
    assert served.request[1, col.ADMITTED] == ends[0]
    assert served.request[1, col.FIRST_TOKEN] == ends[2]


def test_the_last_is_preempted_and_comes_back_first() -> None:
    """Nine usable blocks, two requests of four that grow to six: the second starts anew when the first is done."""
    limits = Limits(n_blocks=10, block_tokens=4, token_budget=64, max_sequences=4)
    served = run([Arrival(0.0, 16, 8, [*range(6)]), Arrival(0.0, 16, 8, [*range(10, 16)])], limits, TIMES)
    assert served.request[:, c.PREEMPTIONS].tolist() == [0, 1]
    assert served.request[1, col.FINISHED] > served.request[0, col.FINISHED]
    assert served.request[1, c.RECOVERED] > 0


def test_nobody_overtakes() -> None:
    limits = Limits(n_blocks=11, block_tokens=4, token_budget=64, max_sequences=4)
    served = run([Arrival(0.0, 24, 8, [*range(8)]), Arrival(0.0, 24, 1, [*range(10, 16)]),
                  Arrival(0.0, 4, 1, [20])], limits, TIMES)  # fmt: skip
    assert served.request[2, col.ADMITTED] >= served.request[1, col.ADMITTED] > served.request[0, col.ADMITTED]


def test_requests_that_cannot_be() -> None:
    with pytest.raises(InputError, match="needs 50 blocks, and the worker has 39"):
        run([Arrival(0.0, 190, 10, list(range(50)))], LIMITS, TIMES)
    with pytest.raises(InputError, match="order of arrival"):
        run([Arrival(1.0, 4, 4, [0, 1]), Arrival(0.0, 4, 4, [2, 3])], LIMITS, TIMES)
    with pytest.raises(InputError, match="block contents"):
        run([Arrival(0.0, 4, 4, [0])], LIMITS, TIMES)
    with pytest.raises(ResultError, match="no progress"):
        run([Arrival(0.0, 150, 4, list(range(38)))], Limits(n_blocks=40, block_tokens=4, watermark_blocks=9), TIMES)


@pytest.mark.parametrize(
    "contents",
    [
        [(1, 30)],
        [(1, 5), (1, 100)],
        [(16, 0), (1, 9)],
        [(20, 8), (30, 0), (1, 4)],
        [(1, 10)] * 7 + [(1, 200)],
        [(9, 0)] * 5,
        [(250, 600)],
        [(1, 900)] * 9,
    ],
)
def test_step_times_are_the_formulas(contents: list[tuple[int, int]]) -> None:
    step = np.zeros(c.N_STEP, np.int64)
    for tokens, before in contents:
        step[c.TOKENS] += tokens
        step[c.ROWS] += 1
        if tokens == 1:
            step[[c.DECODES, c.CONTEXT]] += (1, before)
            step[c.LONGEST] = max(step[c.LONGEST], before)
        else:
            step[[c.CHUNK, c.PRIOR, c.PAIRS]] += (tokens, before, tokens * (2 * before + tokens))
    found = step_picoseconds(TIMES, TIMES.graphs, step) * 1e-12
    assert found == pytest.approx(step_seconds(TIMES, contents), rel=1e-12, abs=1e-12)


def test_contents_are_chained() -> None:
    keys = content_keys([[1, 2, 3, 4], [1, 2, 3, 4], [9, 9, 3, 4]], [(4, 2), (4, 0), (4, 0)], 2)
    assert keys[0][:2] == keys[1] and keys[0][2] not in keys[1]
    assert not set(keys[2]) & set(keys[1])
