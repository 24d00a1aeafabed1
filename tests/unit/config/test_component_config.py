"""Paths of configurations, pydantic's findings in our words, and building one component (C8)."""

import json
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from arkflow_kernel.errors import ComponentError, ConfigError
from arkflow_kernel.plan import ComponentPlan
from arkflow_ray.components import registry
from arkflow_ray.components.api import BuildContext, ComponentConfig, ComponentKind
from arkflow_ray.components.building import build_component, check_component
from arkflow_ray.components.config_path import join_paths, parse_path, render_path
from arkflow_ray.components.model_issues import findings
from arkflow_ray.components.paths import absolute_path, is_url

Built = list[tuple[str, Any, BuildContext]]

CONTEXT = BuildContext(operator="here")


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 99) | st.text(min_size=0, max_size=6), max_size=5))
def test_a_path_survives_its_text(steps: list[str | int]) -> None:
    assert parse_path(render_path(tuple(steps))) == tuple(steps)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ((), ""),
        (("jobs", 0, "operators", 2, "kind"), "jobs[0].operators[2].kind"),
        (("types", "a.b", "c"), 'types["a.b"].c'),
        ((0, "x"), "[0].x"),
    ],
)
def test_a_path_reads_like_the_file(path: tuple[str | int, ...], text: str) -> None:
    assert render_path(path) == text


@pytest.mark.parametrize("text", ["a[", "a[x]", "]", "a..b", "a."])
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a configuration path"):
        parse_path(text)


def test_paths_join() -> None:
    assert join_paths("a", "b[0]") == "a.b[0]"
    assert join_paths("a", "[0]") == "a[0]"
    assert join_paths("", "b") == "b"
    assert join_paths("a", "") == "a"


def test_local_paths_are_made_absolute_and_urls_are_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert absolute_path("data/../in/*.json") == f"{tmp_path}/in/*.json"
    assert absolute_path("out/") == f"{tmp_path}/out/"
    assert absolute_path("/abs/x") == "/abs/x"
    assert absolute_path("~/x") == "/home/someone/x"
    assert absolute_path("") == ""
    for url in ("s3://b/k", "file:///x", "memory://a", "zip://*.json::s3://b/a.zip"):
        assert absolute_path(url) == url
        assert is_url(url)
    assert not is_url("c/d")


class Colour(Enum):
    RED = "red"


class Inner(ComponentConfig):
    kind: Literal["one"]
    depth: int = 0


class Other(ComponentConfig):
    kind: Literal["two"]


class Model(ComponentConfig):
    a: Annotated[int, Field(gt=0, lt=10)] = 1
    ratio: Annotated[float, Field(allow_inf_nan=False)] = 0.5
    text: Annotated[str, Field(min_length=1, max_length=3, pattern="^x+$")] = "x"
    names: Annotated[list[str], Field(min_length=2)] = Field(default_factory=lambda: ["a", "b"])
    table: dict[str, int] | None = None
    inner: list[Inner] | None = None
    choice: Annotated[Inner | Other, Field(discriminator="kind")] | None = None
    either: Literal["on"] | dict[str, int] = "on"
    colour: Colour | None = None
    renamed: int = Field(default=0, alias="re-named")

    @model_validator(mode="after")
    def _odd(self) -> "Model":
        if self.a == 7:
            raise ValueError("`a` must not be 7")
        return self


