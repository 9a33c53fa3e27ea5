"""What there is of a study at any moment: its cells, and the record of each that was run."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kvsweep.errors import InputError
from kvsweep.studies.metrics import is_record
from kvsweep.studies.running.cells import Cell
from kvsweep.studies.study import Study


@dataclass(slots=True)
class Outcome:
    """What there is of a study: its cells, the key of each, and a record for each key that was run.

    `oracles` are the keys of what the regret of each cell is against, `references` those of them that are no cells and
    are run beside them.
    """

    study: Study
    cells: list[Cell]
    keys: list[str]
    oracles: list[str]
    references: dict[str, Cell]
    records: dict[str, dict[str, Any]] = field(default_factory=dict)

    def resume(self, records: dict[str, dict[str, Any]], journal: Path, force: bool) -> None:
        """Take the `records` of a journal over, without those that no simulation of the study can have left.

        Raises InputError, unless forced, for one with simulations that are not of this study: at its end it is removed.
        """
        foreign = len(records.keys() - {*self.keys, *self.references})
        if foreign and not force:
            raise InputError(
                f"{journal}: holds {foreign} simulations that are not of this study, but of another, or of this one "
                "before a file or kvsweep itself changed; allowed: another --output, or --force to give them up"
            )
        for key in [key for key, record in records.items() if not is_record(record, len(self.study.slos))]:
            del records[key]
        self.records = records

    def record(self, index: int) -> dict[str, Any] | None:
        """Return the record of a cell: figures, or why there are none; None where it has not been run."""
        cell = self.cells[index]
        return {"failed": cell.refusal} if cell.refusal else self.records.get(self.keys[index])

    @property
    def n_simulations(self) -> int:
        """Return the number of cells and references."""
        return len(self.cells) + len(self.references)

    @property
    def failures(self) -> dict[int, str]:
        """Return why cells have no figures, by their number."""
        records = ((index, self.record(index)) for index in range(len(self.cells)))
        return {index: str(record["failed"]) for index, record in records if record and "failed" in record}
