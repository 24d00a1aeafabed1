"""Which roots are taken, and what is said about the others (M1, M8)."""

import os
import sys
from pathlib import Path

import pytest

from arkflow_kernel.errors import StoreError
from arkflow_ray.checkpoint.open import open_files, open_objects
from arkflow_ray.checkpoint.roots import parse_root


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("/var/checkpoints", "file:///var/checkpoints"),
        ("/var/checkpoints/", "file:///var/checkpoints"),
        ("file:///var/checkpoints", "file:///var/checkpoints"),
        ("FILE://localhost/var/checkpoints/", "file:///var/checkpoints"),
        ("memory://tests", "memory://tests"),
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://bucket/a", "gs://bucket/a"),
        ("az://container/a", "az://container/a"),
    ],
)
def test_a_root_is_a_folder_or_a_url_of_a_store_that_is_known(text: str, url: str) -> None:
    assert parse_root(text).url == url
    assert parse_root(text).job_path("orders") == url.partition("://")[2] + "/orders"


def test_a_plain_path_is_taken_against_the_working_directory() -> None:
    assert parse_root("checkpoints").path == os.path.join(os.getcwd(), "checkpoints")
    assert parse_root("file://./checkpoints").path == os.path.join(os.getcwd(), "checkpoints")
    assert parse_root("~/checkpoints").path == os.path.join(Path.home(), "checkpoints")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://host/x", "no exclusive create that can be trusted"),
        ("ftp://host/x", "no exclusive create that can be trusted"),
        ("hdfs://host/x", "no exclusive create that can be trusted"),
        ("s3a://bucket/x", "write `s3://` instead"),
        ("gcs://bucket/x", "write `gs://` instead"),
        ("simplecache::s3://bucket/x", "chained"),
        ("file://", "path is missing"),
        ("s3://", "names no bucket"),
        ("s3:bucket/x", "`//` after the `:` is missing"),
        ("file:/var/x", "`//` after the `:` is missing"),
        ("s3://bucket/../other", r"`\.\.` part"),
        ("s3://bucket//x", "empty"),
        ("", "empty"),
    ],
)
def test_any_other_root_is_refused_and_says_why(text: str, why: str) -> None:
    """M1."""
    with pytest.raises(StoreError, match=why):
        parse_root(text)


@pytest.mark.parametrize(
    "text", ["s3://key:hunter2@bucket/x", "s3://bucket/x?secret=hunter2", "az://u:hunter2@c/x"]
)
def test_credentials_in_a_root_are_refused_and_not_shown(text: str) -> None:
    """M8."""
    with pytest.raises(StoreError, match="do not belong into a root") as failure:
        parse_root(text)
    assert "hunter2" not in str(failure.value)


@pytest.mark.parametrize("job", ["", ".", "..", ".hidden", "a/b", "a\nb", "x" * 256])
def test_a_job_s_name_must_be_able_to_name_a_folder(job: str) -> None:
    with pytest.raises(StoreError, match="cannot be a folder"):
        open_files("memory://tests", job)


@pytest.mark.parametrize(
    ("root", "module", "line"),
    [
        ("s3://bucket", "s3fs", r"pip install 'arkflow-ray\[s3\]'"),
        ("gs://bucket", "gcsfs", "pip install gcsfs"),
        ("az://container", "adlfs", "pip install adlfs"),
    ],
)
def test_a_missing_client_is_told_with_the_line_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, root: str, module: str, line: str
) -> None:
    from fsspec.registry import _registry  # type: ignore[import-untyped]

    monkeypatch.setitem(sys.modules, module, None)
    for protocol in ("s3", "gs", "az"):
        monkeypatch.delitem(_registry, protocol, raising=False)
    for opening in (open_files, open_objects):
        with pytest.raises(StoreError, match=line):
            opening(root, "orders")
