"""Places in a configuration: `jobs[0].operators[2].kind`.

A path is a tuple of keys and list indexes; its text form is what users read and what `Issue.path`
holds. Rendering and parsing are inverse for every tuple, whatever characters its keys hold.
"""

import json
import re

ConfigPath = tuple[str | int, ...]
"""Keys (text) and list indexes (int) from the part that was checked down to the value."""

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_\-]+")
_STEP = re.compile(r"\[(\d+)\]|\[(\"(?:[^\"\\]|\\.)*\")\]|\.?([^.\[\]]+)")


def render_path(path: ConfigPath) -> str:
    """`("jobs", 0, "id")` as `jobs[0].id`; a key with other characters as `["a.b"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def parse_path(text: str) -> ConfigPath:
    """The inverse of `render_path`. ValueError if `text` is not a path."""
    steps: list[str | int] = []
    position = 0
    while position < len(text):
        match = _STEP.match(text, position)
        if match is None:
            raise ValueError(f"not a configuration path: {text!r}")
        index, quoted, key = match.groups()
        if index is not None:
            steps.append(int(index))
        else:
            steps.append(json.loads(quoted) if quoted is not None else key)
        position = match.end()
    return tuple(steps)


def join_paths(parent: str, child: str) -> str:
    """`child`, which is relative to `parent`, as a path from where `parent` starts."""
    if not parent or not child:
        return parent or child
    return f"{parent}{child}" if child.startswith("[") else f"{parent}.{child}"


__all__ = ["ConfigPath", "join_paths", "parse_path", "render_path"]
