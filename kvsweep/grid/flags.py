"""Which world and models made the numbers of a plan, and where its points leave them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from kvsweep.costs.attention import MEASURED_TOKENS
from kvsweep.costs.deployment import Deployment

_COSTS = {
    "linear": "recompute is 2 FLOP a parameter and token (no attention term)",
    "attention": "recompute is 2 FLOP an active parameter and token and attention to all tokens before, each at its "
    "share of the peak, with all-reduces between GPUs",
}
_PATHS = {
    "summed": "restore is bytes over bandwidth, tier then link",
    "pipelined": "restore runs at the slowest hop, links of all GPUs together, with a fixed time a copy; blocks in HBM "
    "cost nothing",
}
_OVERLAPS = {
    "ideal": "both overlap fully",
    "layerwise": "both take turns layer by layer: the longer and one layer of the shorter",
    "serial": "what comes after the cached prefix waits for all of it",
}
_TARGET = "The latency target is compared with the time of a lone request: it is no percentile of a queue."


OF_SHAPES = ("max_model_len", "step_tokens", "kv_dtype", "weight_dtype")
"""Inputs that mean something only for a model with a shape."""


def world_line(deployments: Sequence[Deployment]) -> str:
    """Return which world the deployments are in, and why, in a line."""
    worlds = {deployment.world.name: deployment.world for deployment in deployments}
    lines = [
        f"{world.name} ({world.why}): {_models(deployment.cost_model for deployment in _of(deployments, name))} costs, "
        f"{_models(deployment.path_model for deployment in _of(deployments, name))} paths, "
        f"{_models(deployment.overlap for deployment in _of(deployments, name))} overlap"
        for name, world in worlds.items()
    ]
    return "; ".join(lines)


def assumptions(deployments: Sequence[Deployment]) -> str:
    """Return what the models of the deployments assume, in sentences."""
    sentences = []
    for deployment in deployments:
        cost, path, overlap = deployment.cost_model, deployment.path_model, deployment.overlap
        sentence = f"Cost model {cost}: {_COSTS[cost]}, {_PATHS[path]}, and {_OVERLAPS[overlap]}."
        if sentence not in sentences:
            sentences.append(sentence)
    return " ".join([*sentences, _TARGET])


def flags(
    deployments: Sequence[Deployment], most: float, given: Collection[str], called: Callable[[str], str]
) -> list[str]:
    """Return a line for each way in which requests of up to `most` [block] mix worlds or leave their models.

    `given` names the inputs that were chosen, `called` says how messages name one.
    """
    lines = list(dict.fromkeys(each.world.warning for each in deployments if each.world.warning))
    shaped = [deployment for deployment in deployments if deployment.cost_model == "attention"]
    if all(each.fit is None for each in deployments):
        lines += [f"{called(name)} has no effect in the reference world" for name in OF_SHAPES if name in given]
    if not shaped:
        for name in ("attention_eta", "setup_seconds"):
            if name in given and all(deployment.overlap == "ideal" for deployment in deployments):
                lines.append(f"{called(name)} has no effect with cost model linear and ideal overlap")
        return lines
    guessed = sorted({each.gpu for each in shaped if each.prefill is not None and each.prefill.assumed})
    if guessed:
        lines.append(f"shares of the peak of {', '.join(guessed)} are assumed: no kernel data for it in the catalog")
    beyond = {each.model: each.prefill.max_context for each in shaped if each.prefill is not None}
    longest = max(most * each.tokens_per_block for each in shaped)
    for model, limit in beyond.items():
        if longest > limit:
            lines.append(f"context of {longest:,.0f} tokens is beyond the {limit:,.0f} that {model} is made for")
    if longest > MEASURED_TOKENS:
        shares = [each.prefill.attention_share(longest) for each in shaped if each.prefill is not None]
        low, high = min(shares), max(shares)
        share = f"{high:.0%}" if high - low < 0.005 else f"{low:.0%} to {high:.0%}"
        lines.append(
            f"attention is {share} of the FLOPs at {longest:,.0f} tokens; its share of the peak was measured up to "
            f"{MEASURED_TOKENS:,.0f}"
        )
    return lines


def _of(deployments: Sequence[Deployment], world: str) -> list[Deployment]:
    return [deployment for deployment in deployments if deployment.world.name == world]


def _models(names: Any) -> str:
    return "/".join(dict.fromkeys(names))
