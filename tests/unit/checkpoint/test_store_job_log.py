"""The log of a job over every store: claims, records and fencing (M1), and on a bad network."""

import itertools
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.checkpoint_ports import LogFiles
from arkflow_kernel.errors import FencedError
from arkflow_kernel.ids import CheckpointId, WallMs
from arkflow_kernel.job_log import JobLog
from arkflow_kernel.snapshot import RestoreChoice, RestoreKind
from arkflow_kernel.testing.log_world import graph_of, record_of
from arkflow_ray.door.messages import NAME_CHARS_MAX, name_fault
from arkflow_ray.runtime.log_thread import open_job_log
from tests.servers.fault_proxy import Fault
from tests.servers.s3_server import S3Root

if TYPE_CHECKING:
    from tests.unit.checkpoint.conftest import Store

NEWEST = RestoreChoice()
GRAPH = graph_of(counts=1)
OTHER = graph_of(counts=1, job="orders-2")
CLAIMERS = 6
CHECKPOINT_1 = "/log/0000000002"
"""The slot after the first claim's."""


def log_of(files: LogFiles) -> JobLog:
    """The log of a new coordinator."""
    clock = itertools.count(1)
    return JobLog(
        GRAPH,
        files,
        nonce=secrets.token_hex(8),
        coordinator="host:1",
        wall_ms=lambda: WallMs(next(clock)),
    )


def put_objects(store: "Store", checkpoint: int) -> None:
    """What the record lists, by size: a claim looks for it."""
    record = record_of(GRAPH, 1, checkpoint)
    files = store.files()
    for ref in (ref for chain in record.chains for ref in chain.objects):
        files.create(f"objects/{ref.name}", bytes(ref.size))


def test_a_claim_restores_the_newest_record_and_fences_who_wrote_it(store: "Store") -> None:
    """M1, M2."""
    old = log_of(store.files())
    assert old.claim(NEWEST, {}).generation == 1
    for checkpoint in (1, 2):
        put_objects(store, checkpoint)
        old.append(record_of(GRAPH, 1, checkpoint))
    new = log_of(store.files())
    claim = new.claim(NEWEST, {})
    assert claim.generation == 2
    assert claim.restored is not None
    assert claim.restored.chains == record_of(GRAPH, 1, 2).chains
    with pytest.raises(FencedError):
        old.append(record_of(GRAPH, 1, 3))
    new.append(record_of(GRAPH, 2, 3))


def test_claims_at_once_get_generations_of_their_own(store: "Store") -> None:
    """M1: and only the last of them may write."""
    logs = [log_of(store.files()) for _ in range(CLAIMERS)]
    start = threading.Barrier(CLAIMERS)

    def claim(log: JobLog) -> int:
        start.wait(60)
        return log.claim(NEWEST, {}).generation

    with ThreadPoolExecutor(CLAIMERS) as pool:
        generations = list(pool.map(claim, logs))
    assert sorted(generations) == list(range(1, CLAIMERS + 1))
    by_age = [logs[generations.index(n)] for n in range(1, CLAIMERS + 1)]
    for number, log in enumerate(by_age[:-1], start=1):
        with pytest.raises(FencedError):
            log.append(record_of(GRAPH, number, 1))
    by_age[-1].append(record_of(GRAPH, CLAIMERS, 1))


@pytest.mark.parametrize("name", ["v1.2", "-1..", "_", "a" * NAME_CHARS_MAX])
def test_a_savepoint_is_read_by_another_job_through_its_url(store: "Store", name: str) -> None:
    """X4: whatever name the command line lets it have, and with a slash behind it."""
    assert name_fault(name) is None
    log = log_of(store.files())
    log.claim(NEWEST, {})
    put_objects(store, 1)
    record = record_of(GRAPH, 1, 1, savepoint=name)
    log.append(record)
    log.save(record)
    url = f"{store.root}/orders/savepoints/{name}/"
    other = open_job_log(OTHER, store.root)
    choice = RestoreChoice(RestoreKind.SAVEPOINT, savepoint=url, accept_duplicates=True)
    claim = other.claim(choice, {})
    other.close()
    assert claim.restored is not None
    assert claim.restored.checkpoint == CheckpointId(1)
    assert len(store.files(job="orders-2").sizes("objects")) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "times"),
    [
        (Fault.NO_REQUEST, 4),
        (Fault.NO_ANSWER, 4),
        (Fault.BROKEN, 2),
        (Fault.LOST, 2),
        (Fault.BUSY, 2),
        (Fault.CONFLICT, 2),
    ],
)
def test_a_record_is_there_once_append_returns(
    s3_store: "Store", s3_root: S3Root, fault: Fault, times: int
) -> None:
    """M1: an unknown outcome is read back, and the same bytes are tried at the same slot."""
    log = log_of(s3_store.files())
    log.claim(NEWEST, {})
    put_objects(s3_store, 1)
    rule = s3_root.proxy.spoil(fault, "PUT", CHECKPOINT_1, times)
    unread = s3_root.proxy.spoil(Fault.BUSY, "GET", CHECKPOINT_1)
    log.append(record_of(GRAPH, 1, 1))
    assert rule.hits > 0
    assert unread.hits == 1
    claim = log_of(s3_store.files()).claim(NEWEST, {})
    assert claim.restored is not None
    assert claim.restored.chains == record_of(GRAPH, 1, 1).chains
    assert sorted(s3_store.files().sizes("log")) == [f"{n:010}.json" for n in (1, 2, 3)]
