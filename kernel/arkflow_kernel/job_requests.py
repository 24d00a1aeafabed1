"""A coordinator's requests on their way, and its story (contract of `protocol.py`).

A part of `coordinator.py`. Chains answer what they were asked in this attempt; what an attempt
before still says is recognised by its token and is no news.
"""

from collections import deque

from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import ChainId, RequestToken
from arkflow_kernel.limits import STORY_ENTRIES_MAX


class JobRequests:
    """Tokens of one coordinator. `name` is how errors call it."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._asked: dict[RequestToken, ChainId] = {}
        self._next_token = 1
        self._first_token = 1
        self._story: deque[object] = deque(maxlen=STORY_ENTRIES_MAX)

    @property
    def any(self) -> bool:
        """Whether anything was asked at all."""
        return self._next_token > 1

    def token(self) -> RequestToken:
        """A new token."""
        token = RequestToken(self._next_token)
        self._next_token += 1
        return token

    def ask(self, chain: ChainId) -> RequestToken:
        """The token of a request that this chain answers."""
        token = self.token()
        self._asked[token] = chain
        return token

    def begin_attempt(self) -> None:
        """Nothing that was asked before is waited for."""
        self._asked.clear()
        self._first_token = self._next_token

    def answered(self, token: RequestToken, chain: ChainId) -> bool:
        """Whether the answer is of this attempt. `ProtocolError` if it was not asked for."""
        if token < self._first_token:
            return False
        self.require(self._asked.pop(token, None) == chain, f"unasked answer {token} of {chain}")
        return True

    def tell(self, event: object) -> None:
        """An event comes in: part of the story."""
        self._story.append(event)

    def require(self, condition: bool, message: str) -> None:
        """`ProtocolError` with the story unless the condition holds."""
        if not condition:
            story = tuple(f"{event}"[:200] for event in self._story)
            raise ProtocolError(f"{self._name}: {message}", story)


__all__ = ["JobRequests"]
