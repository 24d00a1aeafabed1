"""Components of these tests only, so that the checks are proved without the built-in ones."""

from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import field_validator

from arkflow_kernel.errors import ConfigError, Issue
from arkflow_ray.components import registry
from arkflow_ray.components.api import (
    BuildContext,
    ComponentConfig,
    ComponentEntry,
    ComponentKind,
)
from tests.unit.config.sample_files import Write


class GenerateConfig(ComponentConfig):
    context: str
    interval: str = "1s"
    batch_size: int = 1
    types: dict[str, Literal["int", "float", "text"]] | None = None


class SqlConfig(ComponentConfig):
    query: str
    tags: frozenset[str] | None = None

    @field_validator("query")
    @classmethod
    def _not_empty(cls, query: str) -> str:
        if query == "empty":
            raise ValueError("the query 'empty' selects nothing")
        return query


class EmptyConfig(ComponentConfig):
    pass


class CodecConfig(ComponentConfig):
    on_error: Literal["fail", "skip"] = "fail"


BUILT: list[tuple[str, Any, BuildContext]] = []


def _build(config: Any, context: BuildContext) -> Any:
    BUILT.append((type(config).__name__, config, context))
    return object()


def _build_sql(config: SqlConfig, context: BuildContext) -> Any:
    if not config.query.startswith("SELECT"):
        raise ConfigError([Issue("query", f"SQL query error: expected SELECT, got {config.query}")])
    if "crash" in config.query:
        raise RuntimeError(f"parser broke on {config.query}")
    return _build(config, context)


_I, _O, _P, _C = (
    ComponentKind.INPUT,
    ComponentKind.OUTPUT,
    ComponentKind.PROCESSOR,
    ComponentKind.CODEC,
)
COMPONENTS: dict[tuple[ComponentKind, str], tuple[type[ComponentConfig], Any, bool]] = {
    (_I, "generate"): (GenerateConfig, _build, True),
    (_I, "file"): (GenerateConfig, _build, False),
    (_O, "stdout"): (EmptyConfig, _build, True),
    (_O, "drop"): (EmptyConfig, _build, True),
    (_P, "sql"): (SqlConfig, _build_sql, False),
    (_P, "arrow_to_json"): (EmptyConfig, _build, False),
    (_C, "json"): (CodecConfig, _build, False),
}


@pytest.fixture(autouse=True)
def components(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        key: ComponentEntry(key[0], key[1], "", "", "", takes_codec=codec)
        for key, (_, _, codec) in COMPONENTS.items()
    }
    monkeypatch.setattr(registry, "entries", lambda: known)
    monkeypatch.setattr(registry, "config_class", lambda e: COMPONENTS[e.kind, e.name][0])
    monkeypatch.setattr(registry, "factory", lambda e: COMPONENTS[e.kind, e.name][1])


@pytest.fixture
def built() -> list[tuple[str, Any, BuildContext]]:
    """What factories were called with, in order."""
    BUILT.clear()
    return BUILT


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file and gives its path."""

    def write_file(text: str | bytes, name: str = "pipeline.yaml") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write_file
