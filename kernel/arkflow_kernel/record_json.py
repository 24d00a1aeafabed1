"""Snapshots as JSON objects and back, field by field (S11).

A reader takes what a writer of the same format version wrote; anything else is a `MalformedError`
that says which field is not as it should be. Nothing here knows files, logs or checksums.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from arkflow_kernel.ids import (
    ChainId,
    ChannelId,
    CheckpointId,
    EventTimeMs,
    Generation,
    OperatorId,
    SplitId,
    TaskId,
)
from arkflow_kernel.ports import JsonValue, SplitPosition
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    Epoch,
    InputSnapshot,
    LaneSnapshot,
    ObjectRef,
    RunRef,
    SinkToken,
    SplitTime,
    StagedObject,
    StateSnapshot,
)

Json = dict[str, JsonValue]
T = TypeVar("T")


class MalformedError(Exception):
    """A JSON value is not what this format version writes. The message names the field."""


class Fields:
    """A JSON object while it is read: fields by name and kind, or a `MalformedError`."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise MalformedError(f"{where or 'the file'} is no object")
        self._value: Mapping[str, Any] = value
        self._where = where

    def text(self, name: str) -> str:
        """A string."""
        return self._of(name, str)

    def number(self, name: str) -> int:
        """An integer that is not negative."""
        value = self._of(name, int)
        if isinstance(value, bool) or value < 0:
            raise MalformedError(f"{self._at(name)} is {value!r}, not a count")
        return value

    def optional_signed(self, name: str) -> int | None:
        """An integer of any sign, or null."""
        value = self._get(name)
        if value is not None and type(value) is not int:
            raise MalformedError(f"{self._at(name)} is {value!r}, not an integer")
        return value

    def flag(self, name: str) -> bool:
        """A boolean."""
        return self._of(name, bool)

    def mapping(self, name: str) -> "Fields":
        """An object."""
        return Fields(self._get(name), self._at(name))

    def raw(self, name: str) -> Any:
        """An object as it stands."""
        return self._of(name, dict)

    def optional(self, name: str, read: "Callable[[Fields], T]") -> T | None:
        """An object, or null."""
        return None if self._get(name) is None else read(self.mapping(name))

    def optional_text(self, name: str) -> str | None:
        """A string, or null."""
        return None if self._get(name) is None else self.text(name)

    def each(self, name: str, read: "Callable[[Fields], T]") -> tuple[T, ...]:
        """A list of objects."""
        values = self._of(name, list)
        at = self._at(name)
        return tuple(read(Fields(value, f"{at}[{i}]")) for i, value in enumerate(values))

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of strings."""
        values = self._of(name, list)
        if not all(isinstance(value, str) for value in values):
            raise MalformedError(f"{self._at(name)} is no list of strings")
        return tuple(values)

    def groups(self, name: str) -> tuple[int, int]:
        """First and last key group."""
        value = self._of(name, list)
        if len(value) != 2 or not all(type(group) is int and group >= 0 for group in value):
            raise MalformedError(f"{self._at(name)} is no pair of key groups")
        return value[0], value[1]

    def _get(self, name: str) -> Any:
        if name not in self._value:
            raise MalformedError(f"{self._at(name)} is missing")
        return self._value[name]

    def _of(self, name: str, kind: type[T]) -> T:
        value = self._get(name)
        if not isinstance(value, kind):
            raise MalformedError(f"{self._at(name)} is no {kind.__name__}")
        return value

    def _at(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name


def epoch_json(epoch: Epoch | None) -> JsonValue:
    """`{"generation", "checkpoint"}`, or null."""
    if epoch is None:
        return None
    return {"generation": epoch.generation, "checkpoint": epoch.checkpoint}


def object_json(ref: ObjectRef) -> Json:
    """An object's name, size in bytes and checksum."""
    return {"object": ref.name, "size": ref.size, "checksum": ref.checksum}


def chain_json(chain: ChainSnapshot) -> Json:
    """Everything that a chain's snapshot holds but its name and tasks, which the plan gives."""
    return {
        "sources": [
            {"split": at.split, "position": dict(at.position), "ended": at.ended}
            for at in chain.sources
        ],
        "times": [
            {"split": each.split, "max_ms": each.max_ms, "idle": each.idle} for each in chain.times
        ],
        "inputs": [
            {
                "channel": each.channel,
                "ended": each.ended,
                "watermark": each.watermark,
                "idle": each.idle,
            }
            for each in chain.inputs
        ],
        "watermark": chain.watermark,
        "finished": chain.finished,
        "state": [_state_json(state) for state in chain.states],
        "sinks": [_lane_json(lane) for lane in chain.lanes],
        "objects": [object_json(ref) for ref in chain.objects],
    }


