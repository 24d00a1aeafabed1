"""Options, exit codes and texts that need no pipeline."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

import arkflow_ray
from arkflow_kernel.plan import ComponentPlan
from arkflow_ray.components.api import BuildContext, ComponentEntry, ComponentKind
from arkflow_ray.components.building import check_component
from arkflow_ray.components.registry import BUILT_IN
from arkflow_ray.config.tree import TreeBuilder, plain
from arkflow_ray.config.yaml_tree import parse_yaml


def test_the_version_is_that_of_the_distribution(cli: Any) -> None:
    project = tomllib.loads(Path(__file__).parents[3].joinpath("pyproject.toml").read_text())
    version = project["project"]["version"]
    assert arkflow_ray.__version__ == version
    assert cli("--version").out == f"arkflow-ray {version}\n"
    assert json.loads(cli("--version", "--json").out) == {"version": version}


def test_without_a_file_and_a_command_it_says_what_is_missing(cli: Any) -> None:
    ran = cli()
    assert ran.code == 2
    assert ran.err == (
        "Error: missing --config <FILE> (or run a subcommand: run, submit, validate, explain, "
        "components, schema)\n"
    )
    assert ran.out == ""


@pytest.mark.parametrize("command", ["run", "validate", "explain"])
def test_a_command_without_its_file_is_bad_usage(cli: Any, command: str) -> None:
    ran = cli(command)
    assert (ran.code, ran.err) == (2, "Error: name the file: as FILE or with --config\n")


@pytest.mark.parametrize("command", ["run", "validate", "explain"])
def test_a_file_named_twice_is_bad_usage(cli: Any, command: str) -> None:
    ran = cli(command, "a.yaml", "-c", "b.yaml")
    assert (ran.code, ran.err) == (2, "Error: name the file once: as FILE or with --config\n")


def test_a_config_before_a_command_is_bad_usage(cli: Any) -> None:
    ran = cli("-c", "a.yaml", "run")
    assert (ran.code, ran.err) == (
        2,
        "Error: put it behind the command: arkflow-ray run FILE\n",
    )


def test_inline_and_an_address_exclude_each_other(cli: Any) -> None:
    ran = cli("run", "a.yaml", "--inline", "--address", "auto")
    assert ran.code == 2
    assert "--inline runs without Ray" in ran.err


def test_an_unknown_option_is_bad_usage(cli: Any) -> None:
    ran = cli("run", "--speed", "9")
    assert ran.code == 2
    assert "--speed" in ran.err
    assert ran.out == ""


def test_help_names_every_command(cli: Any) -> None:
    ran = cli("--help")
    assert ran.code == 0
    for command in ("run", "validate", "explain", "components", "schema"):
        assert f"  {command} " in ran.out


def test_components_are_listed_by_kind(cli: Any) -> None:
    ran = cli("components", "list")
    assert ran.code == 0
    assert "\noutput\n" in ran.out
    assert "  stdout " in ran.out
    assert "(later: http, kafka" in ran.out


def test_components_of_one_kind_as_json(cli: Any) -> None:
    for answer in (["-f", "json"], ["--json"]):
        listed = json.loads(cli("components", "list", "-k", "codec", *answer).out)
        assert [each["name"] for each in listed["components"]["codec"]] == ["json"]
        assert "protobuf" in listed["later"]["codec"]


def test_an_unknown_kind_says_which_there_are(cli: Any) -> None:
    for command in (["list", "-k", "inptu"], ["show", "inptu", "file"]):
        ran = cli("components", *command)
        assert ran.code == 2
        assert ran.err == (
            "unknown kind 'inptu'; say one of input, output, processor, codec, buffer, temporary\n"
        )


def test_kinds_of_later_releases_are_known(cli: Any) -> None:
    assert cli("components", "list", "-k", "buffer").out == "no buffer in this release\n"
    ran = cli("components", "show", "temporary", "redis")
    assert (ran.code, ran.err) == (
        2,
        "there is no temporary in this release; it comes with a later one\n",
    )


def test_a_component_is_shown_with_fields_and_example(cli: Any) -> None:
    ran = cli("components", "show", "output", "file")
    assert ran.code == 0
    assert '  format  ("json" | "csv" | "parquet" | "arrow"; required)' in ran.out
    assert "  roll.interval  (string;" in ran.out
    assert "  type: file\n" in ran.out


def test_a_component_is_shown_as_json(cli: Any) -> None:
    shown = json.loads(cli("components", "show", "output", "file", "--json").out)
    fields = {field["name"]: field for field in shown["fields"]}
    assert fields["path"]["required"] is True
    assert fields["compression"]["default"] is None


@pytest.mark.parametrize("entry", BUILT_IN, ids=lambda e: f"{e.kind.value}-{e.name}")
def test_the_example_of_every_component_is_valid(cli: Any, entry: ComponentEntry) -> None:
    shown = json.loads(cli("components", "show", entry.kind.value, entry.name, "--json").out)
    config = plain(parse_yaml(shown["example"], TreeBuilder()))
    plan = ComponentPlan(config.pop("type"), config)
    assert check_component(entry.kind, plan, BuildContext("example")) == []


def test_the_rate_is_a_field_of_every_input_and_of_nothing_else(cli: Any) -> None:
    for entry in BUILT_IN:
        shown = json.loads(cli("components", "show", entry.kind.value, entry.name, "--json").out)
        listed = "rows_per_second" in [field["name"] for field in shown["fields"]]
        assert listed is (entry.kind is ComponentKind.INPUT)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("kafak", "Unknown input type: kafak; did you mean 'kafka'?\n"),
        (
            "kafka",
            "the input 'kafka' is not available in this release; it comes with a later one\n",
        ),
    ],
)
def test_a_component_that_is_not_there_is_explained(cli: Any, name: str, told: str) -> None:
    ran = cli("components", "show", "input", name)
    assert (ran.code, ran.out, ran.err) == (2, "", told)


def test_the_schema_is_a_json_schema(cli: Any) -> None:
    ran = cli("schema")
    assert ran.code == 0
    schema = json.loads(ran.out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert "streams" in schema["properties"]
