"""What a checkpoint is made of, as data: positions, state entries, tokens, one snapshot per chain.

Everything here is immutable and goes into the job's log as JSON (`job_record.py`): only strings,
numbers, booleans, tuples, and positions that are JSON themselves (S11). Objects are named inside
`<root>/<job>/objects/`.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from arkflow_kernel.durations import age_text
from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.ids import (
    NO_CHECKPOINT,
    ChainId,
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    OperatorId,
    SplitId,
    TaskId,
    WallMs,
)
from arkflow_kernel.ports import SplitPosition


class Epoch(NamedTuple):
    """The rows of an exactly-once sink before a barrier and after the one before (X1).

    Epochs are ordered by (generation, checkpoint), as the tuple is.
    """

    generation: Generation
    checkpoint: CheckpointId


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An immutable object of the checkpoint store. `checksum` is of all its bytes, in hex."""

    name: str
    size: int
    checksum: str


@dataclass(frozen=True, slots=True)
class RunRef:
    """An entry of a state's snapshot: one run, and which of its key groups count (S6).

    The run lies at `offset` of its object, `length` bytes long, and is Arrow IPC. Rows of groups
    outside of `first_group` to `last_group`, both included, are ignored.
    """

    run: str
    object: str
    offset: int
    length: int
    rows: int
    checksum: str
    first_group: int
    last_group: int

    @property
    def part(self) -> "RunPart":
        """The run, and which of its groups count. A state that was put together again may list
        several parts of one run (K4).
        """
        return self.run, self.first_group, self.last_group


RunPart = tuple[str, int, int]
"""A run by its id, the first and the last of its key groups that count."""


@dataclass(frozen=True, slots=True)
class StateSnapshot:
    """One state of one operator: its runs, oldest first; of one key the newest entry counts.

    `key_types` is the type ledger (S10), `value_type` the values' type, both as Arrow calls them.
    `watermark` is that of the operator at the seal: what it has fired up to then (N5). `shape` is
    that of the operator's plan (`StatePlan`). Panes below `low` count for nothing, whatever the
    runs still hold of them (N6).
    """

    operator: OperatorId
    namespace: str
    name: str
    key_fields: tuple[str, ...]
    key_types: tuple[str, ...]
    value_type: str
    runs: tuple[RunRef, ...]
    format_version: int = 1
    watermark: EventTimeMs | None = None
    shape: str = ""
    low: int | None = None


@dataclass(frozen=True, slots=True)
class StagedObject:
    """A file that a sink staged: its object, and what the sink needs to publish it."""

    object: ObjectRef
    rows: int
    extension: str = ""


@dataclass(frozen=True, slots=True)
class SinkToken:
    """A sealed, durable epoch of one lane of a sink (X1). Its objects hold all rows, in order."""

    sink: OperatorId
    lane: int
    epoch: Epoch
    objects: tuple[StagedObject, ...] = ()


@dataclass(frozen=True, slots=True)
class LaneSnapshot:
    """A lane of an exactly-once sink: sealed epochs without a confirmed publication, and the last
    epoch that has one (None: none yet).
    """

    sink: OperatorId
    lane: int
    tokens: tuple[SinkToken, ...] = ()
    published_upto: Epoch | None = None

    def without_tokens(self) -> "LaneSnapshot":
        """The same once all of them are published."""
        last = self.tokens[-1].epoch if self.tokens else self.published_upto
        return replace(self, tokens=(), published_upto=last)


@dataclass(frozen=True, slots=True)
class InputSnapshot:
    """An input channel at the cut. `ended`: its data had ended by themselves, not by a stop.

    `watermark` is the last one that came in, None before the first; `idle`: see W2.
    """

    channel: ChannelId
    ended: bool = False
    watermark: EventTimeMs | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class SplitTime:
    """The event time of a split at the cut: the greatest of the rows before its position, None
    before the first, and whether it was idle (W1, W2).
    """

    split: SplitId
    max_ms: EventTimeMs | None = None
    idle: bool = False


@dataclass(frozen=True, slots=True)
class ChainSnapshot:
    """One chain at the cut of a round (B0): a function of what came before the barrier alone.

    `finished`: the data of the chain had ended and its operators were finished (B8). `objects` are
    all that its states list; those of its tokens stand there. `watermark` is the last one that its
    operators were given: it never goes back.
    """

    chain: ChainId
    tasks: tuple[TaskId, ...]
    sources: tuple[SplitPosition, ...] = ()
    inputs: tuple[InputSnapshot, ...] = ()
    finished: bool = False
    states: tuple[StateSnapshot, ...] = ()
    lanes: tuple[LaneSnapshot, ...] = ()
    objects: tuple[ObjectRef, ...] = ()
    times: tuple[SplitTime, ...] = ()
    watermark: EventTimeMs | None = None

    def without_tokens(self) -> "ChainSnapshot":
        """The same once all of its tokens are published."""
        return replace(self, lanes=tuple(lane.without_tokens() for lane in self.lanes))


@dataclass(frozen=True, slots=True)
class ChainPhases:
    """How long a round took in one chain, in milliseconds.

    `pause_ms`: the longest time between two batches that the lane has done, from the cut to the
    first one behind the seal; `sealed_ms`: from the cut until every sink has sealed or confirmed;
    `upload_ms`: from then to the answer.
    """

    pause_ms: int = 0
    sealed_ms: int = 0
    upload_ms: int = 0


@dataclass(frozen=True, slots=True)
class CheckpointPhases:
    """How long a round took, in milliseconds: `acknowledged_ms` from its opening to the last
    answer, the others are the longest of any chain (`ChainPhases`). `new_bytes`: size of the
    objects that it added.
    """

    acknowledged_ms: int = 0
    new_bytes: int = 0
    pause_ms: int = 0
    sealed_ms: int = 0
    upload_ms: int = 0


