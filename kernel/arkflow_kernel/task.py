"""The machine of one chain (T1-T7): what it takes, in which order it works, how it ends.

It takes one event and returns commands. It never blocks, reads no clock, and touches no operator:
those live in the driver's lane, which the machine orders item by item (T1b). `chain_flow` moves the
batches, `chain_rounds` takes part in checkpoints; this module hears events, lets move what can
after each of them, and knows where the chain is in its life.

Phases: WAITING (no control state yet) → RUNNING → FINISHING (the data ended; the operators
flush) or STOPPING (the source was asked to stop, or the cut of a rescale is completed; or an input
ended so). Then, in ack mode, FLUSHING (sinks confirm); in checkpoint mode, DRAINED (nothing but
barriers moves, until the last round is completed and its tokens are published). → COMMITTING (the
source hears of it) → ENDED. A failed request, a broken channel or a cancel leads to ENDED from
anywhere.

Behind the cut of a rescale's round nothing is read, submitted or said of time (K2), until the round
has failed or the coordinator wants an end.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from arkflow_kernel.chain_clock import NO_SOURCE, OpenedSource
from arkflow_kernel.chain_flow import ChainFlow
from arkflow_kernel.envelope import Barrier, Data
from arkflow_kernel.errors import ArkflowError, BadRowError, ChannelError, SinkError
from arkflow_kernel.ids import ChannelId, Generation, MonotonicMs
from arkflow_kernel.metrics import ChainStatistics, Wait
from arkflow_kernel.plan import ChainPlan
from arkflow_kernel.ports import Moment, SplitPosition
from arkflow_kernel.protocol import (
    NOBODY,
    ChainCommand,
    ChainEvent,
    ChainOutcome,
    ChainReport,
    ChannelBroken,
    CommitSource,
    Control,
    ControlState,
    CreditGranted,
    Deliver,
    Desired,
    EndChain,
    ItemDone,
    OutcomeKind,
    PublishFailed,
    PublishTokens,
    ReportSoon,
    RequestFailed,
    SnapshotUploaded,
    SourceCommitted,
    SourceRead,
    Tick,
    TokensPublished,
    UploadFailed,
    UploadSnapshot,
    WriteDone,
    deadline,
)
from arkflow_kernel.snapshot import NOTHING_RESTORED, RestoredChain


class Phase(Enum):
    """Where a chain is in its life; see the module's docstring."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHING = "finishing"
    STOPPING = "stopping"
    FLUSHING = "flushing"
    DRAINED = "drained"
    COMMITTING = "committing"
    ENDED = "ended"


_START = MonotonicMs(0)
_TAKING = (Phase.RUNNING, Phase.FINISHING, Phase.STOPPING, Phase.DRAINED)


