"""Output `file` with several subtasks in one folder of a real S3 server, at least once (X3, X5)."""

import json
from concurrent.futures import ThreadPoolExecutor

import fsspec  # type: ignore[import-untyped]  # it ships no types
import pyarrow as pa

from arkflow_kernel.ids import MonotonicMs, Sequence, SubtaskIndex
from arkflow_kernel.plan import Subtask
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.outputs.file import FileSink, build
from arkflow_ray.components.outputs.file_config import FileOutputConfig
from tests.servers.s3_server import S3Root

NOW = MonotonicMs(0)
PARTS = 5


def write_parts(url: str, index: int, of: int) -> None:
    """One subtask: a part a write, a row a part."""
    config = FileOutputConfig.model_validate({"path": url, "format": "json"})
    context = BuildContext("sink", job="job", subtask=Subtask(SubtaskIndex(index), of))
    sink = build(config, context)
    assert isinstance(sink, FileSink)
    sink.open()
    for number in range(1, PARTS + 1):
        sink.write(Sequence(number), pa.record_batch({"of": [of], "at": [index]}), NOW)
        assert sink.flush(NOW).confirmed_upto == number
    sink.close()


def test_subtasks_of_two_attempts_write_to_one_folder_and_nothing_is_lost(s3_root: S3Root) -> None:
    url = f"s3://{s3_root.bucket}/out"
    for of in (3, 2):
        with ThreadPoolExecutor(of) as writers:
            for done in [writers.submit(write_parts, url, index, of) for index in range(of)]:
                done.result()
    store = fsspec.filesystem("s3")
    store.invalidate_cache()
    found = {path.rpartition("/")[2]: json.loads(store.cat_file(path)) for path in store.find(url)}
    lanes = {0: 2 * PARTS, 1: 2 * PARTS, 2: PARTS}
    assert sorted(found) == [
        f"part-0000000001-0000000000-{lane:010d}-{number:010d}.jsonl"
        for lane, count in lanes.items()
        for number in range(1, count + 1)
    ]
    rows = sorted((row["of"], row["at"]) for row in found.values())
    assert rows == sorted((of, at) for of in (2, 3) for at in range(of) for _ in range(PARTS))
