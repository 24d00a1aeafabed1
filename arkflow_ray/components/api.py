"""What a component is made of, for built-in ones and plugins alike.

A component is a pydantic model of its configuration and a factory. Building is *dry*: it checks
everything that can be known without the outside world and connects nothing; `open` of the built
object (see `arkflow_kernel.ports`) does that, in the chain's process.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import pyarrow as pa
from pydantic import BaseModel, ConfigDict

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.plan import ONLY_SUBTASK, Subtask
from arkflow_kernel.ports import LineOutput, Operator, ReplayKind, SinkWriter, SourceReader


class ComponentKind(Enum):
    """The sorts of components that a user can name."""

    INPUT = "input"
    OUTPUT = "output"
    PROCESSOR = "processor"
    CODEC = "codec"


class ComponentConfig(BaseModel):
    """Base of all configurations: unknown keys are errors, values are never coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


@dataclass(frozen=True, slots=True)
class Decoded:
    """Payloads made rows: good ones in order, bad ones with reasons, skipped ones counted."""

    batch: pa.RecordBatch
    bad: pa.RecordBatch | None = None
    skipped: int = 0


class Codec(Protocol):
    """Turns payloads into columns and back. One instance serves one component."""

    def decode(self, payloads: pa.BinaryArray, operator: str, origin: Origin) -> Decoded:
        """One payload may hold several rows or none. `operator` and `origin` go into bad rows."""
        ...

    def encode(self, batch: pa.RecordBatch) -> pa.BinaryArray:
        """One payload per row, in order."""
        ...

    def position(self) -> dict[str, Any]:
        """What it learned (field types) as JSON: part of the source's position."""
        ...

    def restore(self, position: dict[str, Any]) -> None:
        """Continue from what `position` gave."""
        ...


@dataclass(frozen=True, slots=True)
class BuildContext:
    """What a factory may know: which operator it builds, its codec, and the way to stdout.

    `staging` is given exactly if the output is to be an `EpochSink` (X1). `job` is None where no
    job runs: in a check. `subtask`: which of the parallel instances of an output it builds.
    `columns`: all that anybody looks at of an input's rows; others may be left out. None: any.
    `fields`: those of JSON that each batch has; null in rows that lack them.
    """

    operator: str
    codec: Codec | None = None
    lines: LineOutput | None = None
    workers: int = 1
    staging: Staging | None = None
    job: str | None = None
    subtask: Subtask = ONLY_SUBTASK
    columns: frozenset[str] | None = None
    fields: tuple[str, ...] = ()


Built = SourceReader | Operator | SinkWriter | EpochSink | Codec
Factory = Callable[[Any, BuildContext], Built]


@dataclass(frozen=True, slots=True)
class ComponentEntry:
    """A registered component.

    `config` and `factory` are `module:name`, imported only when used, so that `validate` and
    `--help` stay fast. So is `stages_epochs`, of an output: whether it can be an exactly-once sink
    (X1) with a configuration as it stands in the file; None: never. So is `subtasks`, of an input:
    how many subtasks can share it (K5); None: it has one. `replay`, of an input, is what its
    readers can repeat (B7).
    """

    kind: ComponentKind
    name: str
    summary: str
    config: str
    factory: str
    takes_codec: bool = False
    stages_epochs: str | None = None
    subtasks: str | None = None
    replay: ReplayKind = ReplayKind.POSITION


__all__ = [
    "BuildContext",
    "Built",
    "Codec",
    "ComponentConfig",
    "ComponentEntry",
    "ComponentKind",
    "Decoded",
    "Factory",
]
