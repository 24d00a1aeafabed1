"""The spool folder: what dead processes left is cleared, what living ones use never is."""

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from arkflow_ray.checkpoint.spool import FOREIGN_AGE_S, Spool, clear_leftovers

CHILD = """
import sys
from pathlib import Path
from arkflow_ray.checkpoint.spool import Spool
spool = Spool(Path(sys.argv[1]))
(spool.path / "part").write_bytes(b"x")
print(spool.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return tmp_path / "spool"


def _start(base: Path) -> tuple[subprocess.Popen[str], Path]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(base)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    return child, Path(child.stdout.readline().strip())


def _renamed(folder: Path, host: str) -> Path:
    """The same leftover, as if another machine had made it."""
    named = folder.with_name(f"{host}-{folder.name.partition('-')[2]}")
    folder.rename(named)
    folder.with_name(folder.name + ".lock").rename(named.with_name(named.name + ".lock"))
    return named


def _aged(folder: Path) -> None:
    then = time.time() - FOREIGN_AGE_S - 3600
    for path in (*folder.rglob("*"), folder, folder.with_name(folder.name + ".lock")):
        os.utime(path, (then, then))


def test_the_folder_of_a_killed_process_is_cleared_by_the_next_and_that_of_a_living_one_stays(
    base: Path,
) -> None:
    dead, of_dead = _start(base)
    living, of_living = _start(base)
    with dead, living:
        assert (of_dead / "part").exists()
        dead.kill()
        dead.wait()
        spool = Spool(base)
        assert spool.path.is_dir()
        assert not of_dead.parent.exists()
        assert (of_living / "part").read_bytes() == b"x"
        living.kill()
    spool.close()
    clear_leftovers(base)
    assert list(base.iterdir()) == []


def test_folders_of_one_process_do_not_clear_each_other(base: Path) -> None:
    one, other = Spool(base), Spool(base)
    (one.path / "part").touch()
    assert one.path != other.path
    clear_leftovers(base)
    assert (one.path / "part").exists()
    one.close()
    assert other.path.is_dir()
    other.close()
    assert list(base.iterdir()) == []


def test_many_that_start_at_once_each_get_a_folder(base: Path) -> None:
    spools = [Spool(base) for _ in range(32)]
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda spool: spool.path, spools))
    assert len(set(paths)) == len(spools)
    assert all(path.is_dir() for path in paths)
    for spool in spools:
        spool.close()
    assert list(base.iterdir()) == []


def test_a_leftover_of_another_machine_is_cleared_only_when_it_is_old(base: Path) -> None:
    """flock(2) may not reach other machines, so its owner may live."""
    dead, path = _start(base)
    with dead:
        dead.kill()
    young = _renamed(path.parent, "elsewhere")
    clear_leftovers(base)
    assert (young / "files/part").exists()
    _aged(young)
    clear_leftovers(base)
    assert list(base.iterdir()) == []


def test_an_old_folder_of_another_machine_stays_while_its_lock_is_held(base: Path) -> None:
    living, path = _start(base)
    with living:
        old = _renamed(path.parent, "elsewhere")
        _aged(old)
        clear_leftovers(base)
        assert (old / "files/part").exists()
        living.kill()


def test_a_folder_that_somebody_took_away_is_made_again(base: Path) -> None:
    spool = Spool(base)
    path = spool.path
    path.rmdir()
    assert spool.path == path
    assert path.is_dir()
    spool.close()


@pytest.mark.parametrize("how", ["a link", "open to others", "a file"])
def test_a_folder_that_another_user_could_have_made_is_refused(tmp_path: Path, how: str) -> None:
    shared = tmp_path / "arkflow-spool-0"
    if how == "a link":
        (tmp_path / "theirs").mkdir()
        shared.symlink_to(tmp_path / "theirs")
    elif how == "a file":
        shared.touch()
    else:
        shared.mkdir()
        shared.chmod(0o777)
    with pytest.raises(OSError, match=r"others may write there|File exists"):
        _ = Spool(shared / "orders", private=True).path
    assert not list(tmp_path.rglob("*.lock"))


def test_a_leftover_that_cannot_be_judged_stays(base: Path) -> None:
    base.mkdir()
    (base / "something").mkdir()
    (base / "elsewhere-1-x.lock").symlink_to("nowhere")
    clear_leftovers(base)
    assert len(list(base.iterdir())) == 2
