"""What an exchange counts: written by its I/O thread, read by anybody."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from arkflow_ray.runtime.channels.handshake import Refusal


@dataclass(frozen=True, slots=True)
class ExchangeStatistics:
    """Figures of all connections of one exchange, since it was made. Bytes are the wire's.

    `refused`: handshakes by reason (H2). `last_error`: why a channel broke, or None.
    """

    connections: int
    frames_in: int
    frames_out: int
    bytes_in: int
    bytes_out: int
    refused: Mapping[str, int]
    last_error: str | None


class Counters:
    """The same while it grows."""

    def __init__(self) -> None:
        self.connections = 0
        self.frames_in = 0
        self.frames_out = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.refused: Counter[Refusal] = Counter()
        self.last_error: str | None = None

    def statistics(self) -> ExchangeStatistics:
        """How things stand."""
        return ExchangeStatistics(
            self.connections,
            self.frames_in,
            self.frames_out,
            self.bytes_in,
            self.bytes_out,
            # A copy of a dictionary is one step of the interpreter, so the thread may go on.
            {refusal.value: count for refusal, count in dict(self.refused).items()},
            self.last_error,
        )


__all__ = ["Counters", "ExchangeStatistics"]