class ChainTask:
    """Machine of one chain.

    `opened`: what its source said when it was opened. `restored`: what the driver has restored;
    its positions are the frontier until a batch is settled, or a cut completed (F6).
    """

    def __init__(
        self,
        plan: ChainPlan,
        generation: Generation,
        *,
        opened: OpenedSource = NO_SOURCE,
        restored: RestoredChain = NOTHING_RESTORED,
    ) -> None:
        assert (plan.source is None) == bool(plan.inputs), "a chain has a source or inputs"
        self._plan = plan
        self._generation = generation
        self._control: ControlState | None = None
        self._phase = Phase.WAITING
        self._flow = ChainFlow(plan, generation, restored, opened)
        self._stopped = self._drains = False
        self._told: tuple[object, ...] | None = None
        flow = self._flow
        self._handlers: dict[type, Callable[[Any], None]] = {
            Control: self._on_control,
            Tick: lambda _: None,  # `_pump` looks at what is due
            SourceRead: flow.read,
            ItemDone: flow.item_done,
            WriteDone: flow.written,
            SourceCommitted: self._on_source_committed,
            SnapshotUploaded: self._on_uploaded,
            UploadFailed: self._on_uploaded,
            TokensPublished: self._on_published,
            PublishFailed: self._on_published,
            RequestFailed: self._on_request_failed,
            Deliver: self._on_deliver,
            CreditGranted: flow.granted,
            ChannelBroken: lambda event: self._end(OutcomeKind.FAILED, event.error),
        }

    # --- the one door --------------------------------------------------------------------------

    def handle(self, event: ChainEvent) -> list[ChainCommand]:
        """Take one event, return the commands that follow from it, in order.

        Raises `ProtocolError` with the machine's story for an answer that was not asked for.
        Answers that arrive after the end are dropped: their requests were given up (T4).
        """
        self._flow.outstanding.tell(event, self._phase)
        if self._phase is Phase.ENDED:
            return []
        self._flow.commands = []
        try:
            self._handlers[type(event)](event)
            self._pump(event.at)
        except (BadRowError, ChannelError, SinkError) as error:
            # A row that nobody takes; a peer or a sink that broke its rules, or gave up.
            self._end(OutcomeKind.FAILED, error)
        return self._flow.commands

    def next_deadline_ms(self) -> MonotonicMs | None:
        """When a `Tick` is due though nothing else happens."""
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return None
        flow = self._flow
        dues = flow.outputs.deadline_ms(), flow.rounds.deadline_ms()
        if flow.rounds.holds:
            return deadline(*dues)
        reads = flow.source.deadline_ms() if self._phase is Phase.RUNNING else None
        return deadline(*dues, reads, flow.time.deadline_ms(ticks=not flow.items.time_waits))

    def takes(self, channel: ChannelId) -> bool:
        """Whether the head of this input's queue may be delivered now (T1)."""
        return self._flow.takes(channel) and self._phase in _TAKING

    @property
    def phase(self) -> Phase:
        """Where the chain is in its life."""
        return self._phase

    def frontier(self) -> tuple[SplitPosition, ...]:
        """Per split, the position below which everything is settled (F1, F6)."""
        return self._flow.commits.frontier()

    def statistics(self, now_ms: MonotonicMs = _START) -> ChainStatistics:
        """An immutable snapshot of the counters. Waits that go on count until `now_ms`."""
        return self._flow.statistics(now_ms)

    def waits(self, now_ms: MonotonicMs) -> tuple[Wait, ...]:
        """What has made no progress for too long, and what it needs (E5)."""
        return self._flow.waits(now_ms)

    def report(self, at: Moment) -> ChainReport:
        """What the chain says of itself; its process adds what it used."""
        rounds = self._flow.rounds
        return ChainReport(
            at,
            self._plan.chain,
            self._generation,
            self.statistics(at.now_ms),
            self.frontier(),
            waits=self.waits(at.now_ms),
            answer=rounds.due_answer,
            drained=self._phase is Phase.DRAINED,
            stopped=self._stopped,
            published_upto=rounds.published_upto,
        )

    def validate(self) -> None:
        """Assert the invariants across all parts; called after every event in tests."""
        self._flow.validate()
        assert self._phase is not Phase.WAITING or not self._flow.outstanding
        if self._plan.source is not None and self._flow.rounds.holds:
            assert self._flow.items.nothing_behind_seal, "what is held does not go on"

    # --- events --------------------------------------------------------------------------------

    def _on_control(self, event: Control) -> None:
        flow = self._flow
        if event.state.generation != self._generation:
            flow.count("stale_controls", 1)
            return
        known = self._control
        self._control = event.state if known is None else known.merged(event.state)
        if self._phase is Phase.WAITING:
            self._phase = Phase.DRAINED if flow.finished else Phase.RUNNING
            flow.start(event.at.now_ms)
        flow.rounds.told(self._control)
        flow.commits.told(self._control.completed_upto, self._control.failed_upto)
        if self._control.desired is Desired.CANCEL:
            self._end(OutcomeKind.CANCELLED)
        elif self._control.desired in (Desired.STOP, Desired.DRAIN) or self._rescales:
            self._stop_source(drains=self._control.desired is Desired.DRAIN)

    def _on_deliver(self, event: Deliver) -> None:
        flow, envelope, now_ms = self._flow, event.envelope, event.at.now_ms
        if not self.takes(event.channel):
            raise flow.outstanding.error(f"{event.channel} was delivered and takes nothing now")
        flow.inlets.delivered(event.channel, envelope)
        if isinstance(envelope, Data):
            flow.delivered(event.channel, envelope, now_ms)
        elif isinstance(envelope, Barrier) and flow.rounds.delivered(event.channel, envelope):
            flow.seal(envelope, now_ms)

    def _on_source_committed(self, event: SourceCommitted) -> None:
        self._flow.outstanding.answered(event.token, CommitSource)
        self._flow.commits.committed()

    def _on_uploaded(self, event: SnapshotUploaded | UploadFailed) -> None:
        self._flow.outstanding.answered(event.token, UploadSnapshot)
        if isinstance(event, UploadFailed):
            self._flow.rounds.upload_failed(event.error)
        else:
            self._flow.rounds.uploaded(event)

    def _on_published(self, event: TokensPublished | PublishFailed) -> None:
        request = self._flow.outstanding.answered(event.token, PublishTokens)
        assert isinstance(request, PublishTokens)
        if isinstance(event, PublishFailed):
            self._flow.rounds.publish_failed(request.output, event.error, event.at.now_ms)
        else:
            self._flow.rounds.published(request.output)

    def _on_request_failed(self, event: RequestFailed) -> None:
        self._flow.outstanding.answered(event.token)
        self._end(OutcomeKind.FAILED, event.error)

    # --- phases --------------------------------------------------------------------------------

    def _pump(self, at: Moment) -> None:
        """Move whatever can move, from the outputs back to the source, then look at the phase."""
        flow, now_ms = self._flow, at.now_ms
        if self._phase in (Phase.WAITING, Phase.ENDED):
            return
        flow.move(now_ms)
        barrier = flow.rounds.due(self._control)
        if barrier is not None:
            flow.seal(barrier, now_ms)
        if not flow.rounds.holds:
            flow.submit(now_ms)
            flow.pass_time(at)
            if self._phase is Phase.RUNNING:
                flow.ask(now_ms, NOBODY if self._control is None else self._control.slowest)
        for request in flow.rounds.requests(flow.outstanding.token, now_ms):
            flow.order(request)
        self._next_phase(now_ms)
        self._tell()

    def _next_phase(self, now_ms: MonotonicMs) -> None:
        flow = self._flow
        ended = flow.source.exhausted and flow.inlets.ended
        held = flow.rounds.holds and not flow.inlets.stopped
        if self._phase is Phase.RUNNING and ended and not held:
            self._leave_running(now_ms)
        if self._phase is Phase.STOPPING and flow.source.quiet and self._drains:
            self._finish(now_ms)
        waits = self._phase is Phase.STOPPING and (self._drains or not flow.source.quiet)
        if self._phase in (Phase.FINISHING, Phase.STOPPING) and flow.items.idle and not waits:
            self._data_ended(now_ms)
        if self._phase is Phase.FLUSHING and flow.settled:
            self._phase = Phase.COMMITTING
        if self._phase is Phase.DRAINED and self._may_end():
            self._phase = Phase.COMMITTING
        if self._phase is Phase.COMMITTING and flow.commits.quiet:
            self._end(OutcomeKind.STOPPED if self._stopped else OutcomeKind.FINISHED)

    def _leave_running(self, now_ms: MonotonicMs) -> None:
        """Operators are finished only where every stream came to its end by itself (D5)."""
        if self._flow.inlets.stopped:
            self._phase, self._stopped = Phase.STOPPING, True
        else:
            self._finish(now_ms)

    def _finish(self, now_ms: MonotonicMs) -> None:
        if self._flow.finish(now_ms):
            self._phase = Phase.FINISHING

    def _data_ended(self, now_ms: MonotonicMs) -> None:
        """Every row has left the lane."""
        self._flow.end(stopped=self._stopped)
        self._phase = Phase.FLUSHING if self._flow.acks else Phase.DRAINED
        if self._flow.acks:
            self._flow.outputs.flush()
        self._flow.write(now_ms)

    def _stop_source(self, *, drains: bool) -> None:
        """Chains behind hear of it by the end of their inputs."""
        if self._plan.source is not None and self._phase is Phase.RUNNING:
            self._phase, self._stopped, self._drains = Phase.STOPPING, not drains, drains
            self._flow.source.stop()

    @property
    def _rescales(self) -> bool:
        """The cut that holds the chain is completed: another plan goes on behind it (K2)."""
        ends = self._control is not None and self._control.desired is Desired.END
        return ends and self._flow.rounds.holds

    def _may_end(self) -> bool:
        """The last round is completed, and all of its tokens are published (T3)."""
        control = self._control
        assert control is not None
        published = self._flow.rounds.published_upto == control.completed_upto
        return control.desired is Desired.END and published

    def _tell(self) -> None:
        """Let the coordinator hear at once what it waits for."""
        rounds, drained = self._flow.rounds, self._phase is Phase.DRAINED
        now = (rounds.answer and rounds.answer.checkpoint, drained, rounds.published_upto)
        news = now != self._told and self._phase is not Phase.ENDED
        if news and not self._flow.acks:
            self._told = now
            self._flow.commands.append(ReportSoon())

    def _end(self, kind: OutcomeKind, error: ArkflowError | None = None) -> None:
        if self._phase is not Phase.ENDED:
            self._phase = Phase.ENDED
            outcome = ChainOutcome(kind, error, self.frontier())
            self._flow.commands.append(EndChain(outcome))


__all__ = ["ChainTask", "Phase"]
