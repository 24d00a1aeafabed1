"""The order in which a chain's machine gets what waits for it (T1, H8a)."""

from concurrent.futures import Future
from itertools import pairwise

import pyarrow as pa
import pytest

from arkflow_kernel.envelope import Data, Envelope, Reset
from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import (
    ChainId,
    ChannelId,
    Generation,
    MonotonicMs,
    RequestToken,
    Sequence,
    WallMs,
)
from arkflow_kernel.metrics import ChainStatistics, ChainUsage
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    ChainReport,
    ChannelBroken,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    SourceCommitted,
)
from arkflow_ray.runtime.chain_inbox import ChainInbox, ReportWanted
from arkflow_ray.runtime.clock import SystemClock

A, B, OUT = ChannelId("a[0-0]"), ChannelId("b[0-0]"), ChannelId("out[0-0]")
CLOCK = SystemClock()
NOW_MS = MonotonicMs(1_000)


@pytest.fixture
def inbox() -> ChainInbox:
    return ChainInbox([A, B], CLOCK)


def data(number: int, size_bytes: int = 100) -> Data:
    return Data(Sequence(number), (pa.record_batch({"n": [number]}),), size_bytes)


def everything(channel: ChannelId) -> bool:
    return bool(channel)


def nothing(channel: ChannelId) -> bool:
    return not channel


def rest(inbox: ChainInbox) -> list[object]:
    """All that is due, for a machine that takes everything."""
    found: list[object] = []
    while (event := inbox.take(everything)) is not None:
        found.append(event)
    return found


def test_control_comes_first_then_answers_then_what_the_channels_brought(inbox: ChainInbox) -> None:
    inbox.arrived([(A, data(1))])
    inbox.granted([(OUT, Sequence(1), Sequence(0))])
    inbox.answered(SourceCommitted(CLOCK.moment(), RequestToken(1)))
    inbox.ask(ReportWanted(Future(), NOW_MS))
    inbox.control(ControlState(Generation(1)))
    kinds = [type(event) for event in rest(inbox)]
    assert kinds[:3] == [ReportWanted, Control, SourceCommitted]
    assert set(kinds[3:]) == {Deliver, CreditGranted}


def test_channels_take_turns_and_each_keeps_its_order(inbox: ChainInbox) -> None:
    inbox.arrived([(A, data(n)) for n in (1, 2, 3)])
    inbox.arrived([(B, data(n)) for n in (1, 2)])
    order = [(e.channel, e.envelope.sequence) for e in rest(inbox) if _is_data(e)]  # type: ignore[attr-defined]
    assert order == [(A, 1), (B, 1), (A, 2), (B, 2), (A, 3)]


def _is_data(event: object) -> bool:
    return isinstance(event, Deliver) and isinstance(event.envelope, Data)


def test_a_channel_that_the_machine_does_not_take_from_does_not_hold_up_the_others(
    inbox: ChainInbox,
) -> None:
    inbox.arrived([(A, data(1)), (B, data(1)), (B, data(2))])
    taken = [inbox.take(lambda channel: channel == B) for _ in range(3)]
    assert [getattr(event, "channel", None) for event in taken] == [B, B, None]
    assert [getattr(event, "channel", None) for event in rest(inbox)] == [A]


def test_grants_and_envelopes_take_turns(inbox: ChainInbox) -> None:
    channels = [ChannelId(f"o[{n}-0]") for n in range(3)]
    inbox.granted([(channel, Sequence(1), Sequence(1)) for channel in channels])
    inbox.arrived([(A, data(n)) for n in (1, 2, 3)])
    kinds = [type(event) for event in rest(inbox)]
    assert len(kinds) == 6
    assert all(one is not other for one, other in pairwise(kinds))


def test_the_newest_word_of_credit_replaces_an_older_one(inbox: ChainInbox) -> None:
    inbox.granted([(OUT, Sequence(1), Sequence(0))])
    inbox.granted([(OUT, Sequence(3), Sequence(2))])
    (event,) = rest(inbox)
    assert isinstance(event, CreditGranted)
    assert (event.channel, event.taken_upto, event.settled_upto) == (OUT, 3, 2)


def test_what_waits_in_queues_is_counted_in_bytes(inbox: ChainInbox) -> None:
    envelopes: list[tuple[ChannelId, Envelope]] = [(A, Reset(Generation(1)))]
    envelopes += [(A, data(1, 70)), (B, data(1, 30))]
    inbox.arrived(envelopes)
    assert inbox.take(nothing) is None
    assert inbox.held_bytes == 100
    rest(inbox)
    assert inbox.held_bytes == 0


def test_a_broken_channel_is_told_before_what_still_waits(inbox: ChainInbox) -> None:
    inbox.arrived([(A, data(1))])
    inbox.broken(ChannelError("gone"))
    assert isinstance(inbox.take(everything), ChannelBroken)


def test_questions_are_left_to_a_chain_that_has_ended(inbox: ChainInbox) -> None:
    wanted = ReportWanted(Future(), NOW_MS)
    inbox.control(ControlState(Generation(1)))
    inbox.ask(wanted)
    inbox.arrived([(A, data(1))])
    assert list(inbox.questions()) == [wanted]
    assert rest(inbox) == []


def test_a_report_says_how_long_the_loop_took_to_come_to_it() -> None:
    """P5: the question is the probe of the loop's lag."""
    chain = ChainId("a-0")
    at = Moment(MonotonicMs(NOW_MS + 40), WallMs(0))
    report = ChainReport(at, chain, Generation(1), ChainStatistics(chain), usage=ChainUsage(7))
    wanted = ReportWanted(Future(), NOW_MS)
    wanted.tell(report)
    told = wanted.answer.result(timeout=0)
    assert told.usage == ChainUsage(cpu_ms=7, loop_lag_ms=40)
