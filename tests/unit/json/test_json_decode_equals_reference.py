"""The block decoder against a row-by-row one that is too plain to be wrong."""

import json
import math
from collections.abc import Iterator
from typing import Any, NoReturn, cast

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from arkflow_ray.components.codecs import json_block
from arkflow_ray.components.codecs.json_block import JsonDecoder
from arkflow_ray.components.codecs.json_texts import Lines, Payloads

pytestmark = pytest.mark.thorough

Kind = Any
"""A type: `"int"` and other words, `("list", Kind)`, `("struct", {name: Kind})`."""

NAMES = ["a", "b", "c", "ä", ""]
TOKENS = [
    "0", "-0", "1", "7", "-12", "9007199254740992", "9007199254740993", "-9007199254740993",
    "9223372036854775807", "-9223372036854775808", "9223372036854775808", "1.0", "1e5", "1E-3",
    "2.50", "1e400", "1e-400", "1e300", "9007199254740993.0", "01", "1.", ".5", "+1", "-", "NaN",
    "-Infinity", "true", "false", "null", '"x"', '""', '"7"', '"2024-01-01"', '"\\u00e9\\n\\""',
    '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00"', '"\\u0000"', '"}n{"', '"null"', '"\\x"', '"ü"',
    '"\x01"', "{}", "[]", "[null]", "{", "]", "nul",
]  # fmt: skip

scalars = st.sampled_from(TOKENS)


def objects(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=4)
    return st.builds(
        lambda items, gap: "{" + ",".join(f'"{n}"{gap}:{gap}{v}' for n, v in items) + "}",
        pairs,
        st.sampled_from(["", "", " "]),
    )


values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda v: "[" + ",".join(v) + "]"), objects(inner)
    ),
    max_leaves=6,
)
tame = st.builds(
    lambda n, x, s, rest: f'{{"a":{n},"b":{x},"c":"{s}"{rest}}}',
    st.integers(-(2**55), 2**55),
    st.sampled_from(["1", "2.5", "null", "3"]),
    st.sampled_from(["x", "y\\n", "}", "é"]),
    st.sampled_from(["", "", "", ',"d":[1]', ',"d":{"e":1}', ',"d":null']),
)
odd = st.sampled_from(
    ["null", "1", "[1]", '"x"', '{"a":1} null', 'null{"a":1}', '{"a":1}{"a":2}', '{"a":1} x', "{",
     "}", '{"a":', "1}", '{"a":1}\x00', '\ufeff{"a":1}', '{"a":1,}', '{"a":1}null{"a":2}']
)  # fmt: skip
line = st.one_of(tame, tame, tame, objects(values), objects(scalars), odd)
raw_line = st.one_of(
    line.map(str.encode),
    line.map(str.encode),
    st.sampled_from([b'{"a":"\xff"}', b'{"\xff":1}', b"", b"  ", b'\t{"a":1} \r']),
)


class RefusedError(Exception):
    pass


def ref_parse(raw: bytes) -> dict[str, Any]:
    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({n for n, _ in items}) != len(items):
            raise RefusedError
        return dict(items)

    def refuse(_: str) -> NoReturn:
        raise RefusedError

    try:
        row = json.loads(
            raw.decode().strip(" \t\r\n"),
            object_pairs_hook=pairs,
            parse_int=lambda t: ("int", t),
            parse_float=lambda t: ("float", t),
            parse_constant=refuse,
        )
        json.dumps(row, ensure_ascii=False).encode()
    except (ValueError, RefusedError):
        raise RefusedError from None
    if not isinstance(row, dict):
        raise RefusedError
    return row


def ref_kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, str):
        return "string"
    kind, text = cast("tuple[str, str]", value)
    if kind == "int" and not -(2**63) <= int(text) < 2**63:
        raise RefusedError
    if kind == "float" and math.isinf(float(text)):
        raise RefusedError
    return kind


