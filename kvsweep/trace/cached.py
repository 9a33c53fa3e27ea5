"""Parsed traces in the user's cache directory: npz without pickles, named by the hash of all they depend on.

Blocks are kept as runs of consecutive ids, which for prompts that share prefixes is a few numbers each. A damaged
file is ignored and written again; a directory that cannot be written is no error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from kvsweep.cache import cache_directory, write_whole
from kvsweep.errors import InputError
from kvsweep.trace.model import Note, Trace, expand_runs, offsets_of, run_lengths

KIND = "traces"
_ARRAYS = ("arrival", "input_tokens", "output_tokens", "session", "turn", "group", "think")


def entry(files: Sequence[Path], companions: Iterable[Path], settings: object) -> Path:
    """Return the cache file for the files of a trace, those read with them, the settings of reading and this code."""
    digest = blake2b(digest_size=16)
    digest.update(_code())
    digest.update(repr(settings).encode())
    for file in (*files, *companions):
        digest.update(file.name.encode(errors="surrogateescape"))
        try:
            with file.open("rb") as data:
                while chunk := data.read(1 << 20):
                    digest.update(chunk)
        except OSError as error:
            raise InputError(f"{file}: {error.strerror or error}") from error
        digest.update(b"\0")
    return cache_directory(KIND) / f"{digest.hexdigest()}.npz"


@cache
def _code() -> bytes:
    """Return the source of this package, so that an edited reader meets no trace of an older one."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    return b"\0".join(file.read_bytes() for file in files)


def load(path: Path) -> Trace | None:
    """Return the trace in a cache file; None where there is none or it is damaged."""
    try:
        # Opened here, since NumPy leaves a damaged archive open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
            arrays = {name: data[name] for name in data.files}
        about = json.loads(arrays.pop("about").tobytes())
        starts, counts, runs = (arrays.pop(name) for name in ("run_starts", "run_counts", "runs"))
        trace = Trace(
            **{name: arrays[name] for name in _ARRAYS},
            block_size=int(about["block_size"]),
            offsets=offsets_of(counts)[runs],
            blocks=expand_runs(starts, counts).astype(np.int32),
            source=str(about["source"]),
            notes=tuple(Note(*note) for note in about["notes"]),
        )
    except Exception:  # whatever is wrong with a cache file, parsing again mends it
        return None
    return trace if _is_whole(trace) else None


def store(path: Path, trace: Trace) -> None:
    """Write `trace` to a cache file; where that cannot be done, the next reading parses again."""
    starts, counts, runs = run_lengths(trace.offsets, trace.blocks)
    about = {
        "block_size": trace.block_size,
        "source": trace.source,
        "notes": [(note.kind, note.reason, note.count) for note in trace.notes],
    }
    arrays = {name: getattr(trace, name) for name in _ARRAYS}
    arrays |= {"run_starts": starts, "run_counts": counts, "runs": runs}
    data = io.BytesIO()
    np.savez(data, about=np.frombuffer(json.dumps(about).encode(), dtype=np.uint8), **arrays)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, data.getvalue())
    except OSError:
        pass


def _is_whole(trace: Trace) -> bool:
    """Return whether the arrays belong together; a checksum inside the zip already guards their contents."""
    n_requests = len(trace.arrival)
    return len(trace.offsets) == n_requests + 1 and all(len(getattr(trace, name)) == n_requests for name in _ARRAYS)
