"""Kernel profiles to step times: made-up ones whose answer is known by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kvsweep.calibrate.curves import filled, held_out, isotonic, isotonic_median, monotone_grid, robust_curve, thinned
from kvsweep.calibrate.fits.compose import compose, weights_bytes
from kvsweep.calibrate.kernels.layers import Parallel
from kvsweep.calibrate.kernels.profile import read_kernels
from kvsweep.catalog import load
from kvsweep.catalog.specs import Model
from kvsweep.cluster.inputs.step_profile import (
    StepProfile,
    parse_step_profile,
    read_step_profile,
    step_profile_text,
    step_times,
)
from kvsweep.cluster.vllm.steptime import line, table
from kvsweep.errors import InputError
from tests.calibrate.kernel_samples import DENSE, attention_us, layer_us, write_profile

MODEL = load().part("models", "llama-3.1-8b", "model")
L = 32


def composed(folder: Path, **options: object) -> StepProfile:
    return compose(read_kernels(folder), MODEL, **options)  # type: ignore[arg-type]


def test_a_step_is_the_sum_of_its_layers(tmp_path: Path) -> None:
    profile = composed(write_profile(tmp_path))
    times = step_times(profile)
    layer = sum(DENSE[name] for name in DENSE if name not in ("embedding", "final_layernorm")) + DENSE["layernorm"]
    for tokens in (1, 5, 100, 1000):
        expected = L * layer_us(layer, tokens) + layer_us(3.0, tokens)
        assert line(times.tokens, times.token_seconds, tokens) == pytest.approx(expected * 1e-6, rel=0.005)
    assert line(times.sequences, times.sequence_seconds, 4) == pytest.approx(layer_us(55.0, 4) * 1e-6, rel=0.005)
    for point in ((0, 0, 4, 64), (64, 16, 4, 64), (100, 100, 10, 100), (256, 0, 0, 0)):
        assert table(times, *map(float, point)) == pytest.approx(L * attention_us(*point) * 1e-6, rel=0.01), point


def test_errors_of_rows_held_out_are_small_where_tables_are_lines(tmp_path: Path) -> None:
    profile = composed(write_profile(tmp_path))
    for part in (profile.tokens, profile.sequences, profile.attention):
        assert part.held_out_error < 0.02
    assert profile.attention.rows > profile.attention.held_out_rows > 0


def test_what_a_captured_step_saves(tmp_path: Path) -> None:
    """Nine kernels a layer (two norms, attention) times the shortest, the embedding's microsecond."""
    profile = composed(write_profile(tmp_path))
    assert profile.captured_saving_seconds == pytest.approx(L * 9 * 1e-6)


def test_unequal_contexts_take_their_share(tmp_path: Path) -> None:
    profile = composed(write_profile(tmp_path, skew=True))
    assert profile.skew is not None
    assert profile.skew.axes == ((4.0, 16.0), (0.0, 16.0, 64.0))
    assert profile.skew.seconds == pytest.approx((0.25,) * 3 + (0.0,) * 3)
    assert composed(write_profile(tmp_path / "without")).skew is None


def test_where_decode_splits_its_context(tmp_path: Path) -> None:
    folder = write_profile(tmp_path)
    assert composed(folder).split_below == 0.0  # the GPU is not known
    assert composed(folder, processors=128).split_below == pytest.approx(0.8 * 256 / 8)


def test_the_family_with_query_norms(tmp_path: Path) -> None:
    plain, normed = (composed(write_profile(tmp_path / name, layers)) for name, layers in
                     (("a", DENSE), ("b", DENSE | {"qk_norm": 1.5})))  # fmt: skip
    more = normed.tokens.seconds[0] - plain.tokens.seconds[0]
    assert more == pytest.approx(L * 2 * 1.5e-6, rel=0.01)


def test_two_ranks_add_their_all_reduces(tmp_path: Path) -> None:
    folder = write_profile(tmp_path, tp=(1, 2))
    kernels = read_kernels(folder, 2)
    with pytest.raises(InputError, match="--allreduce: .*TP 2, whose kernels hold no all-reduce"):
        compose(kernels, MODEL)
    curve = (np.array([8192.0, 8192.0 * 1024]), np.array([1e-5, 1e-5 + 1023e-6]))  # 10 µs and 1 µs a token
    alone, two = compose(read_kernels(folder, 1), MODEL), compose(kernels, MODEL, Parallel(allreduce=curve))
    for tokens in (1, 64, 1024):
        seconds = [line(np.array(p.tokens.axes[0]), np.array(p.tokens.seconds), tokens) for p in (alone, two)]
        assert seconds[1] - seconds[0] == pytest.approx(L * 2 * (1e-5 + (tokens - 1) * 1e-6), rel=0.02)
    assert two.tp == 2 and two.split_below == 0.0


