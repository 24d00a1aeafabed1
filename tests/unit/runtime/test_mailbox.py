"""The mailbox: control first, FIFO otherwise, no post is lost between threads (P4)."""

import asyncio
import threading

from arkflow_ray.runtime.mailbox import Mailbox


def test_control_comes_before_earlier_events_and_both_are_fifo() -> None:
    mailbox: Mailbox[str] = Mailbox()
    for event in ("a", "b"):
        mailbox.post(event)
    for event in ("c1", "c2"):
        mailbox.post(event, control=True)
    assert [mailbox.take() for _ in range(5)] == ["c1", "c2", "a", "b", None]


def test_posts_from_other_threads_wake_the_loop_and_none_is_lost() -> None:
    mailbox: Mailbox[int] = Mailbox()
    count = 2_000

    def post(start: int) -> None:
        for n in range(start, start + count):
            mailbox.post(n)

    async def collect() -> list[int]:
        mailbox.attach()
        threads = [threading.Thread(target=post, args=(start,)) for start in (0, count)]
        for thread in threads:
            thread.start()
        taken: list[int] = []
        while len(taken) < 2 * count:
            event = mailbox.take()
            if event is None:
                await mailbox.wait(10)
            else:
                taken.append(event)
        for thread in threads:
            thread.join()
        return taken

    taken = asyncio.run(collect())
    assert sorted(taken) == list(range(2 * count))
    assert [n for n in taken if n < count] == list(range(count))


def test_wait_ends_at_its_timeout() -> None:
    async def wait() -> None:
        mailbox: Mailbox[int] = Mailbox()
        mailbox.attach()
        await mailbox.wait(0.01)
        await mailbox.wait(0.01)

    asyncio.run(wait())
