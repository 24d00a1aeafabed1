"""The private folder: where it is, and which folders are refused."""

import os
from pathlib import Path

import pytest

from arkflow_ray.door.folder import (
    SOCKET_PATH_BYTES_MAX,
    DoorName,
    UnsafeFolderError,
    check_private,
    door_stem,
    make_folder,
    parse_name,
    possible_folders,
    usable_folders,
)


def test_the_runtime_folder_of_the_session_is_used_first(folder: Path) -> None:
    environment = {"XDG_RUNTIME_DIR": str(folder)}
    assert folder / "arkflow_ray" not in usable_folders(environment)
    assert make_folder(environment) == folder / "arkflow_ray"
    assert usable_folders(environment)[0] == folder / "arkflow_ray"
    assert (folder / "arkflow_ray").stat().st_mode & 0o777 == 0o700


def test_without_a_session_it_lies_among_the_temporary_files() -> None:
    assert Path(f"/tmp/arkflow_ray-{os.getuid()}") in possible_folders({})


def test_a_path_that_is_too_long_for_a_socket_is_passed_over(folder: Path) -> None:
    long = folder / ("x" * 90)
    assert long / "arkflow_ray" not in possible_folders({"XDG_RUNTIME_DIR": str(long)})


def test_every_possible_folder_has_room_for_the_longest_name() -> None:
    name = DoorName(door_stem("a" * 128), 4_194_304).file
    for place in possible_folders({"XDG_RUNTIME_DIR": "/run/user/1000000"}):
        assert len(os.fsencode(place / name)) <= SOCKET_PATH_BYTES_MAX


def test_a_folder_that_others_may_look_into_is_refused(folder: Path) -> None:
    folder.chmod(0o750)
    with pytest.raises(UnsafeFolderError, match="others may look into it"):
        check_private(folder)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_refused(folder: Path) -> None:
    os.chown(folder, 65_534, -1)
    with pytest.raises(UnsafeFolderError, match="belongs to user 65534"):
        check_private(folder)


def test_a_link_to_a_folder_is_refused(folder: Path) -> None:
    (folder / "link").symlink_to(folder)
    with pytest.raises(UnsafeFolderError, match="is no folder"):
        check_private(folder / "link")


def test_when_no_place_is_safe_each_is_named_with_its_reason(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / "open"
    place.mkdir(mode=0o755)
    monkeypatch.setattr("arkflow_ray.door.folder.possible_folders", lambda _: [place])
    with pytest.raises(UnsafeFolderError, match="open: others may look into it"):
        make_folder({})
    assert usable_folders({}) == []


@pytest.mark.parametrize("name", [DoorName("shop"), DoorName("shop-2", 17)])
def test_a_name_is_read_back_from_its_file(name: DoorName) -> None:
    assert parse_name(name.file) == name


@pytest.mark.parametrize("file", ["shop", ".sock", "shop.x.sock", ".shop.sock"])
def test_other_files_are_no_doors(file: str) -> None:
    assert parse_name(file) is None


def test_ids_that_differ_in_their_tails_have_different_names() -> None:
    one, other = door_stem("a" * 127 + "b"), door_stem("a" * 127 + "c")
    assert one != other
    assert len(one) == len(other) <= 48
