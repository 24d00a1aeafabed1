"""The calls of a tunnel at another chain's actor, and its answers (H6). Bytes are not pickled."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

from ray.exceptions import RayError

from arkflow_kernel.errors import ChannelError
from arkflow_kernel.ids import ChainId, Generation
from arkflow_ray.runtime.channels.tunnel import Tunnel
from arkflow_ray.runtime.channels.tunnel_ends import Done, TunnelCalls
from arkflow_ray.runtime.ray_errors import first_line

T = TypeVar("T")


class ActorCalls:
    """Calls of `tunnel_put` and `tunnel_take` of one chain's actor, in one generation (P2)."""

    def __init__(self, chain: ChainId, actor: Any, generation: Generation) -> None:
        self._chain = chain
        self._actor = actor
        self._generation = generation

    def put(self, connection: str, number: int, data: bytes, done: Done[str | None], /) -> None:
        """See `TunnelCalls`."""
        call = self._actor.tunnel_put.remote(self._generation, connection, number, data)
        self._answer(call, done)

    def take(self, connection: str, number: int, done: Done[bytes], /) -> None:
        """See `TunnelCalls`."""
        self._answer(self._actor.tunnel_take.remote(self._generation, connection, number), done)

    def _answer(self, call: Any, done: Done[T]) -> None:
        call.future().add_done_callback(partial(self._told, done))

    def _told(self, done: Done[T], future: Any) -> None:
        """In a thread of Ray's."""
        error = future.exception()
        if error is None:
            done(future.result())
            return
        told = first_line(error) if isinstance(error, RayError) else str(error)
        name = type(error).__name__
        done(ChannelError(f"a call of the actor of chain '{self._chain}' failed: {name}: {told}"))


def actor_calls(
    actors: Mapping[ChainId, Any], generation: Generation
) -> dict[ChainId, TunnelCalls]:
    """How to call the chains that are reached through the tunnel."""
    return {chain: ActorCalls(chain, actor, generation) for chain, actor in actors.items()}


async def answer_put(
    tunnel: Tunnel | None, connection: str, number: int, data: bytes
) -> str | None:
    """The answer to a `put`, None or a refusal; without a tunnel nothing is taken (P2)."""
    if tunnel is None:
        return "its generation is not hosted here"
    refusal: str | None = await asyncio.wrap_future(tunnel.put(connection, number, data))
    return refusal


async def answer_take(tunnel: Tunnel | None, connection: str, number: int) -> bytes:
    """The answer to a `take`; without a tunnel there is nothing."""
    if tunnel is None:
        return b""
    taken: bytes = await asyncio.wrap_future(tunnel.take(connection, number))
    return taken


__all__ = ["ActorCalls", "actor_calls", "answer_put", "answer_take"]
