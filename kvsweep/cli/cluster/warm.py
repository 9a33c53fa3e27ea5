"""``kvsweep warm``: compiles beforehand what runs would compile when they need it."""

from __future__ import annotations

import time

import click

from kvsweep.cli.options import say
from kvsweep.cli.progress import progress

PARTS = ("grid", "cluster", "all")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("part", type=click.Choice(PARTS), default="all")
@click.option("--check", is_flag=True, help="Of the cluster, the checkers of `cluster run --check`, too.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing on stderr.")
def warm(part: str, check: bool, quiet: bool) -> None:
    """Compile PART of kvsweep: the grid engine with its policies, the cores of the cluster simulator, or all.

    For images and CI. What is compiled lies in the user's cache (KVSWEEP_CACHE_DIR) and is the same for every run; a
    policy file is compiled by itself when it is first used.
    """
    if part != "cluster":
        _warm_grid(quiet)
    if part != "grid":
        from kvsweep.cluster.simulation.cores import CORES

        for core in CORES:
            _warm_core(core, check, quiet)


def _warm_grid(quiet: bool) -> None:
    import kvsweep

    start = time.monotonic()
    kvsweep.sweep(hit_ratio=1, request_rate=0.01, p95_seconds=10)
    if not quiet:
        say(f"grid: ready after {time.monotonic() - start:.1f} s")


def _warm_core(core: str, check: bool, quiet: bool) -> None:
    from kvsweep.cluster.simulation.warm import warm as warm_core

    start = time.monotonic()
    with progress(f"compiling cluster {core}, functions", quiet) as move:
        warm_core(core, check, move)
    if not quiet:
        say(f"cluster {core}: ready after {time.monotonic() - start:.1f} s")
