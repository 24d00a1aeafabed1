"""Entries of a job's log as bytes: what is written is read, what is not is told apart (S9, S11)."""

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import CheckpointId, Generation, JobId, SplitId, WallMs
from arkflow_kernel.job_plan_record import plan_of
from arkflow_kernel.job_record import (
    FORMAT_VERSION,
    Base,
    CheckpointEntry,
    ClaimEntry,
    Defect,
    Entry,
    Unreadable,
    decode,
    encode,
)
from arkflow_kernel.ports import SplitPosition
from arkflow_kernel.snapshot import RestoreKind
from arkflow_kernel.testing.log_world import graph_of, record_of

GRAPH = graph_of(sinks=("files",))


def claim_entry(**changes: Any) -> ClaimEntry:
    entry = ClaimEntry(
        JobId("orders"),
        1,
        Generation(4),
        "nonce",
        "host:1",
        WallMs(5),
        CheckpointId(9),
        plan_of(GRAPH),
        Base(RestoreKind.SAVEPOINT, savepoint="before"),
    )
    return replace(entry, **changes)


def checkpoint_entry(**more: Any) -> CheckpointEntry:
    record = record_of(GRAPH, 4, 10, **more)
    return CheckpointEntry(JobId("orders"), 1, "nonce", WallMs(6), plan_of(GRAPH), record)


def rewritten(data: bytes, **changes: Any) -> bytes:
    """The same entry with other fields and a checksum that is right."""
    value = {**json.loads(data), **changes}
    del value["checksum"]
    text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    value["checksum"] = hashlib.sha256(text).hexdigest()
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode() + b"\n"


def defect(data: bytes) -> Unreadable:
    found = decode(data)
    assert isinstance(found, Unreadable)
    return found


@pytest.mark.parametrize(
    "entry",
    [
        claim_entry(),
        claim_entry(base=None),
        claim_entry(base=Base(RestoreKind.CHECKPOINT, CheckpointId(3))),
        checkpoint_entry(),
        checkpoint_entry(kind=RoundKind.SAVEPOINT, savepoint="before", tokens=False),
    ],
)
def test_an_entry_is_read_as_it_was_written_and_always_as_the_same_bytes(entry: Entry) -> None:
    data = encode(entry)
    assert decode(data) == entry
    assert encode(entry) == data


@given(
    st.dictionaries(
        st.text(max_size=4),
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.text()
            | st.floats(allow_nan=False, allow_infinity=False),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
            ),
            max_leaves=5,
        ),
        max_size=4,
    )
)
def test_any_position_that_is_json_comes_back(position: dict[str, Any]) -> None:
    entry = checkpoint_entry()
    first, *rest = entry.record.chains
    first = replace(first, sources=(SplitPosition(SplitId("a\udc80"), position, True),))
    entry = replace(entry, record=replace(entry.record, chains=(first, *rest)))
    assert decode(encode(entry)) == entry


def test_a_position_that_is_no_json_is_a_bug_of_its_source() -> None:
    entry = checkpoint_entry()
    first, *rest = entry.record.chains
    nan = replace(first, sources=(SplitPosition(SplitId("a"), {"at": float("nan")}),))
    with pytest.raises(ProtocolError, match="not JSON"):
        encode(replace(entry, record=replace(entry.record, chains=(nan, *rest))))


def test_a_record_says_what_the_specification_names() -> None:
    value = json.loads(encode(checkpoint_entry()))
    assert {
        "format_version", "job_id", "job_version", "generation", "checkpoint_id", "kind",
        "created_at", "plan_digest", "max_parallelism", "total_bytes", "checksum",
    } <= set(value)  # fmt: skip
    assert value["total_bytes"] == 2 * 40 + 2 * 10
    chain = value["chains"][2]
    assert chain["tasks"] == ["count-1", "files-1"]
    assert chain["key_groups"] == [64, 127]
    assert chain["finished"] is False


def test_a_log_holds_no_configurations_not_even_references_to_secrets() -> None:
    """M8: only a digest, which changes when a configuration does."""
    assert b"SECRET" not in encode(claim_entry()) + encode(checkpoint_entry())
    (chain, *rest) = GRAPH.chains
    assert chain.source is not None
    other = replace(chain.source.component, config={"password": "${OTHER}"})
    changed = replace(
        GRAPH, chains=(replace(chain, source=replace(chain.source, component=other)), *rest)
    )
    assert plan_of(changed).digest != plan_of(GRAPH).digest
    assert plan_of(changed).chains == plan_of(GRAPH).chains


@pytest.mark.parametrize("entry", [claim_entry(), checkpoint_entry()])
def test_every_changed_byte_is_noticed(entry: Entry) -> None:
    data = encode(entry)
    for at in range(len(data)):
        for change in (0x01, 0x20, 0x80):
            damaged = data[:at] + bytes([data[at] ^ change]) + data[at + 1 :]
            found = decode(damaged)
            assert isinstance(found, Unreadable), damaged[max(0, at - 20) : at + 20]
            assert found.defect in (Defect.BROKEN, Defect.FOREIGN)


def test_every_shortened_entry_is_noticed() -> None:
    data = encode(checkpoint_entry())
    assert all(isinstance(decode(data[:size]), Unreadable) for size in range(len(data)))
    assert defect(data[:-30]).why == "it is cut off or damaged: it is not whole JSON"
    assert defect(data[:-1]).defect is Defect.BROKEN
    assert defect(data + b" ").defect is Defect.BROKEN


@pytest.mark.parametrize("data", [b"", b"\x00" * 9, b"{}", b"[1]", b'{"checksum":"x"}', b"null"])
def test_a_foreign_file_is_told_from_a_broken_entry(data: bytes) -> None:
    assert defect(data) == Unreadable(Defect.FOREIGN, "it was not written by arkflow_ray")


def test_a_newer_format_is_told_from_a_broken_entry() -> None:
    """S9"""
    data = encode(checkpoint_entry())
    newer = defect(rewritten(data, format_version=FORMAT_VERSION + 1, chains="of another kind"))
    assert newer.defect is Defect.NEWER
    assert newer.why == "its format version is 2, this release reads up to 1"
    damaged = data.replace(b'"format_version":1', b'"format_version":2')
    assert defect(damaged).defect is Defect.BROKEN


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"chains": 3}, "chains is no list"),
        ({"generation": -1}, "generation is -1, not a count"),
        ({"generation": True}, "generation is True, not a count"),
        ({"kind": "weekly"}, "'weekly' is no RoundKind"),
        ({"entry": "note"}, "entry is 'note', neither a claim nor a checkpoint"),
        ({"chains": [{"chain": "a"}]}, "chains[0].key_groups is missing"),
        ({"job_id": None}, "job_id is no str"),
    ],
)
def test_an_entry_with_a_wrong_field_names_the_field(changes: dict[str, Any], why: str) -> None:
    found = defect(rewritten(encode(checkpoint_entry()), **changes))
    assert found == Unreadable(Defect.BROKEN, why)
