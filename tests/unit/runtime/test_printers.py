"""Printers follow the actors of a job, whichever chains these host (P9, K2). No Ray."""

import queue
import threading
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from ray.exceptions import ActorDiedError

from arkflow_kernel.ids import ChainId, Generation
from arkflow_ray.runtime.job_settings import StdoutActors
from arkflow_ray.runtime.lines import Lines
from arkflow_ray.runtime.printers import Printers

DEADLINE_S = 30.0


class Actor:
    """A chain actor that hands over what `say` is given, until it is `die`d."""

    def __init__(self) -> None:
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._number = 0
        self.take_lines = SimpleNamespace(remote=lambda *_: self)

    def say(self, data: bytes) -> None:
        self._lines.put(data)

    def die(self) -> None:
        self._lines.put(None)

    def taken(self) -> Lines:
        data = self._lines.get(timeout=DEADLINE_S)
        if data is None:
            raise ActorDiedError
        self._number += 1
        return Lines(Generation(1), self._number, data)


class Screen:
    """Takes lines, one only when it is let."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.busy = threading.Semaphore(0)
        self.free = threading.Semaphore(0)

    def put(self, lines: bytes) -> None:
        self.busy.release()
        assert self.free.acquire(timeout=DEADLINE_S)
        self.lines.append(lines)

    def let(self, count: int) -> None:
        for _ in range(count):
            self.free.release()

    def wait_busy(self) -> None:
        assert self.busy.acquire(timeout=DEADLINE_S)


@pytest.fixture(autouse=True)
def _no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda actor: actor.taken())


def found(generation: int, *hosts: Actor, living: tuple[Actor, ...] = ()) -> StdoutActors:
    actors = {ChainId(f"out-{number}"): actor for number, actor in enumerate(hosts)}
    return StdoutActors(Generation(generation), actors, frozenset(actors), living or hosts)


def test_an_actor_is_printed_for_once_though_it_hosts_another_chain_later() -> None:
    screen, first, second = Screen(), Actor(), Actor()
    printers = Printers(screen)
    screen.let(10)
    printers.print_for(found(1, first, second))
    printers.print_for(found(2, second, first))
    for number in range(3):
        first.say(b"a%d" % number)
        second.say(b"b%d" % number)
    first.die()
    second.die()
    printers.join()
    assert sorted(screen.lines) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


def test_rows_of_an_actor_that_is_gone_come_before_those_of_the_one_in_its_place() -> None:
    screen, old, new = Screen(), Actor(), Actor()
    printers = Printers(screen)
    printers.print_for(found(1, old))
    old.say(b"old")
    screen.wait_busy()
    old.die()
    new.say(b"new")
    new.die()
    printers.print_for(found(2, new))
    screen.let(2)
    printers.join()
    assert screen.lines == [b"old", b"new"]


def test_an_actor_that_stays_does_not_hold_back_a_new_one() -> None:
    screen, stays, new = Screen(), Actor(), Actor()
    printers = Printers(screen)
    screen.let(2)
    printers.print_for(found(1, stays))
    printers.print_for(found(2, new, living=(stays, new)))
    new.say(b"new")
    screen.wait_busy()
    for actor in (stays, new):
        actor.die()
    printers.join()
    assert screen.lines == [b"new"]


def test_it_is_asked_again_until_every_chain_has_its_actor() -> None:
    printers, actor = Printers(Screen()), Actor()
    half: Any = StdoutActors(
        Generation(2), {ChainId("out-0"): actor}, frozenset({ChainId("out-0"), ChainId("out-1")})
    )
    printers.print_for(half)
    assert not printers.stand_at(Generation(2))
    printers.print_for(found(2, actor))
    assert printers.stand_at(Generation(2))
    assert not printers.stand_at(Generation(3))
    actor.die()
    printers.join()
