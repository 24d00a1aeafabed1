"""Where a run begins, as a user says it: checked, and made a `RestoreChoice` (M2, M3, M6, X4).

The command line and the Python API say the same with other spellings.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_kernel.ids import CheckpointId
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from arkflow_ray.door.messages import name_fault

if TYPE_CHECKING:
    from arkflow_ray.config.project import CheckedJob

Spelling = Callable[[str], str]
"""How an option of this name is written where the user wrote it."""

_BASES: Final = ("from_savepoint", "from_checkpoint", "from_scratch")


@dataclass(frozen=True, slots=True)
class StartOptions:
    """What the user said. `from_savepoint` is a name, a URL or a local folder.

    `resume`: the run must continue something.
    """

    from_savepoint: str | None = None
    from_checkpoint: int | None = None
    from_scratch: bool = False
    accept_duplicates: bool = False
    allow_dropped_state: bool = False
    resume: bool = False

    def given(self) -> list[str]:
        """The names of the options that say something."""
        names = (*_BASES, "accept_duplicates", "allow_dropped_state")
        said = {name: getattr(self, name) for name in names}
        return [name for name, value in said.items() if value is not None and value is not False]


def flag(name: str) -> str:
    """An option as the command line has it."""
    return "--" + name.replace("_", "-")


def restore_choice(options: StartOptions, spelled: Spelling = str) -> RestoreChoice:
    """The choice that the options make. `ConfigError` with all that contradicts itself."""
    wrong = list(_contradictions(options, spelled))
    if wrong:
        raise ConfigError([Issue("", text) for text in wrong])
    kind, savepoint = RestoreKind.NEWEST, ""
    if options.from_savepoint is not None:
        kind, savepoint = RestoreKind.SAVEPOINT, _place(options.from_savepoint)
    elif options.from_checkpoint is not None:
        kind = RestoreKind.CHECKPOINT
    elif options.from_scratch:
        kind = RestoreKind.SCRATCH
    return RestoreChoice(
        kind,
        CheckpointId(options.from_checkpoint or 0),
        savepoint,
        options.accept_duplicates,
        options.allow_dropped_state,
        must_exist=options.resume,
    )


def check_jobs(
    jobs: "Sequence[CheckedJob]", options: StartOptions, spelled: Spelling = str
) -> None:
    """Whether these jobs can begin so. Raises `ConfigError` if one cannot."""
    given = [spelled(name) for name in options.given()]
    if not given and not options.resume:
        return
    plans = {job.id: job.graph.checkpoint for job in jobs if job.graph is not None}
    one = options.from_savepoint is not None or options.from_checkpoint is not None
    wrong = []
    if one and len(plans) > 1:
        listed = ", ".join(plans)
        wrong.append(f"{given[0]} is for one job, and these would run: {listed}; choose one")
    elif not any(plan is not None and not plan.ephemeral for plan in plans.values()):
        said = " and ".join(given) or "resume"
        job = next(iter(plans), "")
        what = f"job '{job}' keeps" if len(plans) == 1 else "these jobs keep"
        wrong.append(
            f"{said}: {what} no checkpoints beyond a run; give it a `checkpoint:` block with an "
            "`object_store_uri`"
        )
    if wrong:
        raise ConfigError([Issue("", text) for text in wrong])


def _contradictions(options: StartOptions, spelled: Spelling) -> "list[str]":
    found = []
    bases = [spelled(name) for name in options.given() if name in _BASES]
    if len(bases) > 1:
        found.append(f"{' and '.join(bases)} exclude each other: a run begins at one place")
    if options.resume and options.from_scratch:
        found.append(f"resume and {spelled('from_scratch')} exclude each other")
    if options.from_scratch and options.allow_dropped_state:
        text = "exclude each other: nothing is restored, so nothing is dropped"
        found.append(f"{spelled('from_scratch')} and {spelled('allow_dropped_state')} {text}")
    if options.from_checkpoint is not None and options.from_checkpoint < 1:
        found.append(f"{spelled('from_checkpoint')}: checkpoints are counted from 1")
    if options.from_savepoint is not None and not _is_place(options.from_savepoint):
        fault = name_fault(options.from_savepoint)
        if fault is not None:
            found.append(f"{spelled('from_savepoint')}: {fault}; or write its URL")
    return found


def _is_place(savepoint: str) -> bool:
    """Whether this is a URL or a folder, not a name in the job's own folder."""
    return "/" in savepoint


def _place(savepoint: str) -> str:
    """A name or a URL; a local folder becomes one."""
    if not _is_place(savepoint) or "://" in savepoint:
        return savepoint
    return "file://" + os.path.abspath(os.path.expanduser(savepoint))


__all__ = ["Spelling", "StartOptions", "check_jobs", "flag", "restore_choice"]
