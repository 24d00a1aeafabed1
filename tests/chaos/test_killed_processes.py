"""Random processes of a job are killed again and again, and its results are exact (D2, D3, D4, P8,
X1). Longer by ARKFLOW_CHAOS_SECONDS; another course by ARKFLOW_CHAOS_SEED."""

import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.chaos.conftest import RECOVERY_S, SECONDS, SEED, Target, assert_all_is_right
from tests.servers.fault_proxy import Fault, FaultProxy
from tests.servers.s3_server import S3Root

pytestmark = pytest.mark.timeout(SECONDS + RECOVERY_S + 120)

FAULTS = (Fault.BUSY, Fault.BUSY, Fault.SLOW, Fault.NO_ANSWER, Fault.BROKEN)


def assert_survives(target: Target) -> None:
    target.shoot(SECONDS, random.Random(SEED))
    assert target.over.wait(RECOVERY_S), f"it did not come to its end\n{target.story()}"
    assert target.end is not None, target.story()
    assert target.end["outcome"] == "finished", target.story()
    assert len(target.kills) >= SECONDS / 20, target.story()
    assert_all_is_right(target)
    print(
        f"seed {SEED}: {len(target.kills)} kills: {', '.join(target.kills)}; {target.faults} faults"
    )


def test_no_row_is_lost_or_doubled_however_its_processes_die(
    begin: Callable[..., Target], tmp_path: Path
) -> None:
    assert_survives(begin(f"file://{tmp_path}/store", interval_ms=300))


def test_no_row_is_lost_or_doubled_over_a_store_that_is_slow_and_refuses(
    begin: Callable[..., Target], s3_root: S3Root
) -> None:
    """M1, M4."""
    target = begin(s3_root.url, interval_ms=600)
    spoiler = threading.Thread(target=spoil, args=(s3_root.proxy, target))
    spoiler.start()
    try:
        assert_survives(target)
    finally:
        target.over.set()
        spoiler.join()
    assert target.faults >= SECONDS / 20, target.story()


def spoil(proxy: FaultProxy, target: Target) -> None:
    """Once there is a checkpoint, spoil a request about every second, some twice in a row.

    The next fault waits until the one before was met, or they would pile up in front of a store
    that nobody asks while processes start.
    """
    aim = random.Random(SEED)
    rule = None
    while not target.over.wait(aim.uniform(0.5, 1.5)):
        if target.now.get("checkpoint") and (rule is None or rule.hits == rule.times):
            method = aim.choice(("PUT", "PUT", "GET", "DELETE"))
            fault, times = aim.choice(FAULTS), aim.choice((1, 1, 2))
            rule = proxy.spoil(fault, method, "/checkpoints/", times)
            target.faults += 1
