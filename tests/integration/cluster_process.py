"""A cluster of several raylets that a module of these tests makes, in a process of its own."""

import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Final, Self

REPOSITORY: Final = Path(__file__).parents[2]


class ClusterProcess:
    """Says a line when the cluster is up, which is `first`, and one for each that it is asked.

    When it is left it has `ends_s` to end.
    """

    def __init__(self, module: str, ends_s: float) -> None:
        self._ends_s = ends_s
        self._process = subprocess.Popen(
            [sys.executable, "-m", f"tests.integration.{module}"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY,
        )  # fmt: skip
        self.first = self._line()

    def ask(self) -> str:
        """Its next line."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._line()

    def close(self) -> None:
        """End the cluster."""
        self._process.communicate(timeout=self._ends_s)

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the cluster did not come up"
        return line

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


__all__ = ["ClusterProcess"]
