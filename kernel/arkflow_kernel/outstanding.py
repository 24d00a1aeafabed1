"""A machine's requests on their way, and its story (contract of `protocol.py`).

A part of `task.py`. Every request is answered by exactly one event with its token; an answer that
nobody waits for is a bug of the driver and raises with the machine's last transitions.
"""

from collections import deque
from enum import Enum

from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import RequestToken
from arkflow_kernel.limits import STORY_ENTRIES_MAX
from arkflow_kernel.protocol import ChainEvent, ReadSource, Request


class Outstanding:
    """The requests of one chain that are not answered yet. `name` is how errors call the chain."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._requests: dict[RequestToken, Request] = {}
        self._next_token = 1
        self._story: deque[tuple[str, object, Enum]] = deque(maxlen=STORY_ENTRIES_MAX)

    def __len__(self) -> int:
        return len(self._requests)

    def token(self) -> RequestToken:
        """The token of the request that is ordered next."""
        return RequestToken(self._next_token)

    def ordered(self, request: Request) -> None:
        """A request goes out; it carries the next token, or continues an answered one."""
        assert request.token not in self._requests
        self._requests[request.token] = request
        self._next_token = max(self._next_token, request.token + 1)

    def answered(self, token: RequestToken, *kinds: type) -> Request:
        """The request that an answer belongs to; `ProtocolError` if there is none of `kinds`."""
        request = self._requests.pop(token, None)
        if request is None or (kinds and not isinstance(request, kinds)):
            raise self.error(f"answer to request {token}, which is {request}")
        return request

    def tell(self, event: ChainEvent, phase: Enum) -> None:
        """An event comes in: part of the story."""
        self._story.append((type(event).__name__, getattr(event, "token", None), phase))

    def error(self, message: str) -> ProtocolError:
        """An error that tells the story."""
        story = tuple(
            f"{name} token={token} in {phase.value}" for name, token, phase in self._story
        )
        return ProtocolError(f"chain '{self._name}': {message}", story)

    def validate(self) -> None:
        """Assert the bounds (B3)."""
        reads = [r for r in self._requests.values() if isinstance(r, ReadSource)]
        assert len(reads) <= 1, "two reads outstanding"


__all__ = ["Outstanding"]
