"""Entries of a job's log as bytes: claims and checkpoint records, with format, checksum (M1, S9).

One entry is one JSON object on one line, keys sorted, no spaces: equal entries are equal bytes.
`checksum` is the SHA-256 of the same object without it. Whatever else lies where an entry should
be is told apart: a foreign file, a newer format, a broken entry.
"""

import hashlib
import json
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeVar

from arkflow_kernel.envelope import RoundKind
from arkflow_kernel.errors import ProtocolError
from arkflow_kernel.ids import NO_CHECKPOINT, ChainId, CheckpointId, Generation, JobId, WallMs
from arkflow_kernel.job_plan_record import JobPlan, plan_json, planned_json, read_planned
from arkflow_kernel.record_json import Fields, Json, MalformedError, chain_json, read_chain
from arkflow_kernel.snapshot import (
    ChainSnapshot,
    CheckpointPhases,
    CheckpointRecord,
    RestoreKind,
)

FORMAT_VERSION: Final = 1
"""Version of the entries that this release writes; it reads no newer one (S9)."""

_E = TypeVar("_E", bound=Enum)
_MARK: Final = "job log"
_PREFIX: Final = b'{"arkflow":"job log",'  # the first key in the alphabet of all that are written


@dataclass(frozen=True, slots=True)
class Base:
    """Where a claim starts because a user said so; later claims fall back to it.

    `checkpoint` goes with CHECKPOINT, `savepoint` (a name in the job's
    folder, or a URL) with SAVEPOINT.
    """

    kind: RestoreKind
    checkpoint: CheckpointId = NO_CHECKPOINT
    savepoint: str = ""


@dataclass(frozen=True, slots=True)
class ClaimEntry:
    """A claim: who begins which generation of a job, with which plan (M1).

    `last_checkpoint` is the highest number that a record had before it.
    """

    job: JobId
    job_version: int
    generation: Generation
    nonce: str
    coordinator: str
    created_at: WallMs
    last_checkpoint: CheckpointId
    plan: JobPlan
    base: Base | None = None


@dataclass(frozen=True, slots=True)
class CheckpointEntry:
    """A checkpoint record as the log holds it: the round, and the plan that it is a cut of."""

    job: JobId
    job_version: int
    nonce: str
    created_at: WallMs
    plan: JobPlan
    record: CheckpointRecord

    @property
    def objects(self) -> dict[str, int]:
        """Every object that the record lists, with its bytes: those are live (M5)."""
        return listed_objects(self.record.chains)

    @property
    def total_bytes(self) -> int:
        """Bytes of all of them."""
        return sum(self.objects.values())


class Defect(Enum):
    """Why a file is no entry that can be read."""

    FOREIGN = "foreign"
    NEWER = "newer"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file that lies where an entry should be. `why` says what is wrong with it."""

    defect: Defect
    why: str


Entry = ClaimEntry | CheckpointEntry


def listed_objects(chains: tuple[ChainSnapshot, ...]) -> dict[str, int]:
    """Names and bytes of the objects that chains list: of their states, and of their tokens."""
    found = {ref.name: ref.size for chain in chains for ref in chain.objects}
    for chain in chains:
        for lane in chain.lanes:
            for token in lane.tokens:
                found.update({each.object.name: each.object.size for each in token.objects})
    return found


def encode(entry: Entry) -> bytes:
    """The bytes of an entry: a function of the entry alone."""
    body = _claim_json(entry) if isinstance(entry, ClaimEntry) else _checkpoint_json(entry)
    return _sealed(body)


def decode(data: bytes) -> Entry | Unreadable:
    """The entry of a file's bytes, or why there is none."""
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict) or value.get("arkflow") != _MARK:
        if data.startswith(_PREFIX):
            return Unreadable(Defect.BROKEN, "it is cut off or damaged: it is not whole JSON")
        return Unreadable(Defect.FOREIGN, "it was not written by arkflow_ray")
    if (damage := _damage(data, value)) is not None:
        return Unreadable(Defect.BROKEN, damage)
    version = value.get("format_version")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        return Unreadable(
            Defect.NEWER,
            f"its format version is {version}, this release reads up to {FORMAT_VERSION}",
        )
    try:
        return _read(Fields(value, ""))
    except MalformedError as error:
        return Unreadable(Defect.BROKEN, str(error))


def _sealed(body: Json) -> bytes:
    try:
        checksum = hashlib.sha256(_canonical(body)).hexdigest()
        return _canonical({**body, "checksum": checksum}) + b"\n"
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"a position or name of a checkpoint is not JSON: {error}") from error