NO_PHASES = CheckpointPhases()
NO_CHAIN_PHASES = ChainPhases()
"""Nothing is known."""


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A completed round, as the coordinator hands it to the log. `savepoint` names the savepoint
    that the round is for. `chains` holds every planned chain.
    """

    generation: Generation
    checkpoint: CheckpointId
    kind: RoundKind
    chains: tuple[ChainSnapshot, ...]
    savepoint: str | None = None
    phases: CheckpointPhases = NO_PHASES

    @property
    def tokens(self) -> int:
        """How many tokens it lists."""
        return sum(len(lane.tokens) for chain in self.chains for lane in chain.lanes)

    def without_tokens(self) -> "CheckpointRecord":
        """The record once all of its tokens are published (X4)."""
        return replace(self, chains=tuple(chain.without_tokens() for chain in self.chains))


@dataclass(frozen=True, slots=True)
class RestoredChain:
    """What one chain restores: its snapshot, and the checkpoint that it is from.

    `logged_upto` is `Claim.last_checkpoint`; None: there is no log. Of a source with several
    subtasks, the machine of the job gives positions and times of all, and `finished_subtasks`; a
    driver picks those of the splits that it has `assigned` to the chain (K5). None: all splits.
    """

    checkpoint: CheckpointId = NO_CHECKPOINT
    snapshot: ChainSnapshot | None = None
    logged_upto: CheckpointId | None = None
    assigned: tuple[SplitId, ...] | None = None
    finished_subtasks: frozenset[int] = frozenset()

    @property
    def sources(self) -> tuple[SplitPosition, ...]:
        """Where its splits continue; () from the beginning."""
        return () if self.snapshot is None else self.snapshot.sources

    @property
    def times(self) -> tuple["SplitTime", ...]:
        """The event time of its splits."""
        return () if self.snapshot is None else self.snapshot.times

    @property
    def watermark(self) -> EventTimeMs | None:
        """The watermark that its operators had."""
        return None if self.snapshot is None else self.snapshot.watermark

    @property
    def finished(self) -> bool:
        """Its data had ended, and its operators were finished (B8)."""
        return self.snapshot is not None and self.snapshot.finished


NOTHING_RESTORED = RestoredChain()
"""A chain that starts from nothing."""


@dataclass(frozen=True, slots=True)
class RestoredJob:
    """What a job restores: a record's chains. `kind` is that of the record's round.

    `source` is how users know it: "checkpoint 12", "savepoint 'before-upgrade'". `created_at` is
    when its record was made, by the clock of its coordinator; None: not known.
    """

    checkpoint: CheckpointId
    kind: RoundKind
    source: str
    chains: tuple[ChainSnapshot, ...]
    created_at: WallMs | None = None

    def told(self, now_ms: WallMs) -> str:
        """`source`, and how old it is: what a start from it repeats."""
        if self.created_at is None:
            return self.source
        return f"{self.source}, {age_text(max(0, now_ms - self.created_at))} old"

    @property
    def tokens(self) -> int:
        """How many tokens the record lists."""
        return sum(len(lane.tokens) for snapshot in self.chains for lane in snapshot.lanes)


class RestoreKind(Enum):
    """Where a run begins."""

    NEWEST = "newest"
    SCRATCH = "scratch"
    CHECKPOINT = "checkpoint"
    SAVEPOINT = "savepoint"


@dataclass(frozen=True, slots=True)
class RestoreChoice:
    """What a user said about where a run begins (M2, M3, M6, X4).

    `checkpoint` and `savepoint` go with their kinds; a savepoint is a name in this job's folder or
    a URL. `must_exist`: refuse to start from nothing (`resume`); `must_not_exist`: refuse when
    there is a record (`recovery: fail`).
    """

    kind: RestoreKind = RestoreKind.NEWEST
    checkpoint: CheckpointId = NO_CHECKPOINT
    savepoint: str = ""
    accept_duplicates: bool = False
    allow_dropped_state: bool = False
    must_exist: bool = False
    must_not_exist: bool = False


NEWEST = RestoreChoice()
"""Begin at the newest checkpoint, or from nothing if there is none."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed generation, and what it restores; None: it starts from nothing.

    `last_checkpoint` is the highest number that any record has: the first round takes the next.
    `notes` are sentences for the user: operators that start empty, records that were passed over.
    """

    generation: Generation
    restored: RestoredJob | None = None
    last_checkpoint: CheckpointId = NO_CHECKPOINT
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, slots=True)
class RoundAnswer:
    """A chain's answer to a round: its snapshot, or why it has none. Exactly one is set.

    `new_bytes`: bytes of the objects that the chain added for it.
    """

    checkpoint: CheckpointId
    snapshot: ChainSnapshot | None = None
    error: ArkflowError | None = None
    new_bytes: int = 0
    phases: ChainPhases = NO_CHAIN_PHASES


__all__ = [
    "NEWEST",
    "NOTHING_RESTORED",
    "NO_CHAIN_PHASES",
    "NO_PHASES",
    "ChainPhases",
    "ChainSnapshot",
    "CheckpointPhases",
    "CheckpointRecord",
    "Claim",
    "Epoch",
    "InputSnapshot",
    "LaneSnapshot",
    "ObjectRef",
    "RestoreChoice",
    "RestoreKind",
    "RestoredChain",
    "RestoredJob",
    "RoundAnswer",
    "RunPart",
    "RunRef",
    "SinkToken",
    "SplitTime",
    "StagedObject",
    "StateSnapshot",
]
