"""Files as located trees: what parses, where it stands, and what is refused where."""

import json
import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkflow_ray.config.issues import LoadError, Location
from arkflow_ray.config.json_tree import parse_json
from arkflow_ray.config.toml_tree import parse_toml
from arkflow_ray.config.tree import (
    FILE_BYTES_MAX,
    TreeBuilder,
    TreeError,
    find,
    locate,
    plain,
    read_tree,
)
from arkflow_ray.config.yaml_tree import parse_yaml
from tests.unit.config.sample_files import Write

pytestmark = pytest.mark.thorough


def yaml_of(text: str) -> Any:
    return plain(parse_yaml(text, TreeBuilder()))


def refusal(write: Write, text: str | bytes, name: str = "a.yaml") -> str:
    path: Path = write(text, name)
    with pytest.raises(LoadError) as caught:
        read_tree(path)
    return str(caught.value).replace(str(path), "F")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("NO", "NO"),
        ("yes", "yes"),
        ("on", "on"),
        ("010", "010"),
        ("-007", "-007"),
        ("0", 0),
        ("-1", -1),
        ("+12", 12),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        (".5", 0.5),
        ("1.", 1.0),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("007.5", 7.5),
        (".inf", math.inf),
        ("-.Inf", -math.inf),
        ("inf", "inf"),
        ("~", None),
        ("null", None),
        ("NULL", None),
        ("nUll", "nUll"),
        ("true", True),
        ("FALSE", False),
        ("tRue", "tRue"),
        ("2024-01-01", "2024-01-01"),
        ("12:30:45", "12:30:45"),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("! 1", "1"),
        ("!!float 1", 1.0),
        ("|\n  a\n  b\n", "a\nb\n"),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text: str, value: Any) -> None:
    found = yaml_of(f"a: {text}")["a"]
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_is_a_float() -> None:
    assert math.isnan(yaml_of("a: .nan")["a"])


def test_anchors_aliases_and_merges_work() -> None:
    text = "a: &x {b: 1, c: 2}\nd: {<<: *x, c: 3}\ne: {<<: [{b: 8}, *x]}\nf: *x\n"
    value = yaml_of(text)
    assert value["d"] == {"b": 1, "c": 3}
    assert value["e"] == {"b": 8, "c": 2}
    assert value["f"] == {"b": 1, "c": 2}


def test_a_quoted_merge_key_is_an_ordinary_key() -> None:
    assert yaml_of('a: {"<<": {b: 1}}') == {"a": {"<<": {"b": 1}}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a:\n\tb: 1\n", "F:2:1: a tab; YAML is indented and separated by spaces only"),
        ("a: 1\n---\nb: 2\n", "F:2:1: a second document; put everything into one"),
        ("a: [1\nb: 2]: 3", "F:2:2: not valid YAML"),
        ("a: *b\n", "F:1:4: no anchor '&b' is complete above this"),
        ("a: &b [*b]\n", "F:1:8: no anchor '&b' is complete above this"),
        ("? [a]\n: b\n", "F:1:3: a key must be text"),
        ("a: {<<: 3}", "F:1:5: `<<` merges a mapping or a list of mappings"),
        ("a: !!binary aGk=", "F:1:4: the tag 'tag:yaml.org,2002:binary' is not supported"),
        ("a: !periodic {secs: 1}", "F:1:4: the tag '!periodic' is not supported"),
        ("a: !!int x", "F:1:4: the text does not fit the tag '!!int'"),
        ("a: 18446744073709551616", "F:1:4: an integer must lie in [-2^63, 2^64)"),
        ("a: " + "9" * 6_000, "F:1:4: an integer must lie in [-2^63, 2^64)"),
        ('a: "\\ud83d"', "F:1:4: half of a surrogate pair is not text"),
        ("a: \x07", "F:1:4: the character"),
        ('a: 1\nb: "x\\U00110000"', "F:2:6: an escape above"),
        ("a: x\0y", "F:1:5: a NUL character; the file is not text"),
        (b"a: x\nb: \xff\n", "F:2:4: byte 0xff is not valid UTF-8"),
        ("", "F:1:1: the file is empty; it needs `streams:` or `jobs:`"),
        ("# only a comment\n", "F:1:1: the file is empty"),
        ("---\n", "F:1:1: the file is empty"),
        (" \n\n", "F:1:1: the file is empty"),
    ],
)
def test_bad_yaml_is_refused_with_its_place(write: Write, text: str | bytes, told: str) -> None:
    assert refusal(write, text).startswith(told)


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_deep_nesting_is_refused(write: Write, name: str) -> None:
    assert "nested deeper than 64 levels" in refusal(write, "[" * 500, name)


