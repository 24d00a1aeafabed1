"""The limit for a new process counts from the last one that came up."""

import asyncio

import pytest

from arkflow_ray.runtime.arrivals import Arrivals, starts_at_once

LIMIT_S = 1.0


def test_a_process_that_nothing_else_comes_before_has_one_limit() -> None:
    async def alone() -> None:
        never: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await Arrivals().first_answer(never, LIMIT_S)
        assert never.cancelled()

    asyncio.run(asyncio.wait_for(alone(), 30))


def test_while_others_come_up_a_process_is_waited_for() -> None:
    """Each comes up within the limit after the one before; the last takes one and a half limits."""

    async def one_after_the_other() -> list[int]:
        arrivals = Arrivals()
        came = asyncio.Lock()

        async def up(number: int) -> int:
            async with came:
                await asyncio.sleep(LIMIT_S / 2)
            return number

        return await asyncio.gather(*(arrivals.first_answer(up(n), LIMIT_S) for n in range(3)))

    assert asyncio.run(asyncio.wait_for(one_after_the_other(), 30)) == list(range(3))


def test_an_error_of_the_answer_is_no_arrival() -> None:
    async def fails() -> int:
        raise OSError("it died")

    async def both() -> None:
        arrivals = Arrivals()
        with pytest.raises(OSError, match="it died"):
            await arrivals.first_answer(fails(), LIMIT_S)
        assert arrivals._last_s < 0

    asyncio.run(asyncio.wait_for(both(), 30))


def test_no_more_come_up_at_a_time_than_there_are_cores_for() -> None:
    async def all_of_them() -> int:
        arrivals, up, most = Arrivals(at_once=3), 0, 0

        async def comes_up() -> None:
            nonlocal up, most
            async with arrivals.turn():
                up += 1
                most = max(most, up)
                await asyncio.sleep(0)
                up -= 1

        await asyncio.gather(*(comes_up() for _ in range(20)))
        return most

    assert asyncio.run(asyncio.wait_for(all_of_them(), 30)) == 3


def test_a_cluster_starts_as_many_as_it_has_cores_and_a_small_one_eight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 16)
    assert starts_at_once(nodes=4) == 64
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    assert starts_at_once(nodes=1) == 8
