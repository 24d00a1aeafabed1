"""References in values: what they give, what they never give away, and secrets (M8)."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from arkflow_kernel.errors import ConfigError
from arkflow_ray.config.issues import Location
from arkflow_ray.config.references import Redactor, Resolution, resolve_references
from arkflow_ray.config.secrets import Secret, resolve_secrets, secret_environment
from arkflow_ray.config.tree import Entry, Node, plain

AT = Location(1, 1)
ENV = {
    "A": "alpha",
    "EMPTY": "",
    "NESTED": "${env:A}",
    "LIKE": "${secret:S}",
    "DOLLAR": "pay$$",
    "ARKFLOW_SECRET_S": "hunter22",
    "ARKFLOW_SECRET_EMPTY": "",
}


def resolved(text: str, env: dict[str, str] = ENV) -> Resolution:
    """`text` as the password of a stream's input, where secrets may stand."""
    node = Node(text, AT)
    for key in ("password", "input"):
        node = Node({key: Entry(AT, node)}, AT)
    root = Node({"streams": Entry(AT, Node([node], AT))}, AT)
    return resolve_references(root, env)


def text_of(resolution: Resolution) -> Any:
    return plain(resolution.root)["streams"][0]["input"]["password"]


def final(text: str, env: dict[str, str] = ENV) -> Any:
    result = resolved(text, env)
    assert result.issues == []
    return resolve_secrets(text_of(result), env)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${env:A}", "alpha"),
        ("x${env:A}-${env:A}y", "xalpha-alphay"),
        ("${env:EMPTY}", ""),
        ("${env:EMPTY:-d}", "d"),
        ("${env:UNSET:-d}", "d"),
        ("${env:UNSET:-}", ""),
        ("${env:UNSET:-a:-b}", "a:-b"),
        ("${env:A:-d}", "alpha"),
        ("${env:NESTED}", "${env:A}"),
        ("$${env:A}", "${env:A}"),
        ("$$${env:A}", "$${env:A}"),
        ("${A}", "${A}"),
        ("${other:A}", "${other:A}"),
        ("${env:A", "${env:A"),
        ("$$", "$$"),
        ("${secret:S}", "hunter22"),
        ("a${secret:S}b${secret:S}", "ahunter22bhunter22"),
        ("${secret:UNSET:-d}", "d"),
        ("${secret:EMPTY:-d}", "d"),
        ("${secret:EMPTY}", ""),
        ("$${secret:S}", "${secret:S}"),
        ("$$${secret:S}", "$${secret:S}"),
        ("${env:LIKE}", "${secret:S}"),
        ("${env:UNSET:-${secret:S}}", "${secret:S}"),
        ("${env:DOLLAR}${secret:S}", "pay$$hunter22"),
        ("${env:DOLLAR}{secret:S}", "pay$${secret:S}"),
    ],
)
def test_references_give_their_values_once(text: str, value: str) -> None:
    assert final(text) == value


pieces = st.sampled_from(
    ["$", "$$", "{", "}", "${", "secret:", "env:", "S", "${secret:S}", "${env:V}", "$${", "a"]
)


@settings(max_examples=80, deadline=None)
@given(st.lists(pieces, max_size=7), st.lists(pieces, max_size=5))
def test_what_a_reference_gives_is_never_read_again(text: list[str], value: list[str]) -> None:
    """The two steps together give what one left-to-right pass gives."""
    env = {"V": "".join(value), "ARKFLOW_SECRET_S": "s3"}
    source = "".join(text)
    result = resolved(source, env)
    if result.issues:
        return
    assert resolve_secrets(text_of(result), env) == one_pass(source, env)


def one_pass(text: str, env: dict[str, str]) -> str:
    known = {"${secret:S}": env["ARKFLOW_SECRET_S"], "${env:V}": env["V"], "$${": "${"}
    done = ""
    while text:
        for token, value in known.items():
            if text.startswith(token):
                done, text = done + value, text[len(token) :]
                break
        else:
            done, text = done + text[0], text[1:]
    return done


def test_secrets_stay_references_until_they_are_resolved() -> None:
    result = resolved("${env:A}:${secret:S}")
    assert text_of(result) == "alpha:${secret:S}"