def test_deep_nesting_by_aliases_is_refused(write: Write) -> None:
    levels = "a0: &a0 [1]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 80))
    assert "nested deeper than 64 levels" in refusal(write, levels)


def test_an_alias_bomb_is_refused(write: Write) -> None:
    tens = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    tens += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    assert "more than 200,000 values, aliases expanded" in refusal(write, "\n".join(tens))


def test_duplicate_keys_are_all_reported_with_both_lines(write: Write) -> None:
    path = write("a: 1\nb: {c: 1, c: 2}\na: 3\n")
    _, issues = read_tree(path)
    assert [str(i).replace(str(path), "F") for i in issues] == [
        "F:2:11: the key 'c' stands twice; it is first at line 2",
        "F:3:1: the key 'a' stands twice; it is first at line 1",
    ]


def test_duplicate_keys_are_found_in_json_and_toml(write: Write) -> None:
    _, issues = read_tree(write('{"a": 1,\n "a": 2}', "a.json"))
    assert [i.message for i in issues] == ["the key 'a' stands twice; it is first at line 1"]
    told = "the key 'a' stands twice; it is first at line 1"
    assert refusal(write, "a = 1\nb = 2\na = 3\n", "a.toml") == f"F:3:1: {told}"
    told = "the key 'x.y' stands twice; it is first at line 2"
    assert refusal(write, "\n[x.y]\n[z]\n[x.y]\n", "a.toml") == f"F:4:1: {told}"


@pytest.mark.parametrize("text", [b"\xef\xbb\xbfa:\r\n  - b: 1\r\n", b"a:\n  - b: 1\n"])
def test_a_byte_order_mark_and_crlf_change_no_place(write: Write, text: bytes) -> None:
    root, _ = read_tree(write(text))
    assert plain(root) == {"a": [{"b": 1}]}
    assert locate(root, ("a", 0, "b")) == Location(2, 8)


