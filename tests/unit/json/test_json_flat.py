"""Flat lines: what is read without a parser is what the exact reader gives, else it is refused."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_ray.components.codecs import json_texts
from arkflow_ray.components.codecs.compiled_scan import Scan, ScanWhenItPays
from arkflow_ray.components.codecs.json_block import JsonDecoder
from arkflow_ray.components.codecs.json_flat import read_flat
from arkflow_ray.components.codecs.json_text import build_batch, parse_line
from arkflow_ray.components.codecs.json_texts import Lines
from arkflow_ray.components.codecs.json_types import (
    RowError,
    Scalar,
    StructType,
    admit,
    arrow_schema,
)

pytestmark = pytest.mark.thorough

ROOT = StructType({"id": Scalar.INT, "größe": Scalar.STRING, "ok": Scalar.BOOL, "x": Scalar.FLOAT})
GOOD = {
    "id": ["0", "-0", "7", "-12", "9007199254740993", f"{2**63 - 1}", f"-{2**63}"],
    "größe": ['""', '"x"', '"},{"', '": "', '"ü😀"', '"true, 1"', '"null"', '"a:b,c"'],
    "ok": ["true", "false"],
    "x": ["0", "1", "-0", "-2.5", "0.1", "1e5", "1E-7", "-0.0e+3", "9007199254740991", "0e400"],
}  # fmt: skip
EVIL = [
    "null", "01", "-01", "+1", "-", "", " 1", "1 ", "1.", ".5", "1.e5", "1e", "0x1F", "1_0", "--1",
    "9223372036854775808", "-9223372036854775809", "9007199254740992", "9007199254740993", "1e400",
    "nan", "NaN", "inf", "Infinity", "truee", "tru", "TRUE", "falsy", "fals", "t", "{}", "[]",
    '"', '"1"', '"\\n"', '"\t"', "1,2", "1 2", '1,"y":2', "00", "-00.5", "0.5.5", "1e5e5", "1d5",
    "true", "false", '"x"', "1.0", "1e3", "5", "1\r", "1\x00", '"x"1', '"x" ', ' "x"', '"x"}',
    '{"x"', "1}{", "1]",
]  # fmt: skip


def make_line(
    values: Sequence[str], comma: str, colon: str, names: Sequence[str] = tuple(ROOT.fields)
) -> str:
    pairs = zip(names, values, strict=True)
    return "{" + comma.join(f'"{n}"{colon}{v}' for n, v in pairs) + "}"


def values_of(evil_share: int) -> st.SearchStrategy[tuple[str, ...]]:
    def one(name: str) -> st.SearchStrategy[str]:
        good = st.sampled_from(GOOD[name])
        return st.one_of(*[good] * evil_share, st.sampled_from(EVIL)) if evil_share else good

    return st.tuples(*map(one, ROOT.fields))


class Flat(Protocol):
    """Reads lines as they are; they may hold anything but a line break."""

    def __call__(
        self, lines: Sequence[bytes], root: StructType = ROOT, kept: Sequence[str] | None = None
    ) -> pa.RecordBatch | None: ...


def flat_reader(scan: Scan | None) -> Flat:
    def flat(
        lines: Sequence[bytes], root: StructType = ROOT, kept: Sequence[str] | None = None
    ) -> pa.RecordBatch | None:
        text = b"\n".join(lines)
        sizes = np.array([len(line) for line in lines], np.int64)
        ends = np.cumsum(sizes + 1) - 1
        schema = arrow_schema(root)
        return read_flat(memoryview(text), ends - sizes, ends, schema, root, kept, scan)

    return flat


@pytest.fixture(scope="module", params=["numpy", "numba"])
def flat(request: pytest.FixtureRequest) -> Flat:
    """By either proof."""
    if request.param == "numpy":
        return flat_reader(None)
    pytest.importorskip("numba")
    from arkflow_ray.components.codecs.json_scan import scan

    return flat_reader(scan)


def exact(lines: Sequence[bytes]) -> pa.RecordBatch:
    """The rows by the exact reader; RowError if one is bad or would widen a type."""
    rows = [row for line in lines for row in parse_line(line)]
    for row in rows:
        if admit(ROOT, row, frozenset()) is not ROOT:
            raise RowError("wider")
    return build_batch(rows, ROOT)


def shaped(lines: Sequence[bytes]) -> bool:
    return all(
        line.startswith(b"{") and line.endswith(b"}") and b"\n" not in line for line in lines
    )


@pytest.mark.parametrize(("comma", "colon"), [(",", ":"), (", ", ": "), (",", ": "), (", ", ":")])
@settings(max_examples=40, deadline=None)
@given(rows=st.lists(values_of(0), min_size=1, max_size=8))
def test_flat_lines_are_read_as_the_exact_reader_reads_them(
    flat: Flat, comma: str, colon: str, rows: list[tuple[str, ...]]
) -> None:
    lines = [make_line(row, comma, colon).encode() for row in rows]
    batch = flat(lines)
    assert batch is not None
    batch.validate(full=True)
    assert repr(batch.to_pylist()) == repr(exact(lines).to_pylist())
    assert batch.schema.equals(exact(lines).schema)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rows=st.lists(values_of(6), min_size=1, max_size=5),
    style=st.sampled_from([(",", ":"), (", ", ": ")]),
    edits=st.lists(
        st.tuples(
            st.integers(0, 4),
            st.integers(0, 90),
            st.sampled_from(["", "put", "cut"]),
            st.sampled_from(list(b'"{}[],: 0159.eE-+tfn\\x\t\r\x00\xff\xc3')),
        ),
        max_size=2,
    ),
)
def test_whatever_is_not_flat_is_refused_and_never_read_wrong(
    flat: Flat,
    rows: list[tuple[str, ...]],
    style: tuple[str, str],
    edits: list[tuple[int, int, str, int]],
) -> None:
    edited = [bytearray(make_line(row, *style).encode()) for row in rows]
    for index, place, how, byte in edits:
        line = edited[index % len(edited)]
        place %= len(line) + (how == "put")
        if how == "put":
            line.insert(place, byte)
        elif how == "cut":
            del line[place]
        else:
            line[place] = byte
    lines = [bytes(line) for line in edited]
    if not shaped(lines):
        return
    text = b"\n".join(lines)
    try:
        text.decode()
    except UnicodeDecodeError:
        return
    batch = flat(lines)
    if batch is not None:
        assert repr(batch.to_pylist()) == repr(exact(lines).to_pylist())


@pytest.mark.parametrize("evil", EVIL)
@pytest.mark.parametrize("place", range(4))
def test_each_odd_value_is_refused_or_read_exactly(flat: Flat, evil: str, place: int) -> None:
    row = ["1", '"x"', "true", "1.5"]
    other = make_line(row, ",", ":").encode()
    row[place] = evil
    line = make_line(row, ",", ":").encode()
    for lines in ([line, other], [other, line]):
        batch = flat(lines)
        if batch is not None:
            assert repr(batch.to_pylist()) == repr(exact(lines).to_pylist())


def test_lines_with_their_fields_in_another_order_missing_twice_or_unknown_are_refused(
    flat: Flat,
) -> None:
    row = ("1", '"x"', "true", "1.5")
    names = list(ROOT.fields)
    line = make_line(row, ",", ":").encode()
    swapped = make_line((row[2], row[1], row[0], row[3]), ",", ":", ("ok", "größe", "id", "x"))
    twice = make_line(row, ",", ":", ("id", "größe", "ok", "ok"))
    unknown = make_line(row, ",", ":", ("id", "größe", "ok", "y"))
    missing = make_line(row[:3], ",", ":", names[:3])
    more = make_line((*row, "2"), ",", ":", (*names, "y"))
    for odd in (swapped, twice, unknown, missing, more):
        assert flat([line, odd.encode()]) is None
    both = flat([swapped.encode()] * 2)
    assert both is not None
    assert both.to_pylist()[1]["id"] == 1
    same_length = StructType({"ab": Scalar.INT, "cd": Scalar.INT})
    assert flat([b'{"ab":1,"cd":2}', b'{"cd":1,"ab":2}'], same_length) is None


@pytest.mark.parametrize("kept", [["id"], ["größe", "ok"], ["x"], ["ok", "id"]])
def test_columns_that_nobody_wants_are_proved_and_left_out(flat: Flat, kept: list[str]) -> None:
    lines = [make_line(("1", '"y"', "true", "1.5"), ",", ":").encode()] * 2
    batch = flat(lines, kept=kept)
    assert batch is not None
    assert batch.to_pylist() == exact(lines).select(kept).to_pylist()
    for place in range(4):
        row = ["1", '"y"', "true", "1.5"]
        row[place] = "nul"
        assert flat([lines[0], make_line(row, ",", ":").encode()], kept=kept) is None


def test_the_compiled_loop_is_loaded_once_when_it_pays() -> None:
    asked: list[Callable[[Scan], None]] = []

    def loop(*_: object) -> bool:
        return True

    scans = ScanWhenItPays(asked.append, after_bytes=100)
    assert [scans.of(60), scans.of(40)] == [None, None]
    assert not asked
    assert [scans.of(1), scans.of(50)] == [None, None]
    (loaded,) = asked
    loaded(loop)
    assert scans.of(1) is loop
    assert len(asked) == 1


def test_blocks_that_are_not_flat_are_soon_not_tried_any_more_but_for_some(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries: list[int] = []
    monkeypatch.setattr(json_texts, "read_flat", lambda *_: tries.append(1))
    decoder = JsonDecoder()
    decoder.decode(Lines(b'{"a":{"b":1}}\n' * 3))
    tries.clear()
    for _ in range(100):
        assert decoder.decode(Lines(b'{"a":{"b":1}}\n' * 3)).batch.num_rows == 3
    assert 3 <= len(tries) <= 8