def moe_model(**changed: int) -> Model:
    """Return a mixture of eight experts, two a token, all layers of it."""
    assert MODEL.shape is not None
    sizes = {"experts": 8, "experts_per_token": 2, "dense_layers": 0} | changed
    return replace(MODEL, shape=replace(MODEL.shape, architecture="moe", **sizes))  # type: ignore[arg-type]


def test_experts_by_tokens_and_experts_at_work(tmp_path: Path) -> None:
    """µs = tokens + 100 x experts: one token activates two of eight, very many all of them."""
    layers = {name: base for name, base in DENSE.items() if name not in ("gate_up_proj", "act_fn", "down_proj")}
    folder = write_profile(tmp_path, layers, moe=lambda tokens, experts: tokens + 100.0 * experts)
    rest = L * (2 * 2 + 10 + 3 + 8) + 3
    one = compose(read_kernels(folder), moe_model()).tokens.seconds[0]
    assert one == pytest.approx((rest + L * (1 + 100 * 2)) * 1e-6, rel=1e-4)
    many = compose(read_kernels(folder), moe_model()).tokens.seconds[-1]
    expected = rest * (1 + 1023 / 100) + L * (1024 + 100 * 8)
    assert many == pytest.approx(expected * 1e-6, rel=0.005)


def test_data_and_expert_parallel_ranks(tmp_path: Path) -> None:
    """Four groups of one token reach two ranks of four experts: 4 tokens, 4·(1 − 0.75⁴) experts at work.

    Their exchange takes 10 µs and 1 µs for the 8192 bytes of each of the four tokens, at every layer.
    """
    layers = {name: base for name, base in DENSE.items() if name not in ("gate_up_proj", "act_fn", "down_proj")}
    folder = write_profile(tmp_path, layers, moe=lambda tokens, experts: tokens + 100.0 * experts)
    exchange = (np.array([8192.0, 8192.0 * 1024]), np.array([11e-6, 1034e-6]))
    profile = compose(read_kernels(folder), moe_model(), Parallel(dp=4, ep=2, exchange=exchange))
    rest = L * (2 * 2 + 10 + 3 + 8) + 3
    experts = 4 * (1 - 0.75**4)
    assert profile.tokens.seconds[0] == pytest.approx((rest + L * (4 + 100 * experts + 14)) * 1e-6, rel=1e-4)
    assert profile.note == "dp 4, ep 2"
    assert profile.tokens.axes[0][-1] == 256.0  # 1024 tokens of all groups were measured
    with pytest.raises(InputError, match="--ep: 3 ranks do not share 8 experts evenly"):
        compose(read_kernels(folder), moe_model(), Parallel(ep=3))
    with pytest.raises(InputError, match="--exchange: missing; 4 data-parallel ranks exchange tokens"):
        compose(read_kernels(folder), moe_model(), Parallel(dp=4, ep=2))


def test_a_group_holds_its_share_of_the_experts(tmp_path: Path) -> None:
    layers = {name: base for name, base in DENSE.items() if name not in ("gate_up_proj", "act_fn", "down_proj")}
    kernels = read_kernels(write_profile(tmp_path, layers, moe=lambda tokens, experts: tokens))
    model = moe_model(moe_intermediate_size=1000)
    assert model.shape is not None and model.weights is not None
    experts = 2.0 * 3 * model.shape.hidden_size * 1000 * 8 * L
    assert weights_bytes(kernels, model, Parallel()) == 2.0 * model.weights.total
    shared = weights_bytes(kernels, model, Parallel(dp=4, ep=4))
    assert shared == pytest.approx(2.0 * model.weights.total - experts * 3 / 4)


def test_models_whose_layers_differ_are_refused(tmp_path: Path) -> None:
    assert MODEL.shape is not None
    kernels = read_kernels(write_profile(tmp_path, moe=lambda tokens, experts: tokens))
    with pytest.raises(InputError, match="window or linear layers"):
        compose(kernels, replace(MODEL, shape=replace(MODEL.shape, layers_window=16, window=1024)))
    with pytest.raises(InputError, match="no layer 'shared_gate_up_proj'; the model has shared experts"):
        compose(kernels, moe_model(shared_experts=1))