def told(data: Any) -> list[str]:
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(data)
    return [f"{f.issue().path}: {f.message}" for f in findings(caught.value, Model, data)]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"a": "x"}, "a: expected an integer, got text"),
        ({"a": True}, "a: expected an integer, got a truth value"),
        ({"a": None}, "a: expected an integer, got null"),
        ({"a": 0}, "a: must be above 0"),
        ({"a": 10}, "a: must be below 10"),
        ({"a": 7}, ": `a` must not be 7"),
        ({"ratio": "1"}, "ratio: expected a number, got text"),
        ({"ratio": float("inf")}, "ratio: must be a finite number"),
        ({"text": ""}, "text: must not be empty"),
        ({"text": "xxxx"}, "text: must have a length of at most 3"),
        ({"text": "y"}, "text: must match the pattern ^x+$"),
        ({"names": ["a"]}, "names: must have a length of at least 2"),
        ({"names": ["a", 5]}, "names[1]: expected text, got an integer"),
        ({"names": "ab"}, "names: expected a list, got text"),
        ({"table": {"k": "x"}}, "table.k: expected an integer, got text"),
        ({"table": {"k.l": "x"}}, 'table["k.l"]: expected an integer, got text'),
        ({"inner": [5]}, "inner[0]: expected a mapping, got an integer"),
        ({"inner": [{"kind": "one", "deph": 1}]},
         "inner[0].deph: unknown key 'deph'; did you mean 'depth'?"),
        ({"inner": [{}]}, "inner[0].kind: missing required key 'kind'"),
        ({"choice": {}}, "choice.kind: missing required key 'kind'"),
        ({"choice": {"kind": "tow"}},
         "choice.kind: must be one of 'one', 'two'; did you mean 'two'?"),
        ({"choice": {"kind": "one", "depth": "x"}}, "choice.depth: expected an integer, got text"),
        ({"either": 5}, "either: expected one of 'on' or a mapping, got an integer"),
        ({"either": {"k": "x"}}, "either.k: expected an integer, got text"),
        ({"rename": 1}, "rename: unknown key 'rename'; did you mean 're-named'?"),
        ({"re-named": "x"}, "re-named: expected an integer, got text"),
        ([], ": expected a mapping, got a list"),
    ],
)  # fmt: skip
def test_findings_are_told_in_our_words(data: Any, expected: str) -> None:
    assert told(data) == [expected]


def test_an_unknown_choice_shows_no_value() -> None:
    data = {"colour": "hunter22"}
    with pytest.raises(ValidationError) as caught:
        Model.model_validate_json(json.dumps(data))
    (finding,) = findings(caught.value, Model, data)
    assert finding.message == "must be one of 'red'"


def plan(config: dict[str, Any], codec: Any = None) -> ComponentPlan:
    return ComponentPlan("generate", config, codec)


def test_the_rate_of_an_input_is_the_planner_s_and_not_its_own(built: Built) -> None:
    good = plan({"context": "x", "rows_per_second": 5, "type": "generate"})
    assert check_component(ComponentKind.INPUT, good, CONTEXT) == []
    assert built[0][1].context == "x"
    (issue,) = check_component(
        ComponentKind.OUTPUT, ComponentPlan("drop", {"rows_per_second": 5}), CONTEXT
    )
    assert issue.path == "rows_per_second"


def test_building_gives_the_component_or_every_mistake() -> None:
    kind = ComponentKind.INPUT
    assert build_component(kind, plan({"context": "x"}), CONTEXT) is not None
    bad = plan({"context": 1, "rows_per_second": -1, "y": 2}, {"type": "json", "on_error": "x"})
    with pytest.raises(ConfigError) as caught:
        build_component(kind, bad, CONTEXT)
    assert [i.path for i in caught.value.issues] == [
        "codec.on_error", "rows_per_second", "context", "y",
    ]  # fmt: skip


def test_a_list_is_taken_for_a_set_and_a_number_is_not_taken_for_text() -> None:
    kind = ComponentKind.PROCESSOR
    good = ComponentPlan("sql", {"query": "SELECT 1", "tags": ["a", "b"]})
    assert check_component(kind, good, CONTEXT) == []
    bad = ComponentPlan("sql", {"query": 5})
    assert [i.message for i in check_component(kind, bad, CONTEXT)] == [
        "expected text, got an integer"
    ]


def test_secrets_are_resolved_for_the_component_and_its_codec(built: Built) -> None:
    def resolve(config: dict[str, Any]) -> dict[str, Any]:
        return {key: "skip" if value == "S" else value for key, value in config.items()}

    given = plan({"context": "S"}, {"type": "json", "on_error": "S"})
    build_component(ComponentKind.INPUT, given, CONTEXT, resolve)
    assert [built[0][1].on_error, built[1][1].context] == ["skip", "skip"]
    assert given.config == {"context": "S"}


def test_a_failing_factory_is_an_issue_of_its_component(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory(_entry: Any) -> Any:
        def build(_config: Any, _context: Any) -> Any:
            raise ComponentError("needs the extra 'kafka'")

        return build

    monkeypatch.setattr(registry, "factory", factory)
    (issue,) = check_component(ComponentKind.INPUT, plan({"context": "x"}), CONTEXT)
    assert (issue.path, issue.message) == ("", "needs the extra 'kafka'")
