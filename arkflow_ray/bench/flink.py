"""A Flink of its own in a Python environment: whether it is there, and programs of SQL on it.

It runs in one JVM that the program starts, with parallelism 1; Python only submits.
"""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Mapping
from typing import Final

FLINK: Final = "apache-flink==2.3.0"

INSTALL: Final = f"python3.11 -m venv DIR && DIR/bin/pip install {FLINK}"
"""How a user makes one; it takes about 1.5 GB, and Java 11 or 17 on PATH."""

_SETTINGS: Final = {
    "parallelism.default": "1",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "execution.checkpointing.storage": "filesystem",
}
_PROGRAM: Final = """
import json, sys
from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment
asked = json.loads(sys.argv[1])
settings = Configuration()
for key, value in asked["settings"].items():
    settings.set_string(key, value)
builder = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings)
table = TableEnvironment.create(builder.build())
for statement in asked["statements"][:-1]:
    table.execute_sql(statement)
table.execute_sql(asked["statements"][-1]).wait()
"""


class NoFlinkError(Exception):
    """There is no Flink to be had. Its text says what to do."""


def check_flink(python: pathlib.Path | None) -> pathlib.Path:
    """The interpreter of an environment with Flink; NoFlinkError if it is none."""
    if python is None:
        raise NoFlinkError(
            "say where Flink is: `--flink-python DIR/bin/python`, in an environment made by "
            f"`{INSTALL}`"
        )
    path = python.absolute()  # not resolved: the link is what makes it the environment's
    if shutil.which(str(path)) is None:
        raise NoFlinkError(f"there is no interpreter {path}; make it by `{INSTALL}`")
    found = subprocess.run(
        [str(path), "-c", "import pyflink.table"], capture_output=True, text=True, check=False
    )
    if found.returncode != 0:
        raise NoFlinkError(f"{path} has no Flink; `{path} -m pip install {FLINK}`")
    if shutil.which("java") is None:
        raise NoFlinkError("Flink needs Java 11 or 17, and there is no `java` on PATH")
    return path


def flink_command(
    python: pathlib.Path,
    statements: list[str],
    checkpoints: pathlib.Path,
    interval: str,
    more: Mapping[str, str] | None = None,
) -> list[str]:
    """The command that runs statements, the last of which it waits for.

    `interval` is that of checkpoints, such as `1 s`; `more` are other settings.
    """
    settings = {
        **_SETTINGS,
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.dir": checkpoints.as_uri(),
        **(more or {}),
    }
    asked = {"settings": settings, "statements": statements}
    return [str(python), "-c", _PROGRAM, json.dumps(asked)]


__all__ = ["FLINK", "INSTALL", "NoFlinkError", "check_flink", "flink_command"]
