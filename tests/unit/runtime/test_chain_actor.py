"""The chain actor's verbs without Ray: one generation at a time, reused, old calls recognised
(P1, P2, P3)."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from arkflow_kernel.errors import ActorLostError, OutputClosedError, SourceError
from arkflow_kernel.ids import ChainId, Generation, JobId, OperatorId, OutputId
from arkflow_kernel.plan import ChainPlan, ComponentPlan, SinkPlan, SourcePlan
from arkflow_kernel.ports import ReplayKind
from arkflow_kernel.protocol import ControlState, Desired, OutcomeKind
from arkflow_kernel.snapshot import NOTHING_RESTORED
from arkflow_ray.runtime.chain_actor import ChainActor, Deployed, Deployment

CHAIN = ChainId("source-0")
FIRST, SECOND = Generation(1), Generation(2)


def plan(sink: str = "drop", messages: int = 3) -> ChainPlan:
    texts = [f'{{"n": {n}}}' for n in range(messages)]
    memory = ComponentPlan("memory", {"messages": texts}, {"type": "json"})
    return ChainPlan(
        CHAIN,
        SourcePlan(OperatorId("source"), memory),
        (),
        (SinkPlan(OperatorId("sink"), ComponentPlan(sink, {})),),
        (OutputId("sink"),),
    )


def deployment(generation: Generation, chain: ChainPlan | None = None) -> Deployment:
    threads = os.cpu_count() or 1
    return Deployment(
        JobId("j"),
        plan() if chain is None else chain,
        generation,
        NOTHING_RESTORED,
        {},
        os.getcwd(),
        threads,
        "127.0.0.1",
        bytes(32),
        "afc-unused",
    )


Scenario = Callable[[ChainActor], Awaitable[None]]


@pytest.fixture
def play() -> Iterator[Callable[[Scenario], None]]:
    """Play a scenario with a new actor; what it sets for its process is set back."""
    interval_s = sys.getswitchinterval()

    def run(scenario: Scenario) -> None:
        async def limited() -> None:
            await asyncio.wait_for(scenario(ChainActor(1)), 30)

        asyncio.run(limited())

    yield run
    sys.setswitchinterval(interval_s)


def test_a_run_that_is_asked_for_again_tells_the_same_end(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(actor: ChainActor) -> None:
        deployed = await actor.deploy(deployment(FIRST))
        assert deployed == Deployed(ReplayKind.POSITION, False, None)
        assert await actor.deploy(deployment(FIRST)) == deployed
        await actor.control(ControlState(FIRST))
        first = await actor.run(FIRST)
        assert first.outcome.kind is OutcomeKind.FINISHED
        assert first.report is not None
        assert first.report.statistics.rows_in == 3
        assert await actor.run(FIRST) == first

    play(scenario)


def test_an_actor_is_reused_for_the_next_generation_once_its_chain_has_ended(
    play: Callable[[Scenario], None],
) -> None:
    async def scenario(actor: ChainActor) -> None:
        await actor.deploy(deployment(FIRST))
        early = await actor.deploy(deployment(SECOND))
        assert isinstance(early, ActorLostError)
        assert "generation 1 has not ended" in early.message
        await actor.control(ControlState(FIRST, Desired.CANCEL))
        assert (await actor.run(FIRST)).outcome.kind is OutcomeKind.CANCELLED
        assert isinstance(await actor.deploy(deployment(SECOND)), Deployed)
        await actor.control(ControlState(SECOND))
        assert (await actor.run(SECOND)).outcome.kind is OutcomeKind.FINISHED

    play(scenario)


def test_calls_of_an_old_generation_do_nothing(play: Callable[[Scenario], None]) -> None:
    async def scenario(actor: ChainActor) -> None:
        await actor.deploy(deployment(SECOND))
        late = await actor.deploy(deployment(FIRST))
        assert isinstance(late, ActorLostError)
        await actor.control(ControlState(FIRST, Desired.CANCEL))
        assert await actor.report(FIRST) is None
        assert isinstance(await actor.connect(FIRST, {}), ActorLostError)
        assert isinstance((await actor.run(FIRST)).outcome.error, ActorLostError)
        await actor.control(ControlState(SECOND))
        assert (await actor.run(SECOND)).outcome.kind is OutcomeKind.FINISHED

    play(scenario)


def test_a_deployment_that_failed_can_be_followed_by_another(
    play: Callable[[Scenario], None], tmp_path: Path
) -> None:
    missing = ComponentPlan("file", {"input_type": {"type": "json", "path": f"{tmp_path}/none"}})
    broken = replace(plan(), source=SourcePlan(OperatorId("source"), missing))

    async def scenario(actor: ChainActor) -> None:
        assert isinstance(await actor.deploy(deployment(FIRST, broken)), SourceError)
        assert isinstance(await actor.deploy(deployment(SECOND)), Deployed)

    play(scenario)


def test_rows_of_each_generation_are_numbered_anew(play: Callable[[Scenario], None]) -> None:
    async def scenario(actor: ChainActor) -> None:
        for generation in (FIRST, SECOND):
            await actor.deploy(deployment(generation, plan("stdout", messages=1)))
            await actor.control(ControlState(generation))
            ending = asyncio.create_task(actor.run(generation))
            # The printer still stands in the generation before, at its first line.
            lines = await actor.take_lines(Generation(generation - 1), 1)
            while not lines.number:
                lines = await actor.take_lines(Generation(generation - 1), 1)
            assert (lines.generation, lines.number) == (generation, 1)
            assert lines.data == b'{"n":0}\n'
            await actor.take_lines(generation, 1)
            assert (await ending).outcome.kind is OutcomeKind.FINISHED

    play(scenario)


def test_rows_that_nobody_prints_any_more_are_not_waited_for_in_a_later_generation(
    play: Callable[[Scenario], None],
) -> None:
    """P9: the printer that has gone is not started again for the same actor."""

    async def scenario(actor: ChainActor) -> None:
        await actor.deploy(deployment(FIRST))
        await actor.control(ControlState(FIRST, Desired.CANCEL))
        await actor.run(FIRST)
        await actor.close_lines()
        await actor.deploy(deployment(SECOND, plan("stdout")))
        await actor.control(ControlState(SECOND))
        assert isinstance((await actor.run(SECOND)).outcome.error, OutputClosedError)

    play(scenario)


def test_a_deployment_shows_no_secret() -> None:
    shown = repr(replace(deployment(FIRST), secrets={"A": "hidden"}, channel_secret=b"s" * 32))
    assert shown == "Deployment(source-0, generation 1)"
