"""Events and commands as short lines of text: what a golden transcript is made of.

Data of the kernel only; batches appear as their rows' count. Not a log format: it may change.
"""

import json
from enum import Enum
from typing import Any

import pyarrow as pa

from arkflow_kernel.envelope import Data, Watermark
from arkflow_kernel.errors import ArkflowError
from arkflow_kernel.plan import ChainPlan, ExecutionGraph
from arkflow_kernel.ports import SourceBatch, SplitPosition, WriteReceipt
from arkflow_kernel.protocol import (
    AdvanceItem,
    BatchTime,
    ChainOutcome,
    CommitPermit,
    ControlState,
    FinishItem,
    JobOutcome,
    LaneSlice,
    RunItem,
    SealItem,
    TickItem,
)
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointRecord,
    Claim,
    Epoch,
    InputSnapshot,
    ObjectRef,
    RestoreChoice,
    RestoredChain,
    RoundAnswer,
    SinkToken,
    SplitTime,
)

_ZEROS = frozenset({"published_upto", "number", "last_checkpoint", "unusable"})
_HIDDEN = frozenset({"at", "statistics", "counts", "usage", "waits"})


def describe(thing: object) -> str:
    """One line: the name of the event or command, then what it says."""
    token = getattr(thing, "token", None)
    head = type(thing).__name__ + ("" if token is None else f" #{token}")
    fields = getattr(thing, "__dataclass_fields__", {})
    said = [_field(name, getattr(thing, name)) for name in fields if name not in _HIDDEN]
    return " ".join([head, *(text for text in said if text)])


class Transcript:
    """Lines of one scenario: an event, then, indented, the commands that followed."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def note(self, text: str) -> None:
        """A heading between events."""
        self._lines.append(f"# {text}")

    def took(self, event: object, commands: list[Any], state: str) -> None:
        """A machine handled an event; `state` is where it stands now."""
        self._lines.append(f"{describe(event)}  [{state}]")
        self._lines += [f"    {describe(command)}" for command in commands]

    def text(self) -> str:
        """The whole transcript."""
        return "\n".join(self._lines) + "\n"


def _field(name: str, value: object) -> str:
    nothing = value is None or value is False or value == () or (not value and name in _ZEROS)
    if name == "token" or nothing:
        return ""
    if value is True:
        return name
    return _value(name, value)


def _value(name: str, value: object) -> str:
    match value:
        case pa.RecordBatch():
            return f"{name}={value.num_rows} rows"
        case ControlState():
            return _control(value)
        case SourceBatch():
            bad = "" if value.bad is None else f" bad={value.bad.num_rows}"
            end = " split ends" if value.split_ended else ""
            rows = value.batch.num_rows
            return f"{value.split} rows={rows}{bad} next={json.dumps(value.position)}{end}"
        case RunItem():
            return f"run {value.batch.num_rows} rows"
        case FinishItem():
            return "finish"
        case AdvanceItem():
            return f"advance to {value.watermark}"
        case TickItem():
            return "tick"
        case Watermark():
            return f"Watermark {value.time_ms}"
        case BatchTime():
            return f"greatest time={value.max_ms}"
        case SealItem():
            return f"seal {value.checkpoint}"
        case LaneSlice():
            pieces = [f"{piece.output}:{piece.batch.num_rows}" for piece in value.pieces]
            return f"slice=[{' '.join(pieces)}]"
        case Data():
            joined = f" of {len(value.pieces)} pieces" if len(value.pieces) > 1 else ""
            return f"Data #{value.sequence} {value.num_rows} rows{joined}"
        case WriteReceipt():
            roll = "" if value.roll_at_ms is None else f" roll at {value.roll_at_ms} ms"
            return f"confirmed={value.confirmed_upto}{roll}"
        case ChainOutcome():
            frontier = _positions(value.frontier)
            return f"{_ending(value)} frontier={frontier}"
        case JobOutcome():
            return _ending(value)
        case CommitPermit():
            return f"permit='{value.reason}'"
        case ChainPlan():
            return value.chain
        case ExecutionGraph():
            return f"plan=[{', '.join(plan.chain for plan in value.chains)}]"
        case RestoredChain():
            positions = f"restored={_positions(value.sources)}" if value.sources else ""
            number = f" of checkpoint {value.checkpoint}" if value.checkpoint else ""
            return f"{positions}{number}"
        case Epoch():
            return f"epoch={value.generation}/{value.checkpoint}"
        case RoundAnswer():
            return f"answer to {value.checkpoint}: {_told(value.error or value.snapshot)}"
        case CheckpointRecord() | Claim() | RestoreChoice():
            return _of_the_log(value)
        case tuple():
            return f"{name}=[{', '.join(_told(each) for each in value)}]"
        case ArkflowError():
            return f"{type(value).__name__}: {value}"
        case Enum():
            return f"{name}={value.value}"
    named = hasattr(value, "__dataclass_fields__")
    return describe(value) if named else f"{name}={value}"


def _control(state: ControlState) -> str:
    text = f"{state.desired.name.lower()} generation={state.generation}"
    if state.round_id:
        text += f" round={state.round_id} {state.round_kind.value}"
    text += f" failed={state.failed_upto}" if state.failed_upto else ""
    return text + (f" completed={state.completed_upto}" if state.completed_upto else "")


def _of_the_log(entry: CheckpointRecord | Claim | RestoreChoice) -> str:
    match entry:
        case CheckpointRecord():
            chains = ", ".join(_told(chain) for chain in entry.chains)
            name = "" if entry.savepoint is None else f" '{entry.savepoint}'"
            return f"record {entry.checkpoint} {entry.kind.value}{name} [{chains}]"
        case Claim():
            source = "nothing" if entry.restored is None else entry.restored.source
            return f"generation={entry.generation} last={entry.last_checkpoint} from {source}"
        case RestoreChoice():
            return f"choice={entry.kind.value}"


def _told(thing: object) -> str:
    """An element of a tuple, or what an answer holds."""
    match thing:
        case SplitPosition():
            return _position(thing)
        case ChainPlan():
            return thing.chain
        case SinkToken():
            return f"{thing.sink}:{thing.epoch.generation}/{thing.epoch.checkpoint}"
        case ObjectRef():
            return thing.name
        case InputSnapshot():
            told = "" if thing.watermark is None else f" at {thing.watermark}"
            idle = " idle" if thing.idle else ""
            return f"{thing.channel}{' ended' if thing.ended else ''}{told}{idle}"
        case SplitTime():
            return f"{thing.split} up to {thing.max_ms}{' idle' if thing.idle else ''}"
        case ChainSnapshot():
            parts = [_told(each) for each in (*thing.sources, *thing.times, *thing.inputs)]
            parts += [] if thing.watermark is None else [f"watermark={thing.watermark}"]
            parts += ["finished"] if thing.finished else []
            parts += [_told(token) for lane in thing.lanes for token in lane.tokens]
            return f"{thing.chain}({' '.join(parts)})"
        case ArkflowError():
            return f"{type(thing).__name__}: {thing}"
    return f"{thing}"


def _ending(outcome: ChainOutcome | JobOutcome) -> str:
    error = "" if outcome.error is None else f" ({type(outcome.error).__name__}: {outcome.error})"
    return f"{outcome.kind.value}{error}"


def _positions(positions: tuple[SplitPosition, ...]) -> str:
    return f"[{', '.join(_position(each) for each in positions)}]"


def _position(at: SplitPosition) -> str:
    return f"{at.split}@{json.dumps(at.position)}{' end' if at.ended else ''}"


__all__ = ["Transcript", "describe"]