def read_chain(fields: Fields, chain: ChainId, tasks: tuple[TaskId, ...]) -> ChainSnapshot:
    """What `chain_json` wrote."""
    return ChainSnapshot(
        chain=chain,
        tasks=tasks,
        sources=fields.each("sources", _read_split),
        times=fields.each("times", _read_time),
        inputs=fields.each("inputs", _read_input),
        watermark=_event_time(fields, "watermark"),
        finished=fields.flag("finished"),
        states=fields.each("state", _read_state),
        lanes=fields.each("sinks", _read_lane),
        objects=fields.each("objects", _read_object),
    )


def _state_json(state: StateSnapshot) -> Json:
    return {
        "operator": state.operator,
        "namespace": state.namespace,
        "name": state.name,
        "key_fields": list(state.key_fields),
        "key_types": list(state.key_types),
        "value_type": state.value_type,
        "format_version": state.format_version,
        "watermark": state.watermark,
        "shape": state.shape,
        "low": state.low,
        "runs": [_run_json(run) for run in state.runs],
    }


def _run_json(run: RunRef) -> Json:
    return {
        "run": run.run,
        "object": run.object,
        "offset": run.offset,
        "length": run.length,
        "rows": run.rows,
        "checksum": run.checksum,
        "key_groups": [run.first_group, run.last_group],
    }


def _lane_json(lane: LaneSnapshot) -> Json:
    return {
        "sink": lane.sink,
        "lane": lane.lane,
        "published_upto": epoch_json(lane.published_upto),
        "tokens": [
            {
                "epoch": epoch_json(token.epoch),
                "objects": [
                    {**object_json(each.object), "rows": each.rows, "extension": each.extension}
                    for each in token.objects
                ],
            }
            for token in lane.tokens
        ],
    }


def _read_split(fields: Fields) -> SplitPosition:
    return SplitPosition(
        SplitId(fields.text("split")), fields.raw("position"), fields.flag("ended")
    )


def _read_input(fields: Fields) -> InputSnapshot:
    return InputSnapshot(
        ChannelId(fields.text("channel")),
        fields.flag("ended"),
        _event_time(fields, "watermark"),
        fields.flag("idle"),
    )


def _read_time(fields: Fields) -> SplitTime:
    split, idle = SplitId(fields.text("split")), fields.flag("idle")
    return SplitTime(split, _event_time(fields, "max_ms"), idle)


def _event_time(fields: Fields, name: str) -> EventTimeMs | None:
    """Milliseconds, of any sign, or nothing."""
    value = fields.optional_signed(name)
    return None if value is None else EventTimeMs(value)


def _read_object(fields: Fields) -> ObjectRef:
    return ObjectRef(fields.text("object"), fields.number("size"), fields.text("checksum"))


def _read_state(fields: Fields) -> StateSnapshot:
    return StateSnapshot(
        operator=OperatorId(fields.text("operator")),
        namespace=fields.text("namespace"),
        name=fields.text("name"),
        key_fields=fields.texts("key_fields"),
        key_types=fields.texts("key_types"),
        value_type=fields.text("value_type"),
        runs=fields.each("runs", _read_run),
        format_version=fields.number("format_version"),
        watermark=_event_time(fields, "watermark"),
        shape=fields.text("shape"),
        low=fields.optional_signed("low"),
    )


def _read_run(fields: Fields) -> RunRef:
    first, last = fields.groups("key_groups")
    return RunRef(
        run=fields.text("run"),
        object=fields.text("object"),
        offset=fields.number("offset"),
        length=fields.number("length"),
        rows=fields.number("rows"),
        checksum=fields.text("checksum"),
        first_group=first,
        last_group=last,
    )


def _read_epoch(fields: Fields) -> Epoch:
    return Epoch(Generation(fields.number("generation")), CheckpointId(fields.number("checkpoint")))


def _read_lane(fields: Fields) -> LaneSnapshot:
    sink, lane = OperatorId(fields.text("sink")), fields.number("lane")

    def token(each: Fields) -> SinkToken:
        epoch = _read_epoch(each.mapping("epoch"))
        return SinkToken(sink, lane, epoch, each.each("objects", _read_staged))

    return LaneSnapshot(
        sink, lane, fields.each("tokens", token), fields.optional("published_upto", _read_epoch)
    )


def _read_staged(fields: Fields) -> StagedObject:
    return StagedObject(_read_object(fields), fields.number("rows"), fields.text("extension"))


__all__ = [
    "Fields",
    "Json",
    "MalformedError",
    "chain_json",
    "epoch_json",
    "object_json",
    "read_chain",
]
