"""Where a policy cannot make a difference: to this trace, on this cluster."""

from __future__ import annotations

from kvsweep.cluster.inputs.config import ClusterConfig


def indifferent(config: ClusterConfig, has_sessions: bool) -> list[str]:
    """Return a line for each policy of `config` that does what the default one does, to the last bit, and why.

    `has_sessions` says whether any request of the trace names a session.
    """
    policy = config.gateway.policy
    if policy != "round_robin" and config.n_prefill == config.n_decode == 1:
        return [f"gateway: {policy} makes no difference: there is one worker to choose"]
    if policy == "session_affinity" and not has_sessions:
        return ["gateway: session_affinity makes no difference to round_robin: no request of the trace names a session"]
    return []