def _canonical(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.encode("ascii")


def _damage(data: bytes, value: dict[str, Any]) -> str | None:
    """What is wrong with the bytes of one of our entries, whatever its version; None: nothing."""
    body = {name: each for name, each in value.items() if name != "checksum"}
    try:
        if hashlib.sha256(_canonical(body)).hexdigest() != value.get("checksum"):
            return "its checksum is wrong: it was damaged or changed after it was written"
        if _canonical(value) + b"\n" != data:
            return "its bytes are not those that were written, though they mean the same"
    except (TypeError, ValueError):  # NaN, or a name that is no text
        return "it holds numbers that are never written"
    return None


def _header(entry: Entry, generation: Generation, kind: str) -> Json:
    return {
        "arkflow": _MARK,
        "entry": kind,
        "format_version": FORMAT_VERSION,
        "job_id": entry.job,
        "job_version": entry.job_version,
        "generation": generation,
        "nonce": entry.nonce,
        "created_at": entry.created_at,
        "plan_digest": entry.plan.digest,
        "max_parallelism": entry.plan.max_parallelism,
    }


def _claim_json(claim: ClaimEntry) -> Json:
    base = claim.base
    return {
        **_header(claim, claim.generation, "claim"),
        **plan_json(claim.plan),
        "coordinator": claim.coordinator,
        "last_checkpoint": claim.last_checkpoint,
        "base": None
        if base is None
        else {
            "kind": base.kind.value,
            "checkpoint": base.checkpoint,
            "savepoint": base.savepoint,
        },
    }


def _checkpoint_json(entry: CheckpointEntry) -> Json:
    record = entry.record
    snapshots = {chain.chain: chain for chain in record.chains}
    return {
        **_header(entry, record.generation, "checkpoint"),
        "checkpoint_id": record.checkpoint,
        "kind": record.kind.value,
        "savepoint": record.savepoint,
        "phases": {
            "acknowledged_ms": record.phases.acknowledged_ms,
            "new_bytes": record.phases.new_bytes,
            "pause_ms": record.phases.pause_ms,
            "sealed_ms": record.phases.sealed_ms,
            "upload_ms": record.phases.upload_ms,
        },
        "total_bytes": entry.total_bytes,
        "chains": [
            {**planned_json(chain), **chain_json(snapshots[chain.chain])}
            for chain in entry.plan.chains
        ],
    }


def _read(fields: Fields) -> Entry:
    kind = fields.text("entry")
    plan = JobPlan(
        fields.text("plan_digest"),
        fields.number("max_parallelism"),
        fields.each("chains", read_planned),
    )
    if kind == "claim":
        return ClaimEntry(
            job=JobId(fields.text("job_id")),
            job_version=fields.number("job_version"),
            generation=Generation(fields.number("generation")),
            nonce=fields.text("nonce"),
            coordinator=fields.text("coordinator"),
            created_at=WallMs(fields.number("created_at")),
            last_checkpoint=CheckpointId(fields.number("last_checkpoint")),
            plan=plan,
            base=fields.optional("base", _read_base),
        )
    if kind != "checkpoint":
        raise MalformedError(f"entry is '{kind}', neither a claim nor a checkpoint")
    return CheckpointEntry(
        job=JobId(fields.text("job_id")),
        job_version=fields.number("job_version"),
        nonce=fields.text("nonce"),
        created_at=WallMs(fields.number("created_at")),
        plan=plan,
        record=_read_record(fields),
    )


def _read_record(fields: Fields) -> CheckpointRecord:
    def chain(each: Fields) -> ChainSnapshot:
        planned = read_planned(each)
        return read_chain(each, ChainId(planned.chain), planned.tasks)

    phases = fields.mapping("phases")
    return CheckpointRecord(
        generation=Generation(fields.number("generation")),
        checkpoint=CheckpointId(fields.number("checkpoint_id")),
        kind=_member(RoundKind, fields.text("kind")),
        chains=fields.each("chains", chain),
        savepoint=fields.optional_text("savepoint"),
        phases=CheckpointPhases(
            phases.number("acknowledged_ms"),
            phases.number("new_bytes"),
            phases.number("pause_ms"),
            phases.number("sealed_ms"),
            phases.number("upload_ms"),
        ),
    )


def _read_base(fields: Fields) -> Base:
    return Base(
        _member(RestoreKind, fields.text("kind")),
        CheckpointId(fields.number("checkpoint")),
        fields.text("savepoint"),
    )


def _member(kind: type[_E], value: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        raise MalformedError(f"'{value}' is no {kind.__name__}") from None


__all__ = [
    "FORMAT_VERSION",
    "Base",
    "CheckpointEntry",
    "ClaimEntry",
    "Defect",
    "Entry",
    "Unreadable",
    "decode",
    "encode",
    "listed_objects",
]
