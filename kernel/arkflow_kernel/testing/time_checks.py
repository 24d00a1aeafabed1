"""What a chain may say of time, found from what it was told alone: its inputs, or its splits.

A watermark that a chain gives to its operators, or says, is at most the lowest of what has a say
(W1, W2): this keeps the highest that it may have been. What comes in a channel is judged by what
came in it before (W11).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

from arkflow_kernel.envelope import Data, EndOfStream, Envelope, Idle, Watermark
from arkflow_kernel.ids import ChannelId, SplitId
from arkflow_kernel.ports import NothingYet, ReadResult, SourceBatch, SplitPosition
from arkflow_kernel.snapshot import SplitTime
from arkflow_kernel.testing.lineage import ViolationError, place_in
from arkflow_kernel.testing.sim_rows import rows_of, split_number
from arkflow_kernel.testing.sim_times import TIME_FIELD, TimeTable


@dataclass
class _Part:
    watermark: int | None = None
    active: bool = True


class TimeCheck:
    """The highest watermark that one chain may have, and the lowest."""

    def __init__(self, restored: int | None) -> None:
        self._highest = self._lowest = restored

    def rose(self, parts: Iterable[_Part]) -> None:
        """Something was heard: the lowest of what has a say may be higher now."""
        self._highest = _risen(self._highest, parts)

    def check(self, chain: str, watermark: int | None, *, at_once: bool) -> None:
        """The chain has this watermark now. `at_once`: it lets no rise wait."""
        highest, lowest = self._highest, self._lowest
        if watermark is not None and (highest is None or watermark > highest):
            _fail(f"{chain} has watermark {watermark}, it may have {highest} (W1)")
        if at_once and lowest is not None and (watermark is None or watermark < lowest):
            _fail(f"{chain} has watermark {watermark}, it must have {lowest} (W1, W2)")


def _risen(before: int | None, parts: Iterable[_Part]) -> int | None:
    """The lowest of what has a say, if it is known; it never goes back."""
    said = [part.watermark for part in parts if part.active]
    known = [watermark for watermark in said if watermark is not None]
    if not known or len(known) < len(said):
        return before
    return min(known) if before is None else max(before, min(known))


class InputTimes(TimeCheck):
    """A chain behind channels. `strict`: no split is idle while it has rows."""

    def __init__(
        self, channels: Iterable[ChannelId], restored: int | None, table: TimeTable, *, strict: bool
    ) -> None:
        super().__init__(restored)
        self._table, self._strict = table, strict
        self._parts = {channel: _Part() for channel in channels}

    def delivered(self, channel: ChannelId, envelope: Envelope) -> None:
        """An envelope is handed to the machine."""
        part = self._parts[channel]
        match envelope:
            case Watermark(time_ms):
                if part.watermark is not None and time_ms < part.watermark:
                    _fail(f"{channel} went from watermark {part.watermark} to {time_ms} (W2)")
                part.watermark, part.active = time_ms, True
            case Idle():
                part.active = False
            case EndOfStream(stopped=False):
                part.active = False
            case Data():
                if not part.active:
                    _fail(f"{channel}: rows end an idleness without a word (W2)")
                if self._strict:
                    self._judge(channel, envelope, part.watermark)
            case _:
                pass
        self.rose(self._parts.values())
        self._lowest = self._highest

    def _judge(self, channel: ChannelId, envelope: Data, said: int | None) -> None:
        """No row within the bound comes below what its channel has said, or what is known here."""
        known = max((w for w in (said, self._highest) if w is not None), default=None)
        if known is None:
            return
        for piece in envelope.pieces:
            if TIME_FIELD not in piece.schema.names:
                continue
            times: list[Any] = piece[TIME_FIELD].to_pylist()
            for row, time_ms in zip(rows_of(piece), times, strict=True):
                if time_ms < known and self._table.within_bound(row):
                    _fail(f"{channel}: row {row} of {time_ms} comes behind watermark {known} (W11)")


class SplitChecks(TimeCheck):
    """A source chain. `splits` are those that are not ended."""

    def __init__(
        self,
        splits: Iterable[SplitId],
        times: Iterable[SplitTime],
        restored: int | None,
        table: TimeTable,
    ) -> None:
        super().__init__(restored)
        self._table = table
        self._timeout_ms = table.time.idle_timeout_ms
        self._parts = {split: _Part() for split in splits}
        self._quiet: dict[SplitId, float] = {}
        self._idle: set[SplitId] = set()
        for time in times:
            if time.split in self._parts and time.max_ms is not None:
                self._parts[time.split].watermark = time.max_ms - table.time.bound_ms
            if time.idle:
                self._quiet[time.split] = float("-inf")

    def answered(self, result: ReadResult, now_ms: int) -> None:
        """The source says where there is nothing."""
        quiet: Iterable[SplitId] = ()
        if isinstance(result, SourceBatch):
            self._quiet.pop(result.split, None)
            self._idle.discard(result.split)
            quiet = result.quiet
        elif isinstance(result, NothingYet):
            quiet = self._parts if result.quiet is None else result.quiet
        for split in quiet:
            since = self._quiet.setdefault(split, now_ms)
            if self._timeout_ms is not None and now_ms - since >= self._timeout_ms:
                self._idle.add(split)  # whoever looks now must see it
        self._may_rise(now_ms)

    def submitted(self, upto: SplitPosition) -> None:
        """The rows of a split up to here went to the lane."""
        split = split_number(upto.split)
        part = self._parts[upto.split]
        part.watermark = self._table.watermark(split, place_in(upto))
        if upto.ended:
            del self._parts[upto.split]

    def passed(self, now_ms: int) -> None:
        """The machine has handled an event."""
        self._may_rise(now_ms)
        if any(part.active for part in self._parts.values()):
            known = self._parts.items()
            surely = (_Part(part.watermark, split not in self._idle) for split, part in known)
            self._lowest = _risen(self._lowest, surely)

    def _may_rise(self, now_ms: int) -> None:
        """Whoever may be idle by now has no say, if the machine has noticed."""
        for split, part in self._parts.items():
            since, timeout_ms = self._quiet.get(split), self._timeout_ms
            idle = since is not None and timeout_ms is not None and now_ms - since >= timeout_ms
            part.active = not idle
        parts = self._parts.values()
        self.rose(part for part in parts if part.active)
        if not any(part.active for part in parts):  # it may not have noticed of one of them
            for part in parts:
                self.rose([_Part(part.watermark)])


def _fail(message: str) -> NoReturn:
    raise ViolationError(message)


__all__ = ["InputTimes", "SplitChecks", "TimeCheck"]
