"""What the retention of a job's log drops, decided from facts (M5). Two sweeps, nothing else.

No reference counts, no listing decides that an object of the running generation is garbage: its
upload may be under way.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from arkflow_kernel.ids import Generation
from arkflow_kernel.job_record import CheckpointEntry

_GENERATION: Final = re.compile(r"(\d+)-")


@dataclass(frozen=True, slots=True)
class Sweep:
    """Slots of records to drop, and then objects to delete, in this order."""

    slots: tuple[int, ...]
    objects: tuple[str, ...]


def dropped_records(
    records: Mapping[int, CheckpointEntry], retention: int, pinned: Collection[int]
) -> Sweep:
    """Sweep (a): records beyond the newest `retention`, and what only they list.

    `records`: every readable record by slot. `pinned` slots are kept besides: what the running
    generation restored, and savepoints that are not copied yet.
    """
    newest = sorted(records)[-max(1, retention) :]
    kept = {*newest, *pinned}
    dropped = tuple(slot for slot in sorted(records) if slot not in kept)
    live = live_objects(records, dropped)
    listed = dict.fromkeys(name for slot in dropped for name in records[slot].objects)
    return Sweep(dropped, tuple(name for name in listed if name not in live))


def left_by_older(
    names: Collection[str], generation: Generation, live: Collection[str]
) -> tuple[str, ...]:
    """Sweep (b): objects of older generations, by their names, that nothing live lists.

    No record can list them any more: their generations are fenced. Other names are not ours.
    """
    return tuple(name for name in sorted(names) if _older(name, generation) and name not in live)


def live_objects(
    records: Mapping[int, CheckpointEntry], dropped: Collection[int] = ()
) -> frozenset[str]:
    """Objects that the kept records list."""
    return frozenset(
        name for slot, entry in records.items() if slot not in dropped for name in entry.objects
    )


def _older(name: str, generation: Generation) -> bool:
    match = _GENERATION.match(name)
    return match is not None and int(match.group(1)) < generation


__all__ = ["Sweep", "dropped_records", "left_by_older", "live_objects"]