def test_a_file_gives_its_text_without_trailing_newlines(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xef\xbb\xbfline 1\nline 2\r\n\n")
    assert final(f"[${{file:{path}}}]") == "[line 1\nline 2]"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:NOPE}", "environment variable 'NOPE' is not set (reference: ${env:NOPE})"),
        ("${secret:N}", "environment variable 'ARKFLOW_SECRET_N' is not set"),
        ("${env:}", "the reference ${env:} names nothing"),
        ("${secret:$}", "the reference ${secret:$} names nothing"),
        ("${file:/no/such}", "the file cannot be read: No such file or directory"),
        ("${file:/}", "the file cannot be read"),
        ("${file:a\0b}", "the file cannot be read"),
    ],
)
def test_a_reference_without_a_value_is_an_error_that_names_it(text: str, told: str) -> None:
    ((path, message),) = resolved(f"hunter22 {text}").issues
    assert path == ("streams", 0, "input", "password")
    assert message.startswith(told)
    assert "hunter22" not in message


def test_files_that_are_no_settings_are_refused(tmp_path: Path) -> None:
    large, binary = tmp_path / "large", tmp_path / "binary"
    large.write_bytes(b"x" * (1024 * 1024 + 1))
    binary.write_bytes(b"\xff\xfe")
    assert "larger than 1 MiB" in resolved(f"${{file:{large}}}").issues[0][1]
    assert "not UTF-8 text" in resolved(f"${{file:{binary}}}").issues[0][1]


def test_keys_and_values_that_are_no_text_are_left_alone() -> None:
    root = Node({"${env:A}": Entry(AT, Node(5, AT))}, AT)
    assert plain(resolve_references(root, ENV).root) == {"${env:A}": 5}


@pytest.mark.parametrize(
    "path", [("logging", "file_path"), ("streams", 0, "id"), ("streams", 0, "input", "type")]
)
def test_a_secret_stands_only_in_the_settings_of_a_component(path: tuple[Any, ...]) -> None:
    node = Node("${secret:S}", AT)
    for step in reversed(path):
        node = Node([node] if step == 0 else {step: Entry(AT, node)}, AT)
    ((found, message),) = resolve_references(node, ENV).issues
    assert found == path
    assert "cannot stand here" in message


def test_resolving_a_secret_that_has_gone_names_path_and_variable() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_secrets({"auth": [{"password": "${secret:S}"}]}, {})
    assert caught.value.issues[0].path == "auth[0].password"
    assert "'ARKFLOW_SECRET_S' is not set" in caught.value.issues[0].message


def test_a_worker_gets_only_the_variables_that_its_component_names() -> None:
    env = {**ENV, "ARKFLOW_SECRET_T": "other"}
    found = secret_environment({"a": ["${secret:S}", "$${secret:T}", "${secret:GONE:-d}"]}, env)
    assert found == {"ARKFLOW_SECRET_S": Secret("hunter22")}
    assert resolve_secrets("${secret:S}", found) == "hunter22"


class Holder(BaseModel):
    password: Secret


def test_a_secret_shows_stars_to_everyone_but_reveal() -> None:
    secret = Secret("hunter22")
    holder = Holder(password=secret)
    shown = [
        repr(secret),
        str(secret),
        f"{secret}|{secret:>8}",
        repr({"a": secret}),
        json.dumps({"a": secret}, default=str),
        repr(holder),
        holder.model_dump_json(),
        repr(pickle.loads(pickle.dumps(secret)).reveal()),
        pickle.dumps(secret).decode("latin-1"),
    ]
    assert not any("hunter22" in text for text in shown)
    assert all("***" in text for text in shown)
    assert secret.reveal() == "hunter22"
    assert copy.deepcopy(secret).reveal() == "hunter22"
    with pytest.raises(TypeError):
        json.dumps(secret)


def test_the_redactor_takes_values_lines_and_words_out() -> None:
    redactor = Redactor()
    redactor.learn("it's\nhunter22 or so", "${file:x}")
    assert redactor.redact("near hunter22") == "near ${file:x}"
    assert redactor.redact("near hunter22 or so") == "near ${file:x}"
    assert redactor.redact(repr("it's\nhunter22 or so")) == '"${file:x}"'
    redactor.learn("8", "${env:N}")
    assert redactor.redact("line 18, batch 8") == "line 18, batch ${env:N}"


def test_what_the_redactor_puts_in_is_not_redacted_again() -> None:
    redactor = Redactor()
    redactor.learn("hunter22", "${env:PASS}")
    redactor.learn("PASS", "${env:OTHER}")
    assert redactor.redact("hunter22 PASS") == "${env:PASS} ${env:OTHER}"


def test_a_large_file_does_not_slow_the_redactor_down() -> None:
    redactor = Redactor()
    redactor.learn("\n".join(f"word{i} more{i}" for i in range(50_000)), "${file:x}")
    assert redactor.redact("near word777") == "near ${file:x}"
