"""The user's Python: compiled, found, loaded, and its failures told in the user's own lines.

Compiling and finding run nothing of the user's (a check must have no side effects); loading does.
"""

import builtins
import importlib
import importlib.machinery
import linecache
import sys
import traceback
from collections.abc import Callable
from difflib import get_close_matches
from types import CodeType, ModuleType, TracebackType
from typing import Any

from arkflow_kernel.errors import ComponentError
from arkflow_ray.components.processors.python_config import MAIN_MODULE

UserFunction = Callable[[Any], Any]

_FRAMES_MAX = 12
_CANDIDATES_MAX = 10
_IMPORT_FILES = frozenset(
    {
        importlib.__file__,
        "<frozen importlib>",
        "<frozen importlib._bootstrap>",
        "<frozen importlib._bootstrap_external>",
    }
)


def script_name(operator: str) -> str:
    """The file name that stands for the operator's script in tracebacks."""
    return f"<script of operator {operator}>"


def compiled(script: str, operator: str) -> CodeType:
    """The script as code. SyntaxError (ValueError for null bytes) as Python raises them."""
    return compile(script, script_name(operator), "exec", dont_inherit=True)


def syntax_sentence(error: SyntaxError) -> str:
    """`line 3, column 5: invalid syntax: retrun batch`."""
    text = (error.text or "").strip()
    shown = f": {text}" if text else ""
    return f"line {error.lineno}, column {error.offset}: {error.msg}{shown}"


def module_is_found(module: str, python_path: list[str]) -> bool:
    """Whether an import would find the module; imports nothing, not even its packages."""
    names = module.split(".")
    if names[0] in sys.builtin_module_names or module in sys.modules:
        return True
    search: list[str] | None = [*python_path, ".", *sys.path]
    for depth in range(len(names)):
        spec = importlib.machinery.PathFinder.find_spec(".".join(names[: depth + 1]), search)
        if spec is None:
            return False
        locations = spec.submodule_search_locations
        search = None if locations is None else list(locations)
        if search is None and depth + 1 < len(names):
            return False
    return True


def extend_search_path(python_path: list[str]) -> None:
    """Put the folders, then `.`, in front of `sys.path`; entries that are there move."""
    front = [*python_path, "."]
    sys.path[:] = front + [entry for entry in sys.path if entry not in front]
    importlib.invalidate_caches()


def script_namespace(script: str, operator: str) -> ModuleType:
    """Run the script in a module of its own, which it sees as `__main__`. Raises what it raises."""
    name = script_name(operator)
    linecache.cache[name] = (len(script), None, script.splitlines(keepends=True), name)
    module = ModuleType(MAIN_MODULE)
    module.__dict__["__builtins__"] = builtins
    exec(compiled(script, operator), module.__dict__)
    return module


def find_function(module: ModuleType, function: str, where: str) -> UserFunction:
    """The function of that name. ComponentError that names what is there instead."""
    found = getattr(module, function, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    if found is not None:
        raise ComponentError(
            f"'{function}' in {where} is {_type_name(found)}, not a function; name a function"
        )
    there = [
        name
        for name, value in vars(module).items()
        if callable(value) and not name.startswith("_") and not isinstance(value, type)
    ]
    raise ComponentError(
        f"there is no function '{function}' in {where}; {_instead(function, there, 'functions')}"
    )


def find_class(module: ModuleType, name: str, where: str) -> Callable[..., object]:
    """The class of that name. ComponentError that names what is there instead.

    Its objects must have a `__call__`.
    """
    found = getattr(module, name, None)
    if found is None:
        there = [
            each
            for each, value in vars(module).items()
            if isinstance(value, type) and not each.startswith("_")
        ]
        raise ComponentError(
            f"there is no class '{name}' in {where}; {_instead(name, there, 'classes')}"
        )
    if not isinstance(found, type):
        raise ComponentError(
            f"'{name}' in {where} is {_type_name(found)}, not a class; name a class, "
            "or a function with `function`"
        )
    if not any("__call__" in vars(base) for base in found.__mro__):
        raise ComponentError(
            f"class '{name}' in {where} has no `__call__`; give it `def __call__(self, batch)`, "
            "which returns what is to go on"
        )
    return found


def _instead(name: str, there: list[str], kind: str) -> str:
    """`did you mean 'x'? functions there: x, y`."""
    near = get_close_matches(name, there, n=1)
    advice = f"did you mean '{near[0]}'? " if near else ""
    return f"{advice}{kind} there: {', '.join(there[:_CANDIDATES_MAX]) or 'none'}"


def failure_text(error: BaseException, ours: str) -> str:
    """`ValueError: bad price`, then the user's lines, innermost last.

    `ours` is the file whose frames, and those above them, are left out.
    """
    lines = [f"{type(error).__name__}: {error}" if str(error) else type(error).__name__]
    frames = traceback.extract_tb(_below(error.__traceback__, ours))
    for frame in frames[-_FRAMES_MAX:]:
        code = f": {frame.line}" if frame.line else ""
        lines.append(f"  {frame.filename}, line {frame.lineno}, in {frame.name}{code}")
    return "\n".join(lines)


def _below(trace: TracebackType | None, ours: str) -> TracebackType | None:
    """The part of a traceback below the last of our frames and the import that it started."""
    rest = at = trace
    while at is not None:
        if _file_of(at) in {ours, __file__}:
            rest = at.tb_next
        at = at.tb_next
    while rest is not None and _file_of(rest) in _IMPORT_FILES:
        rest = rest.tb_next
    return rest


def _file_of(trace: TracebackType) -> str:
    return trace.tb_frame.f_code.co_filename


def _type_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


__all__ = [
    "UserFunction",
    "compiled",
    "extend_search_path",
    "failure_text",
    "find_class",
    "find_function",
    "module_is_found",
    "script_name",
    "script_namespace",
    "syntax_sentence",
]
