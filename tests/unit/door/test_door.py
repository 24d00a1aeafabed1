"""A door over real sockets: what callers get, and what bad ones cannot do."""

import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from arkflow_kernel.errors import ComponentError, StoreError
from arkflow_kernel.ids import ChainId, CheckpointId
from arkflow_kernel.protocol import JobOutcome, OutcomeKind
from arkflow_ray.door import server
from arkflow_ray.door.client import ask, find_door, find_doors
from arkflow_ray.door.folder import DoorName
from arkflow_ray.door.listener import listen
from arkflow_ray.door.messages import (
    REQUEST_BYTES_MAX,
    BadRequestError,
    NotReachableError,
    RefusedError,
    Request,
    SeveralRunsError,
    WaitedTooLongError,
)

if TYPE_CHECKING:
    from tests.unit.door.conftest import OpenDoors, RawCaller, ScriptedJob

Callers = Callable[[str | Path], "RawCaller"]

SHOP = {"job": "shop"}


def test_status_tells_state_and_checkpoints(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    job.checkpoints(last=CheckpointId(12), restored="checkpoint 9")
    opened(job)
    told = ask(find_door("shop", [folder]), Request("status"), 10)
    assert (told["job"], told["state"], told["pid"]) == ("shop", "running", os.getpid())
    assert told["checkpoints"]["last"] == 12
    assert told["checkpoints"]["restored"] == "checkpoint 9"
    assert told["checkpoints"]["root"] == "file:///checkpoints"


def test_stop_is_answered_when_the_job_is_over_and_says_what_it_waited_for(
    opened: "OpenDoors", caller: Callers, make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    job.checkpoints(under_way=CheckpointId(7), missing=(ChainId("count-0"),))
    (path,) = opened(job).paths
    asking = caller(path)
    asking.ask(command="stop", drain=True)
    text = "checkpoint 7 is under way; waiting for chain 'count-0'"
    assert asking.next() == {"progress": text}
    assert job.handle.calls == [("stop", True, None)]
    job.checkpoints(last=CheckpointId(7))
    job.end(JobOutcome(OutcomeKind.FINISHED))
    last = asking.next()
    while "progress" in last:
        last = asking.next()
    assert last == {"result": {"job": "shop", "outcome": "finished", "checkpoint": 7}}
    assert asking.ended()


def test_a_stop_of_a_job_that_fails_is_refused_with_its_error(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    opened(job)

    def fail(_: str) -> None:
        job.end(JobOutcome(OutcomeKind.FAILED, StoreError("the disk is full")))

    with pytest.raises(RefusedError, match="the disk is full") as refused:
        ask(find_door("shop", [folder]), Request("stop"), 20, fail)
    assert refused.value.kind == "StoreError"


def test_a_savepoint_is_answered_with_its_url(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    opened(job)

    def save(_: str) -> None:
        assert job.handle.calls == [("savepoint", "v1.2")]
        job.checkpoints(savepoints={"v1.2": "file:///checkpoints/shop/savepoints/v1.2"})

    told = ask(find_door("shop", [folder]), Request("savepoint", savepoint="v1.2"), 20, save)
    assert told["url"] == "file:///checkpoints/shop/savepoints/v1.2"


def test_a_savepoint_that_fails_is_refused_with_the_reason(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    opened(job)

    def fail(_: str) -> None:
        job.checkpoints(savepoints={"a": StoreError("no space")})

    with pytest.raises(RefusedError, match="no space"):
        ask(find_door("shop", [folder]), Request("savepoint", savepoint="a"), 20, fail)


def test_a_job_that_ends_with_its_savepoint_missing_says_so(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    opened(job)
    with pytest.raises(RefusedError, match=r"was stopped, but there is no savepoint"):
        ask(
            find_door("shop", [folder]),
            Request("stop", savepoint="a"),
            20,
            lambda _: job.end(JobOutcome(OutcomeKind.STOPPED)),
        )


@pytest.mark.parametrize(
    ("root", "reason"), [("", "makes no checkpoints"), (None, "end with this run")]
)
def test_a_savepoint_needs_a_place_that_outlives_the_run(
    root: str | None,
    reason: str,
    folder: Path,
    opened: "OpenDoors",
    make_job: "type[ScriptedJob]",
) -> None:
    job = make_job(root=root)
    opened(job)
    for request in (Request("savepoint", savepoint="a"), Request("stop", savepoint="a")):
        with pytest.raises(BadRequestError, match=reason):
            ask(find_door("shop", [folder]), request, 10)
    assert job.handle.calls == []


def test_the_name_of_a_savepoint_is_taken_once(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    job.checkpoints(savepoints={"a": "file:///a"})
    opened(job)
    with pytest.raises(BadRequestError, match="choose another name"):
        ask(find_door("shop", [folder]), Request("savepoint", savepoint="a"), 10)


def test_a_wait_has_an_end_and_what_was_asked_for_stands(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    opened(job)
    with pytest.raises(WaitedTooLongError):
        ask(find_door("shop", [folder]), Request("stop"), 0.3)
    assert job.handle.calls == [("stop", False, None)]


def test_a_door_that_closes_answers_whoever_waits(
    opened: "OpenDoors", caller: Callers, make_job: "type[ScriptedJob]"
) -> None:
    job = make_job()
    doors = opened(job)
    asking = caller(doors.paths[0])
    asking.ask(command="stop")
    assert "progress" in asking.next()
    job.end(JobOutcome(OutcomeKind.STOPPED))
    doors.close()
    assert asking.next() == {"result": {"job": "shop", "outcome": "stopped", "checkpoint": None}}
    assert asking.ended()
    assert not Path(doors.paths[0]).exists()


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"\xff\xfe\n", "a JSON object"),
        (b"[1]\n", "a JSON object"),
        (b"[" * 10_000 + b"\n", "a JSON object"),
        (b'{"command": "erase"}\n', "`command` is one of"),
        (b'{"command": ["stop"]}\n', "`command` is one of"),
        (b'{"command": "stop", "drain": 1}\n', "`drain` must be a bool"),
        (b'{"command": "status", "drain": true}\n', "`drain` goes with"),
        (b'{"command": "status", "savepoint": "a"}\n', "`savepoint` goes with"),
        (b'{"command": "savepoint"}\n', "must name the savepoint"),
        (b'{"command": "savepoint", "savepoint": "../a"}\n', "cannot name a savepoint"),
        (b'{"command": "savepoint", "savepoint": ".a"}\n', "cannot name a savepoint"),
        (b'{"command": "savepoint", "savepoint": ""}\n', "cannot name a savepoint"),
        (b'{"command": "stop", "when": "now"}\n', "unknown key"),
        (b'{"command": "stop", "version": 2}\n', "speaks version 1"),
        (b"x" * REQUEST_BYTES_MAX, "at most 16,384 bytes"),
    ],
)
def test_garbage_is_answered_with_what_is_wrong_and_changes_nothing(
    said: bytes,
    reason: str,
    opened: "OpenDoors",
    caller: Callers,
    make_job: "type[ScriptedJob]",
) -> None:
    job = make_job()
    (path,) = opened(job).paths
    asking = caller(path)
    asking.say(said)
    error = asking.next()["error"]
    assert error["type"] == "BadRequestError"
    assert reason in error["message"]
    assert asking.ended()
    assert job.handle.calls == []


def test_doors_close_also_while_their_thread_is_awake(
    folder: Path, caller: Callers, make_job: "type[ScriptedJob]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "LOOK_S", 0.0)  # the thread never sleeps while somebody waits
    job = make_job()
    for _ in range(100):
        doors = server.Doors([(listen(folder, job.job), job)])
        caller(doors.paths[0]).ask(command="stop")
        doors.close()


def test_a_request_may_come_in_pieces_and_its_sender_may_stop_sending(
    opened: "OpenDoors", caller: Callers, make_job: "type[ScriptedJob]"
) -> None:
    (path,) = opened(make_job()).paths
    asking = caller(path)
    for byte in b'{"command": "status"}\n':
        asking.say(bytes([byte]))
    asking.stop_sending()
    assert asking.next()["result"]["job"] == "shop"


def test_silent_callers_are_closed_and_keep_nobody_waiting(
    folder: Path,
    opened: "OpenDoors",
    caller: Callers,
    make_job: "type[ScriptedJob]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    (path,) = opened(make_job()).paths
    silent = [caller(path) for _ in range(server.CALLERS_MAX)]
    silent[0].say(b'{"comm')
    # No room until the silent ones are closed; then this one, which waited, is heard.
    assert ask(find_door("shop", [folder]), Request("status"), 20)["job"] == "shop"
    assert all(each.ended() for each in silent)


def test_a_caller_that_reads_nothing_is_closed_and_keeps_nobody_waiting(
    folder: Path,
    opened: "OpenDoors",
    caller: Callers,
    make_job: "type[ScriptedJob]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "TAKE_S", 0.5)
    job = make_job()
    huge = "x" * 4_000_000
    job.checkpoints(error=huge)
    (path,) = opened(job).paths
    deaf = caller(path)
    deaf.ask(command="status")
    told = ask(find_door("shop", [folder]), Request("status"), 20)
    assert told["checkpoints"]["error"] == huge
    threading.Event().wait(0.6)  # its time is over; what it finds then is not the whole answer
    with pytest.raises((json.JSONDecodeError, ConnectionResetError)):
        deaf.next()


def test_a_fault_is_told_to_its_caller_and_the_door_stays_open(
    folder: Path,
    opened: "OpenDoors",
    make_job: "type[ScriptedJob]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = make_job()

    def broken() -> None:
        raise ComponentError("no status")

    opened(job)
    with monkeypatch.context() as patched:
        patched.setattr(job.handle, "status", broken)
        with pytest.raises(RefusedError, match="no status"):
            ask(find_door("shop", [folder]), Request("status"), 10)
    assert ask(find_door("shop", [folder]), Request("status"), 10)["job"] == "shop"


def test_a_caller_of_another_user_gets_no_word(
    opened: "OpenDoors",
    caller: Callers,
    make_job: "type[ScriptedJob]",
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (path,) = opened(make_job()).paths
    monkeypatch.setattr(server, "peer", lambda _: (os.getpid(), os.getuid() + 1))
    asking = caller(path)
    assert asking.ended()


def test_only_the_user_can_open_the_socket(
    opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    (path,) = opened(make_job()).paths
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_a_job_that_does_not_run_is_named_with_those_that_do(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    with pytest.raises(NotReachableError, match="running: none"):
        find_door("shop", [folder])
    opened(make_job("shop"), make_job("stock"))
    with pytest.raises(NotReachableError, match=r"no job 'x' .* running: shop, stock"):
        find_door("x", [folder])


def test_of_two_runs_the_later_has_its_process_in_its_name_and_one_must_be_chosen(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    first, second = make_job(), make_job()
    pid = os.getpid()
    assert [Path(path).name for path in opened(first).paths] == ["shop.sock"]
    assert [Path(path).name for path in opened(second).paths] == [f"shop.{pid}.sock"]
    with pytest.raises(SeveralRunsError, match=rf"runs 2 times here; say shop\.{pid}"):
        find_door("shop", [folder])


def test_the_socket_of_a_dead_process_is_replaced_and_not_found(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    dead = listen(folder, "shop")
    other = listen(folder, "stock")
    dead.socket.close()
    other.socket.close()
    assert find_doors([folder]) == []
    assert [Path(path).name for path in opened(make_job()).paths] == ["shop.sock"]
    assert not other.path.exists()


def test_a_listener_takes_only_its_own_socket_away(folder: Path) -> None:
    mine = listen(folder, "shop")
    mine.path.unlink()
    theirs = listen(folder, "shop")
    mine.close()
    assert theirs.path.exists()
    theirs.close()
    assert list(folder.iterdir()) == []


def test_a_long_id_is_cut_and_told_apart(
    folder: Path, opened: "OpenDoors", make_job: "type[ScriptedJob]"
) -> None:
    long = "a" * 128
    opened(make_job(long), make_job(long[:-1] + "b"))
    told = ask(find_door(long, [folder]), Request("status"), 10)
    assert told["job"] == long
    assert all(len(DoorName(door.name.stem).file) <= 60 for door in find_doors([folder]))


def test_a_process_that_is_no_door_is_told_as_one_that_does_not_answer(folder: Path) -> None:
    listener = listen(folder, "shop")
    listener.socket.setblocking(True)

    def babble() -> None:
        for _ in range(2):  # the look for doors, then the request
            connection, _ = listener.socket.accept()
            with connection, suppress(BrokenPipeError):
                connection.sendall(b"SSH-2.0-OpenSSH\r\n")

    thread = threading.Thread(target=babble)
    thread.start()
    with pytest.raises(NotReachableError, match=r"does not (answer|speak)"):
        ask(find_door("shop", [folder]), Request("status"), 10)
    thread.join()
    listener.close()


def test_a_process_that_says_nothing_is_given_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("arkflow_ray.door.client.SILENCE_S", 0.3)
    listener = listen(folder, "shop")
    with pytest.raises(NotReachableError, match="is the process stopped"):
        ask(find_door("shop", [folder]), Request("status"), None)
    listener.close()