def test_broken_profiles_say_where(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no meta.yaml"):
        read_kernels(tmp_path)
    folder = write_profile(tmp_path, tp=(2,))
    with pytest.raises(InputError, match="--tp: .* no profile of TP 4; allowed: 2"):
        read_kernels(folder, 4)
    path = folder / "tp2" / "dense.csv"
    path.write_text(path.read_text() + "qkv_proj,5,x\n")
    with pytest.raises(InputError, match=r"dense.csv:74: time_us: 'x' is not a number"):
        read_kernels(folder)
    text = path.read_text().replace("qkv_proj,5,x\n", "")
    path.write_text(text + "qkv_proj,1,9\n")
    with pytest.raises(InputError, match=r"dense.csv:74: measured twice"):
        read_kernels(folder)
    path.write_text(text + "qkv_proj,7,0\n")
    with pytest.raises(InputError, match=r"dense.csv:74: time_us: 0; allowed: more"):
        read_kernels(folder)
    path.write_text("layer,time_us\n")
    with pytest.raises(InputError, match="dense.csv:1: no column 'tokens'"):
        read_kernels(folder)
    layers = {name: base for name, base in DENSE.items() if name != "o_proj"}
    with pytest.raises(InputError, match="no layer 'o_proj'"):
        compose(read_kernels(write_profile(tmp_path / "b", layers)), MODEL)
    with pytest.raises(InputError, match="no moe.csv"):
        compose(read_kernels(write_profile(tmp_path / "c")), moe_model())


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = composed(write_profile(tmp_path, skew=True))
    path = tmp_path / "profile.yaml"
    path.write_text(step_profile_text(profile))
    again = read_step_profile(path)
    assert again.name == profile.name and again.tokens.axes == profile.tokens.axes
    np.testing.assert_allclose(again.attention.seconds, profile.attention.seconds, rtol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "x"}, "format: 'x'; allowed"),
        ({"tp": "one"}, "tp: 'one' is not a number"),
        ({"gpu": None}, "gpu: None is not text"),
        ({"speed": 1}, "field: no 'speed'"),
        ({"tokens": 3}, "tokens: 3 is not a mapping"),
        ({"tokens": {"axes": [[1, 1]], "seconds": [1, 2]}}, "tokens: axes: .*ascending"),
        ({"tokens": {"axes": [[1, 2]], "seconds": [1]}}, "tokens: seconds: 1 numbers; allowed: 2"),
        ({"tokens": {"axes": [[1, 2]], "seconds": [1, -1]}}, "tokens: seconds: -1 is not a number"),
        ({"tokens": {"axes": [[1, 2]], "seconds": [1, 2]}}, "tokens: boundary: missing"),
    ],
)
def test_broken_step_profiles_say_where(tmp_path: Path, change: dict[str, object], message: str) -> None:
    values = yaml.safe_load(step_profile_text(composed(write_profile(tmp_path))))
    with pytest.raises(InputError, match=message):
        parse_step_profile(values | change, "file.yaml")


def test_rows_are_held_out_by_their_coordinates() -> None:
    out = [held_out((float(i), 3.0)) for i in range(2000)]
    assert 0.07 < np.mean(out) < 0.13
    assert out == [held_out((float(i), 3.0)) for i in range(2000)]


@given(st.lists(st.floats(0.1, 100.0), min_size=2, max_size=30))
def test_fits_never_fall(values: list[float]) -> None:
    fit = isotonic(np.array(values))
    assert (np.diff(fit) >= 0).all() and fit.mean() == pytest.approx(np.mean(values))
    grid = monotone_grid(np.array([values, values[::-1]]), (0, 1))
    assert (np.diff(grid, axis=1) >= -1e-9).all()


@given(st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30))
def test_medians_of_pools_never_fall(values: list[float]) -> None:
    fit = isotonic_median(np.array(values))
    assert len(fit) == len(values) and (np.diff(fit) >= 0).all()
    np.testing.assert_allclose(isotonic_median(np.sort(values)), np.sort(values))


def test_one_row_far_off_moves_no_other() -> None:
    """Of 5, 5.5, 15, 6, 6.5, 7 only the third is out of order, and it alone is drawn down to its neighbours."""
    points = dict(enumerate((5.0, 5.5, 15.0, 6.0, 6.5, 7.0)))
    x, y = robust_curve(points)
    assert x.tolist() == list(range(6))
    assert y[[0, 1, 4, 5]] == pytest.approx([5.0, 5.5, 6.5, 7.0]) and 6.0 <= y[2] <= 6.5
    closest = np.exp(isotonic(np.log([5.0, 5.5, 15.0, 6.0, 6.5, 7.0])))
    assert closest[5] > 7.5  # what least squares makes of it


def test_gaps_are_filled_along_lines() -> None:
    grid = np.array([[1.0, np.nan, 3.0], [2.0, 4.0, np.nan]])
    np.testing.assert_allclose(filled(grid, [np.array([0.0, 1.0]), np.array([0.0, 1.0, 2.0])]), [[1, 2, 3], [2, 4, 6]])
    with pytest.raises(InputError, match="gaps"):
        filled(np.full((2, 2), np.nan), [np.array([0.0, 1.0])] * 2)


def test_thin_curves_stay_within_tolerance() -> None:
    x = np.linspace(1.0, 10.0, 50)
    keep = thinned(x, x**2, 0.01)
    assert len(keep) < 20
    assert (np.abs(np.interp(x, x[keep], x[keep] ** 2) / x**2 - 1.0) <= 0.01).all()
