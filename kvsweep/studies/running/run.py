"""Running a study: cells in parallel threads, each result journalled as it comes, failures kept beside results."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvsweep.cluster.inputs.indifference import indifferent
from kvsweep.cluster.outcome.dataset import Finished, dataset, told
from kvsweep.cluster.setup.context import DONE, with_context
from kvsweep.cluster.shared.segments import remembering
from kvsweep.cluster.simulation.cores import is_compiled
from kvsweep.cluster.simulation.run import finish
from kvsweep.errors import InputError, ResultError
from kvsweep.results.files import check_writable
from kvsweep.results.netcdf import is_whole, write_netcdf
from kvsweep.studies.metrics import labels_of, measure
from kvsweep.studies.running.cells import Cell, cell_key, cells, oracle_of, policies_of
from kvsweep.studies.running.dataset import study_dataset
from kvsweep.studies.running.journal import Journal, journal_path
from kvsweep.studies.running.outcome import Outcome
from kvsweep.studies.running.workloads import Workloads
from kvsweep.studies.study import Study, parse_study, read_study

if TYPE_CHECKING:
    import xarray as xr

Progress = Callable[[int, int], None]
"""Called with the cells done and all cells."""
CHECKPOINT_SECONDS = 30.0
"""Time between two writings of what there is of the result [s]."""
OUT_OF_MEMORY = "out of memory; the same command tries it again, with --threads 1 in the least memory"
"""Why a cell has no figures that may have them another time: no journal holds that."""
HELD = 4
"""Traces, and page tries of them, that are held at a time."""


@dataclass(frozen=True, slots=True)
class Show:
    """How a running study speaks: `progress` moves a bar, `note` says a line; neither by default."""

    progress: Progress | None = None
    note: Callable[[str], None] = lambda line: None


def sweep(
    study: Mapping[str, Any] | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    threads: int | None = None,
    policy_files: Sequence[str | Path] = (),
    force: bool = False,
) -> xr.Dataset:
    """Return the figures of every cell of a study: full simulations over the product of its axes.

    Parameters
    ----------
    study
        A study file, or a mapping as it holds.
    output
        NetCDF file to write; an interrupted study goes on from the journal beside it. None keeps nothing.
    threads
        Simulations at a time, all cores by default.
    policy_files
        Files with policies of your own.
    force
        Overwrite `output`.

    Raises
    ------
    InputError
        For a study, file or figure that cannot be used.
    ResultError
        Where no cell could be simulated.
    """
    files = tuple(Path(file) for file in policy_files)
    checked = (
        parse_study(study, "study", policy_files=files)
        if isinstance(study, Mapping)
        else read_study(Path(study), policy_files=files)
    )
    return run_study(checked, Path(output) if output is not None else None, threads, force)


def run_study(
    study: Study, output: Path | None, threads: int | None = None, force: bool = False, show: Show | None = None
) -> xr.Dataset:
    """Return the Dataset of a study, written to `output` if that is a file; see `sweep`."""
    show = show or Show()
    check_output(output, force, study.inputs)
    n_threads = checked_threads(threads)
    workloads = Workloads(study, HELD)
    outcome = begin(study, workloads)
    for line in (*workloads.notes, *_beyond_context(outcome, workloads), *_indifferent(outcome, workloads)):
        show.note(line)
    with contextlib.ExitStack() as stack:
        stack.enter_context(remembering(HELD))
        journal = stack.enter_context(Journal(journal_path(output))) if output is not None else None
        if journal is not None:
            outcome.resume(journal.records, journal.path, force)
        pending = _pending(outcome, output)
        _check_kept(pending, output)
        known = sum(key in outcome.records for key in (*outcome.keys, *outcome.references))
        if known:
            show.note(f"resuming: {known} of {outcome.n_simulations} simulations are done")
        job = _Job(outcome, workloads, journal, output, show)
        _run(job, pending, n_threads)
        if not any(record and "failed" not in record for record in map(outcome.record, range(len(outcome.cells)))):
            raise ResultError(f"no simulation of the study could be run: {next(iter(outcome.failures.values()))}")
        ds = study_dataset(outcome)
        if output is not None and journal is not None:
            write_netcdf(ds, output)
            if job.unkept:
                raise ResultError(
                    f"the requests of {len(job.unkept)} cells could not be kept: {next(iter(job.unkept.values()))}; "
                    f"the figures are whole in {output}, and the same command tries the requests again"
                )
            if OUT_OF_MEMORY not in outcome.failures.values():
                journal.remove()
    return ds


def check_output(output: Path | None, force: bool, inputs: Sequence[Path]) -> None:
    """Refuse early an output that cannot be written, or is an input; one whose journal is there is to be continued."""
    if output is not None:
        check_writable(output, force or journal_path(output).exists(), inputs=inputs)


def checked_threads(threads: int | None) -> int:
    """Return the number of threads; raises InputError for less than one."""
    if threads is not None and not 1 <= threads <= 4096:
        raise InputError(f"--threads: {threads}; allowed: 1 to 4096")
    return threads or len(os.sched_getaffinity(0))


def begin(study: Study, workloads: Workloads) -> Outcome:
    """Return the outcome of a study of which nothing was run; reads every trace, and refuses what cannot be read."""
    found = cells(study)
    try:
        workloads.know(cell.workload for cell in found if not cell.refusal)
    except (InputError, OSError) as error:
        raise InputError(f"{study.where}: trace: {getattr(error, 'strerror', None) or error}") from error
    keys = ["" if cell.refusal else cell_key(cell, workloads.facts(cell.workload).digest, study) for cell in found]
    oracles = _oracles(found, workloads, study)
    beside = {key: oracle for key, oracle in oracles if oracle} if study.regret else {}
    for key in keys:
        beside.pop(key, None)
    return Outcome(study, found, keys, [key for key, _ in oracles], beside)


def _beyond_context(outcome: Outcome, workloads: Workloads) -> list[str]:
    """Return a line for each trace with requests beyond the context of a model, and what becomes of them."""
    found = dict[str, None]()
    for cell in outcome.cells:
        if cell.config is None or cell.profile is None:
            continue
        context, longest = with_context(cell.config, cell.profile).context, workloads.facts(cell.workload).longest
        if context.tokens is not None and longest > context.tokens:
            found.setdefault(
                f"trace {cell.workload.trace}: prompt and answer of up to {longest} tokens, beyond the context of "
                f"{context.tokens} tokens (profile {cell.point['profile']}): {DONE[context.beyond][1]}"
            )
    return list(found)


def _indifferent(outcome: Outcome, workloads: Workloads) -> list[str]:
    """Return a line for each policy that makes no difference in some cells, which are counted by trace."""
    cells = [cell for cell in outcome.cells if cell.config is not None]
    found: Counter[tuple[str, str]] = Counter()
    for cell in cells:
        assert cell.config is not None
        for line in indifferent(cell.config, workloads.facts(cell.workload).has_sessions):
            found[cell.workload.trace, line] += 1
    return [f"{line} ({count} cells of trace {label})" for (label, line), count in found.items()]


def _oracles(found: Sequence[Cell], workloads: Workloads, study: Study) -> list[tuple[str, Cell | None]]:
    """Return key and cell of the oracle of each cell, none for one that cannot be."""
    known: dict[Hashable, tuple[str, Cell | None]] = {}  # many cells have the same
    oracles: list[tuple[str, Cell | None]] = []
    for cell in found:
        oracle = oracle_of(cell)
        if oracle is None:
            oracles.append(("", None))
            continue
        what = (oracle.workload, oracle.config, oracle.point["profile"], oracle.point.get("link"))
        if what not in known:
            known[what] = cell_key(oracle, workloads.facts(oracle.workload).digest, study), oracle
        oracles.append(known[what])
    return oracles


def kept_file(output: Path, key: str) -> Path:
    """Return the file with the requests of a kept cell, in a folder beside the output."""
    return output.with_suffix(".cells") / f"{key[:16]}.nc"


def _check_kept(pending: Mapping[str, Cell], output: Path | None) -> None:
    """Refuse before any work a folder of kept cells that cannot be written."""
    if output is None or not any(cell.kept for cell in pending.values()):
        return
    file = kept_file(output, "")
    try:
        file.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"keep: cannot write {file.parent}: {error.strerror or error}") from error
    check_writable(file, True, "keep")


def _pending(outcome: Outcome, output: Path | None) -> dict[str, Cell]:
    """Return the cells to run by key, those of one trace together; those that are the same simulation run once."""
    known, pending = set(outcome.records), dict[str, Cell]()
    for key, cell in (*zip(outcome.keys, outcome.cells, strict=True), *outcome.references.items()):
        if cell.refusal:
            continue
        # One that was damaged while nobody looked lacks, too.
        lacking = cell.kept and output is not None and not is_whole(kept_file(output, key))
        if lacking or (key not in known and key not in pending):
            pending[key] = cell

    def order(item: tuple[str, Cell]) -> tuple[Any, ...]:
        cell = item[1]
        assert cell.config is not None
        workload = cell.workload
        return (workload.trace, workload.seed, workload.rate or 0.0, workload.scale, cell.config.page_size)

    return dict(sorted(pending.items(), key=order))


@dataclass(slots=True)
class _Job:
    """A study under way."""

    outcome: Outcome
    workloads: Workloads
    journal: Journal | None
    output: Path | None
    show: Show
    lock: threading.Lock = field(default_factory=threading.Lock)
    written: float = field(default_factory=time.monotonic)
    stopped: bool = False
    unkept: dict[str, str] = field(default_factory=dict)
    """Why the requests of cells could not be kept, by key."""

    def one(self, key: str, cell: Cell) -> None:
        """Run a cell and keep what became of it."""
        if self.stopped:
            return
        record, run = self.simulated(cell)
        with self.lock:
            self._add(key, record)
        if run is not None and cell.kept and self.output is not None:
            try:
                write_netcdf(dataset(run), kept_file(self.output, key))
            except (ResultError, MemoryError) as error:  # its figures are safe
                self.unkept[key] = str(error) or OUT_OF_MEMORY

    def _add(self, key: str, record: dict[str, Any]) -> None:
        if self.journal is not None and record.get("failed") != OUT_OF_MEMORY:
            self.journal.add(key, record)
        else:
            self.outcome.records[key] = record
        if self.output is not None and time.monotonic() - self.written > CHECKPOINT_SECONDS:
            write_netcdf(study_dataset(self.outcome), self.output)
            self.written = time.monotonic()

    def simulated(self, cell: Cell) -> tuple[dict[str, Any], Finished | None]:
        """Return the record of a cell, and its run; what goes wrong with it is a record, too."""
        study = self.outcome.study
        assert cell.config is not None and cell.profile is not None
        began = time.thread_time()
        try:
            trace = self.workloads.trace(cell.workload)
            run = finish(trace, cell.config, cell.profile, policy_files=study.policy_files, compile=True)
            found = told(run)
            figures = measure(found, study.slos)
        except (InputError, ResultError) as error:
            return {"failed": str(error)}, None
        except MemoryError:
            return {"failed": OUT_OF_MEMORY}, None
        return {"figures": figures, "labels": labels_of(found), "seconds": round(time.thread_time() - began, 6)}, run


def _run(job: _Job, pending: Mapping[str, Cell], n_threads: int) -> None:
    """Run the cells `pending`; on Ctrl-C or a failure to write, those under way end and are kept."""
    if not pending:
        return
    _compile(job, pending)
    total = job.outcome.n_simulations
    done = total - len(pending)
    with ThreadPoolExecutor(min(n_threads, len(pending))) as pool:
        futures = [pool.submit(job.one, key, cell) for key, cell in pending.items()]
        try:
            for future in futures:
                future.result()
                done += 1
                if job.show.progress is not None:
                    job.show.progress(done, total)
        except BaseException:
            job.stopped = True
            for future in futures:
                future.cancel()
            raise


def _compile(job: _Job, pending: Mapping[str, Cell]) -> None:
    """Compile what the cells need, once and one after the other, by runs of a single request."""
    kinds: dict[tuple[str, ...], Cell] = {}
    for cell in pending.values():
        assert cell.config is not None
        kinds.setdefault((cell.config.core, *(name for _, name in policies_of(cell.config))), cell)
    if not all(is_compiled(core) for core, *_ in kinds):
        job.show.note("compiling the simulator, once (half a minute or less)")
    for cell in kinds.values():
        assert cell.config is not None and cell.profile is not None
        trace = job.workloads.trace(cell.workload)
        with contextlib.suppress(InputError, ResultError):  # the cell itself will tell
            files = job.outcome.study.policy_files
            finish(trace.shortest(), cell.config, cell.profile, policy_files=files, compile=True)