def ref_widen(known: Kind, value: Any) -> Kind:
    if value is None:
        return known
    if isinstance(value, dict):
        if known != "null" and known[0] != "struct":
            raise RefusedError
        fields = {} if known == "null" else dict(known[1])
        for name, inner in value.items():
            fields[name] = ref_widen(fields.get(name, "null"), inner)
        return ("struct", fields)
    if known[0] == "struct":
        raise RefusedError
    if isinstance(value, list):
        item = known[1] if known[0] == "list" else known
        for inner in value:
            item = ref_widen(item, inner)
        return ("list", item)
    kind = ref_kind(value)
    if known[0] == "list":
        return ("list", ref_widen(known[1], value))
    if known == "float" and kind == "int":
        if abs(int(value[1])) > 2**53:
            raise RefusedError
        return "float"
    if known in ("null", kind):
        return kind
    return "float" if {known, kind} == {"int", "float"} else "string"


def ref_value(kind: Kind, value: Any) -> Any:
    if value is None:
        return None
    if kind[0] == "struct":
        return {n: ref_value(t, value.get(n)) for n, t in kind[1].items()}
    if kind[0] == "list":
        items = value if isinstance(value, list) else [value]
        return [ref_value(kind[1], inner) for inner in items]
    text = value[1] if isinstance(value, tuple) else value
    if kind == "int":
        return int(text)
    if kind == "float":
        if value[0] == "int" and abs(int(text)) > 2**53:
            raise RefusedError
        return float(text)
    if kind == "string" and isinstance(text, bool):
        return "true" if text else "false"
    return text


def ref_admit(root: Kind, raw: bytes) -> tuple[Kind, dict[str, Any]]:
    row = ref_parse(raw)
    widened = ref_widen(root, row)
    ref_value(widened, row)
    return widened, row


def ref_form(kind: Kind) -> Any:
    if kind[0] == "struct":
        return ["struct", [[n, ref_form(t)] for n, t in kind[1].items()]]
    return ["list", ref_form(kind[1])] if kind[0] == "list" else kind


def cut(items: list[bytes], sizes: list[int]) -> Iterator[list[bytes]]:
    at = 0
    for size in sizes:
        yield items[at : at + size]
        at += size
    yield items[at:]


def same(got: object, expected: object) -> bool:
    return repr(got) == repr(expected)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(raw_line, max_size=40),
    st.lists(st.integers(1, 12), max_size=6),
    st.sampled_from([1, 4, 64]),
    st.sampled_from([b"\n", b"\r\n"]),
    st.booleans(),
)
def test_any_cut_of_lines_gives_the_rows_and_bad_rows_of_a_row_by_row_decode(
    lines: list[bytes], sizes: list[int], piece: int, end: bytes, last_break: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_block, "PIECE_TEXTS", piece)
        decoder = JsonDecoder()
        root: Kind = ("struct", {})
        for block_lines in cut(lines, sizes):
            block = end.join(block_lines) + (end if last_break else b"")
            texts = Lines(block)
            kept = [line for line in block_lines if line.strip(b" \t\r")]
            assert len(texts) == len(kept)
            while len(texts):
                decoded = decoder.decode(texts)
                assert 0 < decoded.consumed <= len(texts)
                taken, kept = kept[: decoded.consumed], kept[decoded.consumed :]
                good, bad = [], []
                for i, line in enumerate(taken):
                    try:
                        root, row = ref_admit(root, line)
                        good.append(row)
                    except RefusedError:
                        bad.append(i)
                assert [b.index for b in decoded.bad] == bad
                expected = [ref_value(root, row) for row in good]
                assert same(decoded.batch.to_pylist(), expected)
                decoded.batch.validate(full=True)
                assert decoder.form() == ref_form(root)[1]
                texts = texts.part(decoded.consumed, len(texts))
            assert kept == []


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(raw_line, max_size=25), st.sampled_from([1, 64]))
def test_payloads_of_one_object_decode_as_lines_do_and_late_inexact_integers_are_bad(
    raws: list[bytes], piece: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_block, "PIECE_TEXTS", piece)
        raws = [r for r in raws if not r.startswith((b'{"a":1}{', b'{"a":1}null{'))]
        decoder = JsonDecoder()
        decoded = decoder.decode_all(Payloads(pa.array(raws, pa.binary())))
    root: Kind = ("struct", {})
    rows, bad = [], []
    for i, raw in enumerate(raws):
        if not raw.strip(b" \t\r"):
            continue
        try:
            root, row = ref_admit(root, raw)
            rows.append((i, row))
        except RefusedError:
            bad.append(i)
    expected = []
    for i, row in rows:
        try:
            expected.append(ref_value(root, row))
        except RefusedError:
            bad.append(i)
    assert [b.index for b in decoded.bad] == sorted(bad)
    assert same(decoded.batch.to_pylist(), expected)
    assert decoder.form() == ref_form(root)[1]


