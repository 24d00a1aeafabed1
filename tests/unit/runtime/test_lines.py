"""The line buffer: one batch outstanding, confirmed when printed (P9)."""

import threading

import pytest

from arkflow_kernel.errors import OutputClosedError
from arkflow_kernel.ids import Generation
from arkflow_ray.runtime.lines import LineBuffer


def put_in_thread(buffer: LineBuffer, data: bytes) -> tuple[threading.Thread, list[Exception]]:
    errors: list[Exception] = []

    def work() -> None:
        try:
            buffer.put(data)
        except OutputClosedError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    return thread, errors


def test_put_returns_only_when_its_lines_were_printed() -> None:
    buffer = LineBuffer()
    thread, errors = put_in_thread(buffer, b"a\n")
    lines = buffer.take(0, 10)
    assert (lines.number, lines.data) == (1, b"a\n")
    assert thread.is_alive()
    assert buffer.take(lines.number, 0.0).number == 0
    thread.join(10)
    assert not thread.is_alive()
    assert not errors


def test_asking_again_without_confirming_yields_the_same_lines() -> None:
    buffer = LineBuffer()
    thread, _ = put_in_thread(buffer, b"a\n")
    assert buffer.take(0, 10) == buffer.take(0, 10)
    buffer.take(1, 0.0)
    thread.join(10)


def test_two_sinks_take_turns_and_lose_nothing() -> None:
    buffer = LineBuffer()
    threads = [put_in_thread(buffer, data)[0] for data in (b"a\n", b"b\n")]
    first = buffer.take(0, 10)
    second = buffer.take(first.number, 10)
    buffer.take(second.number, 0.0)
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert {first.data, second.data} == {b"a\n", b"b\n"}


def test_close_fails_every_put() -> None:
    buffer = LineBuffer()
    thread, errors = put_in_thread(buffer, b"a\n")
    assert buffer.take(0, 10).number == 1
    buffer.close()
    thread.join(10)
    assert errors
    with pytest.raises(OutputClosedError, match="gone away"):
        buffer.put(b"b\n")
    assert buffer.take(0, 0.0).closed


def test_lines_carry_their_generation_and_one_who_waits_is_sent_on_when_it_is_over() -> None:
    buffer = LineBuffer(Generation(2))
    thread, _ = put_in_thread(buffer, b"a\n")
    assert buffer.take(0, 10).generation == 2
    buffer.take(1, 0.0)
    thread.join(10)
    taking: list[int] = []
    waiter = threading.Thread(target=lambda: taking.append(buffer.take(1, 60).number))
    waiter.start()
    buffer.retire()
    waiter.join(10)
    assert taking == [0]