def test_crlf_changes_no_place_in_json_and_toml(write: Write) -> None:
    root, _ = read_tree(write(b'{\r\n  "a": [1,\r\n 2]}', "a.json"))
    assert locate(root, ("a", 1)) == Location(3, 2)
    root, _ = read_tree(write(b'\xef\xbb\xbfa = """x\r\ny"""\r\nb = 2\r\n', "a.toml"))
    assert plain(root) == {"a": "x\ny", "b": 2}
    assert locate(root, ("b",)) == Location(3, 5)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": NaN}', "F:1:7: not valid JSON: a value was expected"),
        ('{"a": 01}', "F:1:8: not valid JSON: not a number of JSON"),
        ('{"a": 1,}', "F:1:9: not valid JSON: a key in double quotes was expected"),
        ('{"a": 1} 2', "F:1:10: not valid JSON: text after the end of the value"),
        ('{"a" 1}', "F:1:6: not valid JSON: ':' was expected"),
        ('{"a": [1 2]}', "F:1:10: not valid JSON: ',' or ']' was expected"),
        ('{"a": "x}', "F:1:7: not valid JSON: text without its end"),
        ('{"a": "\t"}', "F:1:7: not valid JSON: text without its end"),
        ('{"a":\n', "F:2:1: not valid JSON: a value was expected"),
        ('{"a": "\\ud83d"}', "F:1:7: half of a surrogate pair is not text"),
        ('{"a": 99999999999999999999}', "F:1:7: an integer must lie in"),
    ],
)
def test_bad_json_is_refused_with_its_place(write: Write, text: str, told: str) -> None:
    assert refusal(write, text, "a.json").startswith(told)


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(json_values, st.sampled_from([None, 0, 2]), st.booleans())
def test_json_means_what_the_standard_library_says(value: Any, indent: Any, ascii: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    assert plain(parse_json(text, TreeBuilder())) == json.loads(text)


TOML = """
x = 1 # a comment with [brackets]
"q.r" = { a = [1, 2, { b = 'it''s' }], c.d = "]" }
[logging]
level = "info"
[[streams]]
id = "a"
input = {type = "generate", context = \"\"\"
[not a table]
{"a": 1}\"\"\"}
[streams.pipeline]
thread_num = 1
[[streams.pipeline.processors]]
type = "sql"
[[streams.pipeline.processors]]
a.b = [ 1,
  2, # two
  {q = 3}]
[[streams]]
id = "b"
""".replace("'it''s'", "'its'")


def test_toml_means_what_tomllib_says() -> None:
    assert plain(parse_toml(TOML, TreeBuilder())) == tomllib.loads(TOML)


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("x",), 2),
        (("q.r", "a", 2, "b"), 3),
        (("q.r", "c", "d"), 3),
        (("logging", "level"), 5),
        (("streams", 0, "id"), 7),
        (("streams", 0, "input", "context"), 8),
        (("streams", 0, "pipeline", "thread_num"), 12),
        (("streams", 0, "pipeline", "processors", 0, "type"), 14),
        (("streams", 0, "pipeline", "processors", 1), 15),
        (("streams", 0, "pipeline", "processors", 1, "a", "b", 2, "q"), 18),
        (("streams", 1), 19),
        (("streams", 1, "id"), 20),
    ],
)
def test_toml_values_know_their_line(path: tuple[str | int, ...], line: int) -> None:
    root = parse_toml(TOML, TreeBuilder())
    assert find(root, path) is not None
    assert locate(root, path).line == line


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a = \n", "F:1:5: not valid TOML: invalid value"),
        ("a = 2020-01-01\n", "F:1:5: no field takes a date or a time"),
        ("a = {b=1", "F:1:9: not valid TOML"),
        ("a = " + "[" * 100 + "]" * 100, "F:1:69: nested deeper than 64 levels"),
        ("a = " + "[" * 9_000, "F:1:1: nested deeper than 64 levels"),
        ("a = " + "9" * 6_000, "F:1:1: nested deeper than 64 levels, or a number"),
        ("a = 99999999999999999999", "F:1:5: an integer must lie in"),
        ("[a]\nb = 1\n[a.b]\n", "F:3:"),
    ],
)
def test_bad_toml_is_refused_with_its_place(write: Write, text: str, told: str) -> None:
    assert refusal(write, text, "a.toml").startswith(told)


def place_of_refusal(parse: Any, text: str) -> Location:
    try:
        parse(text, TreeBuilder())
    except TreeError as error:
        return error.at
    return Location(1, 1)


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab:[]{},\"'#=\n\t -.&*<!|1\\\x85é", max_size=30))
def test_any_text_gives_a_tree_or_a_located_refusal(text: str) -> None:
    for parse in (parse_yaml, parse_json, parse_toml):
        line, column = place_of_refusal(parse, text)
        assert line >= 1
        assert column >= 1


def test_the_extension_decides_without_regard_to_case(write: Write) -> None:
    root, _ = read_tree(write("a: 1", "A.YML"))
    assert plain(root) == {"a": 1}
    root, _ = read_tree(write('{"a": 1}', "A.JSON"))
    assert plain(root) == {"a": 1}
    assert "the format cannot be determined" in refusal(write, "a: 1", "a.ini")
    assert "the format cannot be determined" in refusal(write, "a: 1", "noextension")


def test_files_that_cannot_be_read_are_refused_in_a_sentence(tmp_path: Path, write: Write) -> None:
    with pytest.raises(LoadError, match="there is no such file"):
        read_tree(tmp_path / "missing.yaml")
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    with pytest.raises(LoadError, match="is a folder"):
        read_tree(folder)
    with pytest.raises(LoadError, match="is larger than 16 MiB"):
        read_tree(write(b"#" * (FILE_BYTES_MAX + 1)))
    with pytest.raises(LoadError, match="cannot be read"):
        read_tree(tmp_path / ("x" * 400 + ".yaml"))


def test_a_path_that_does_not_exist_is_shown_at_its_nearest_parent() -> None:
    root = parse_yaml("a:\n  - b: 1\n    c: 2\n", TreeBuilder())
    assert locate(root, ("a", 0, "missing", "deeper")) == Location(2, 5)
    assert locate(root, ("zzz",)) == Location(1, 1)
    assert locate(root, ("a",)) == Location(1, 1)
    assert locate(root, ("a", 0, "c"), key=True) == Location(3, 5)
    assert locate(root, ("a", 0, "c")) == Location(3, 8)
