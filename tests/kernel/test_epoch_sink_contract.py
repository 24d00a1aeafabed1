"""The contract of exactly-once sinks: a sink that keeps it passes, one that breaks it is named."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.errors import StoreError
from arkflow_kernel.ids import CheckpointId, Generation, MonotonicMs, OperatorId, Sequence
from arkflow_kernel.ports import WriteReceipt
from arkflow_kernel.protocol import CommitPermit
from arkflow_kernel.snapshot import Epoch, ObjectRef, SinkToken, StagedObject
from arkflow_kernel.testing.components import rows_batch
from arkflow_kernel.testing.port_contracts import check_epoch_sink

BATCHES = [rows_batch("a", range(n)) for n in (2, 3, 1, 4)]


@dataclass
class World:
    """What outlives a sink: objects, and the target by token."""

    objects: dict[str, str] = field(default_factory=dict)
    target: dict[tuple[Epoch, int], str] = field(default_factory=dict)
    failing: bool = False

    def visible(self) -> list[dict[str, Any]]:
        return [row for key in sorted(self.target) for row in json.loads(self.target[key])]

    def fail_once(self) -> None:
        self.failing = True


class KeepingSink:
    """Keeps the contract. One object an epoch."""

    def __init__(self, world: World, generation: Generation) -> None:
        self._world, self._generation = world, generation
        self._open: list[dict[str, Any]] = []
        self._sealed: list[tuple[Epoch, list[dict[str, Any]]]] = []

    def open(self) -> None:
        """Nothing to connect."""

    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        del sequence
        self._open += batch.to_pylist()
        return WriteReceipt(Sequence(0), MonotonicMs(now_ms + 5))

    def roll(self, now_ms: MonotonicMs) -> WriteReceipt:
        del now_ms
        return WriteReceipt(Sequence(0))

    def seal(self, epoch: Epoch) -> None:
        rows, self._open = self._open, []
        if rows:
            self._sealed.append((epoch, rows))

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        if self._world.failing:
            self._world.failing = False
            raise StoreError("away")
        due = [sealed for sealed in self._sealed if sealed[0] <= upto]
        self._sealed = [sealed for sealed in self._sealed if sealed[0] > upto]
        return tuple(self._token(epoch, rows) for epoch, rows in due)

    def _token(self, epoch: Epoch, rows: list[dict[str, Any]]) -> SinkToken:
        name = f"{self._generation}-{len(self._world.objects) + 1}"
        self._world.objects[name] = json.dumps(rows)
        ref = ObjectRef(name, len(self._world.objects[name]), "0")
        return SinkToken(OperatorId("sink"), 0, epoch, (StagedObject(ref, len(rows)),))

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        del permit
        for number, staged in enumerate(token.objects):
            self._world.target[token.epoch, number] = self._world.objects[staged.object.name]

    def close(self) -> None:
        self._open.clear()
        self._sealed.clear()


class _Eager(KeepingSink):
    """Shows what it stages."""

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        tokens = super().stage(upto)
        for token in tokens:
            self.publish(token, CommitPermit("none"))
        return tokens


class _Confirming(KeepingSink):
    def write(self, sequence: Sequence, batch: pa.RecordBatch, now_ms: MonotonicMs) -> WriteReceipt:
        super().write(sequence, batch, now_ms)
        return WriteReceipt(Sequence(sequence + 1))


class _Repeating(KeepingSink):
    """A second publication adds the rows again."""

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        if (token.epoch, 0) in self._world.target:
            token = replace(token, epoch=token.epoch._replace(checkpoint=CheckpointId(99)))
        super().publish(token, permit)


class _Forgetful(KeepingSink):
    """Loses what it could not stage."""

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        try:
            return super().stage(upto)
        except StoreError:
            self._sealed.clear()
            raise


class _Swallowing(KeepingSink):
    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        try:
            return super().stage(upto)
        except StoreError:
            return ()


class _Leaky(KeepingSink):
    """Rows after a seal go into the epoch before."""

    def seal(self, epoch: Epoch) -> None:
        if self._open:
            self._sealed.append((epoch, self._open))


class _EmptyTokens(KeepingSink):
    def seal(self, epoch: Epoch) -> None:
        self._sealed.append((epoch, self._open))
        self._open = []


class _Twice(KeepingSink):
    """Stages again what it staged before."""

    def stage(self, upto: Epoch) -> tuple[SinkToken, ...]:
        kept = list(self._sealed)
        tokens = super().stage(upto)
        self._sealed = kept
        return tokens


class _Parting(KeepingSink):
    """Shows at its end what nobody asked for."""

    def close(self) -> None:
        for token in self.stage(Epoch(self._generation, CheckpointId(99))):
            self.publish(token, CommitPermit("none"))


class _Private(KeepingSink):
    """Publishes only tokens of its own generation."""

    def publish(self, token: SinkToken, permit: CommitPermit) -> None:
        if token.epoch.generation == self._generation:
            super().publish(token, permit)


def test_a_sink_that_keeps_the_contract_passes() -> None:
    world = World()
    tokens = check_epoch_sink(
        lambda generation: KeepingSink(world, generation),
        BATCHES,
        world.visible,
        fail_once=world.fail_once,
    )
    assert len(tokens) == len(BATCHES) + 1


@pytest.mark.parametrize(
    ("kind", "clause"),
    [
        (_Eager, "not published are visible"),
        (_Confirming, "WriteReceipt"),
        (_Repeating, "a second publication changed"),
        (_Forgetful, "not those of epochs with rows"),
        (_Swallowing, "the store failed and staging did not"),
        (_Leaky, "not those of epochs with rows"),
        (_EmptyTokens, "not those of epochs with rows"),
        (_Twice, "staged twice"),
        (_Parting, "without a published token"),
        (_Private, "of an earlier process"),
    ],
)
def test_a_sink_that_breaks_a_clause_is_refused(kind: type[KeepingSink], clause: str) -> None:
    world = World()
    with pytest.raises(AssertionError, match=clause):
        check_epoch_sink(
            lambda generation: kind(world, generation),
            BATCHES,
            world.visible,
            fail_once=world.fail_once,
        )
