"""The page on event time names every key that there is, and its settings are valid."""

import re
from pathlib import Path

import pytest
import yaml

from arkflow_kernel.job import TimeSpec, WatermarkSpec
from arkflow_kernel.plan import LatePolicy, WindowKind
from arkflow_kernel.window_config import AggregateConfig, WindowConfig

PAGE = (Path(__file__).parents[3] / "docs" / "event-time.md").read_text()
NAMED = set(re.findall(r"`(?:watermark\.)?([a-z_]+)[:`]", PAGE))


def test_every_key_of_time_is_explained() -> None:
    assert set(TimeSpec.model_fields) - {"mode", "watermark"} <= NAMED
    assert set(WatermarkSpec.model_fields) <= NAMED


def test_every_key_that_shapes_a_window_is_explained() -> None:
    # What has no effect or is only a limit stands in the compatibility page and the additions.
    elsewhere = {"watermark_field", "trigger_interval_ms", "max_buffered_keys", "on_overflow"}
    assert set(WindowConfig.model_fields) - elsewhere <= NAMED


@pytest.mark.parametrize("values", [LatePolicy, WindowKind])
def test_every_policy_and_kind_is_explained(values: type[LatePolicy] | type[WindowKind]) -> None:
    told = {each.value for each in values} - {"calendar"}
    assert told <= NAMED


def test_every_function_is_explained() -> None:
    functions = AggregateConfig.model_json_schema()["properties"]["function"]["enum"]
    assert set(functions) <= NAMED


def test_the_settings_that_the_page_shows_are_valid() -> None:
    blocks = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    assert [TimeSpec.model_validate(yaml.safe_load(block)["time"]).mode for block in blocks] == [
        "event_time"
    ]


def test_its_links_lead_to_documents_that_are_there() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", PAGE)
    assert len(links) >= 4
    assert [
        link for link in links if not (Path(__file__).parents[3] / "docs" / link).exists()
    ] == []