BASE = '{"a":1,"b":1.5,"c":"x","d":[1.5],"e":{"f":null}}'
PLACES = [
    '{"a":%s}',
    '{"b":%s}',
    '{"c":%s}',
    '{"d":[%s]}',
    '{"d":%s}',
    '{"e":{"f":%s}}',
    '{"e":%s}',
]
BESIDE = [
    '{"a":1}{"a":2}', '{"a":1} {"a":2}', '{"a":1}null{"a":2}', '{"a":1} null {"a":2}',
    '{"a":1,"a":1}',
    '{"a":1}}', '{{"a":1}', '{"e":{"f":null,"f":null}}', '{"new":1}', '{"e":{"new":1}}', "{}",
    '{"c":"}null{"}', '{"a":1},{"a":1}', '{"a":1 "b":1}', '{"a":1}\x00{"a":1}',
]  # fmt: skip


@pytest.mark.parametrize("odd", [*BESIDE, *(place % token for place in PLACES for token in TOKENS)])
def test_one_odd_line_among_many_known_ones_is_read_as_by_the_row_by_row_decode(
    monkeypatch: pytest.MonkeyPatch, odd: str
) -> None:
    monkeypatch.setattr(json_block, "PIECE_TEXTS", 1)
    decoder = JsonDecoder()
    decoder.decode(Lines(BASE.encode()))
    lines = [BASE.encode(), odd.encode(), BASE.encode()]
    root, _ = ref_admit(("struct", {}), lines[0])
    good, bad = [], []
    for i, raw in enumerate(lines):
        try:
            root, row = ref_admit(root, raw)
            good.append(row)
        except RefusedError:
            bad.append(i)
    decoded = decoder.decode(Lines(b"\n".join(lines)))
    assert [b.index for b in decoded.bad] == bad
    assert same(decoded.batch.to_pylist(), [ref_value(root, row) for row in good])
    assert decoder.form() == ref_form(root)[1]


def test_a_batch_ends_before_the_text_that_would_round_an_integer_not_at_an_earlier_turn() -> None:
    decoder = JsonDecoder()
    decoder.decode(Lines(b'{"a":1,"b":1}'))
    texts = Lines(b'{"b":1.5}\n{"a":9007199254740993}\n{"a":2}\n{"a":2.5}\n{"a":3}')
    first = decoder.decode(texts)
    assert (first.consumed, first.bad) == (3, [])
    assert first.batch.column("a").to_pylist() == [None, 9007199254740993, 2]
    second = decoder.decode(texts.part(3, 5))
    assert second.batch.column("a").to_pylist() == [2.5, 3.0]


def test_payloads_between_others_and_over_lines_keep_their_values() -> None:
    raws = [f'{{"n":{i},"s":"{"x" * (i % 7)}"}}'.encode() for i in range(500)]
    column = pa.array([b"no", *raws, b"no"], pa.binary()).slice(1, 500)
    decoded = JsonDecoder().decode_all(Payloads(column))
    assert decoded.batch.to_pylist() == [json.loads(raw) for raw in raws]
    raws[250] = b'{"n":250,\n"s":"a"}\n{"n":-1,"s":"b"}'
    decoded = JsonDecoder().decode_all(Payloads(pa.array(raws, pa.binary())))
    assert decoded.batch.num_rows == 501
    assert decoded.batch.column("n").to_pylist()[249:253] == [249, 250, -1, 251]


def test_the_fast_path_is_taken_where_nothing_is_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = JsonDecoder()
    block = b'{"a":1,"s":{"x":[1.5]},"n":null}\n' * 500
    decoder.decode(Lines(block))
    monkeypatch.setattr(Lines, "parse", lambda *_: pytest.fail("read text by text"))
    assert decoder.decode(Lines(block)).batch.num_rows == 500
