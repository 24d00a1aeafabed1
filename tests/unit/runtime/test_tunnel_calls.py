"""Calls of a tunnel at an actor, and an actor's answers to them (H6, P2). Without Ray."""

import asyncio
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorDiedError

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_ray.runtime.chain_actor import ChainActor
from arkflow_ray.runtime.tunnel_calls import actor_calls

B = ChainId("b-0")


class Actor:
    """Keeps what it was called with; `answer` is that of the newest call."""

    def __init__(self) -> None:
        self.called: list[tuple[Any, ...]] = []
        self.answer: Future[Any] = Future()
        self.tunnel_put = self.tunnel_take = SimpleNamespace(remote=self._call)

    def _call(self, *arguments: Any) -> Any:
        self.called.append(arguments)
        self.answer = Future()
        return SimpleNamespace(future=lambda: self.answer)


def test_calls_carry_their_generation_and_bytes_as_they_are() -> None:
    actor, told = Actor(), list[object]()
    calls = actor_calls({B: actor}, Generation(3))[B]
    data = b"piece"
    calls.put("id", 1, data, told.append)
    actor.answer.set_result(None)
    calls.take("id", 2, told.append)
    actor.answer.set_result(b"back")
    assert actor.called == [(3, "id", 1, data), (3, "id", 2)]
    assert actor.called[0][3] is data
    assert told == [None, b"back"]


@pytest.mark.parametrize("error", [ActorDiedError(), OSError("no way")])
def test_a_call_that_fails_names_the_chain_and_the_reason(error: Exception) -> None:
    actor, told = Actor(), list[object]()
    actor_calls({B: actor}, Generation(1))[B].put("id", 1, b"a", told.append)
    actor.answer.set_exception(error)
    (failed,) = told
    assert isinstance(failed, ChannelError)
    assert "the actor of chain 'b-0' failed" in failed.message
    assert type(error).__name__ in failed.message


def test_an_actor_that_does_not_host_the_generation_takes_nothing() -> None:
    """P2."""
    actor = ChainActor(1)

    async def ask() -> tuple[str | None, bytes]:
        put = await actor.tunnel_put(Generation(7), "id", 0, b"")
        return put, await actor.tunnel_take(Generation(7), "id", 1)

    assert asyncio.run(ask()) == ("its generation is not hosted here", b"")
