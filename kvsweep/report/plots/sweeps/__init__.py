"""Figures of sweeps: verdicts, success rates, the simplest policy that passes."""
