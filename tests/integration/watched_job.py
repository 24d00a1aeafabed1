"""A job in a process of its own, on a cluster whose nodes a test takes away."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any, Final

REPOSITORY: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 180.0


class WatchedJob:
    """The one job of a file; its newest word is `now`, its last one `end`."""

    def __init__(
        self,
        file: Path,
        address: str,
        prefix: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        """`prefix` is a command that runs another, such as `ip netns exec NAME`."""
        self.now: dict[str, Any] = {}
        self.end: dict[str, Any] | None = None
        self._stderr = file.with_suffix(".log").open("w+")
        self._changed = threading.Condition()
        command = [sys.executable, "-m", "tests.chaos.watched_run", str(file), address]
        self._process = subprocess.Popen(
            [*prefix, *command],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
        )
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,))
        self._reader.start()

    def until(self, condition: Callable[[dict[str, Any]], bool], within_s: float = 0) -> None:
        """Wait for a word of the job; fail after the deadline, or when the job is over."""
        give_up_s = time.monotonic() + (within_s or DEADLINE_S)
        with self._changed:
            while not (self.now and condition(self.now)):
                assert self.end is None, self.story()
                left_s = give_up_s - time.monotonic()
                assert self._changed.wait(max(left_s, 0.0)), self.story()

    def until_saved(self, beyond: int = 0) -> None:
        """All chains are at work on rows, and a checkpoint after that number is complete."""

        def saved(now: dict[str, Any]) -> bool:
            at_work = now["state"] == "running" and len(now["chains"]) == len(now["rows"])
            return at_work and all(now["rows"].values()) and now["checkpoint"] > beyond

        self.until(saved)

    def stopped(self) -> dict[str, Any]:
        """Its last word, after it was asked to stop in order."""
        self._process.send_signal(signal.SIGTERM)
        give_up_s = time.monotonic() + DEADLINE_S
        with self._changed:
            while self.end is None:
                left_s = give_up_s - time.monotonic()
                assert self._changed.wait(max(left_s, 0.0)), self.story()
        return self.end

    def story(self) -> str:
        """What a failed test has to say."""
        self._stderr.flush()
        said = Path(self._stderr.name).read_text()[-4_000:]
        return f"now {self.now}\nend {self.end}\n{said}"

    def close(self) -> None:
        """Nothing of it is left."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()

    def _read(self, told: IO[str]) -> None:
        for line in told:
            if not line.startswith("{"):
                continue  # a word of Ray's
            word = json.loads(line)
            with self._changed:
                if "outcome" in word:
                    self.end = word
                else:
                    self.now = word
                self._changed.notify_all()


def until(condition: Callable[[], bool], what: str) -> None:
    """Return when it holds; fail with `what` after the deadline."""
    give_up_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_s, what
        time.sleep(0.1)


__all__ = ["DEADLINE_S", "WatchedJob", "until"]
