"""What modules import: nothing dead, nothing foreign in the kernel, no module called `kernel`."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

KERNEL_MAY_IMPORT = {"numpy", "pyarrow", "pydantic"}
TEST_KIT_MAY_IMPORT = {*KERNEL_MAY_IMPORT, "hypothesis", "pytest"}
KERNEL_MAY_IMPORT_OF_PYTHON = {
    "__future__",
    "abc",
    "array",
    "bisect",
    "collections",
    "contextlib",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "io",
    "itertools",
    "json",
    "math",
    "operator",
    "pathlib",
    "posixpath",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "zlib",
    "zoneinfo",
}
"""Pure parts of the standard library: no clock, no thread, no chance.

`pathlib` names files that a store or a driver hands in: spilled runs, spools.
"""

PUBLIC_KITS = ("arkflow_kernel.testing",)
"""Packages for others' tests: no module of ours has to import them."""

ENTRY = re.compile(r"([A-Za-z_]\w*(?:\.\w+)+|(?:\.\w+)+):[A-Za-z_]\w*")


def _imports(tree: ast.Module) -> Iterator[str]:
    """Every absolute name that a file imports, at any depth; `from a import b` gives a and a.b."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _entries(tree: ast.Module) -> Iterator[str]:
    """Every "module:name" in a string, as a registry or an entry point holds it."""
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    for string in strings:
        if isinstance(string, str):
            yield from (match.group(1) for match in ENTRY.finditer(string))


def _scripts(texts: dict[str, str]) -> set[str]:
    project = tomllib.loads(texts["pyproject.toml"])["project"]
    groups = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return {target.partition(":")[0] for group in groups for target in group.values()}


def test_every_module_is_used(
    texts: dict[str, str], trees: dict[str, ast.Module], modules: dict[str, str]
) -> None:
    """By a module, by a "module:name" in a registry, by an entry point; not only by tests."""
    used = _scripts(texts)
    suffixes = set()
    for module, path in modules.items():
        used |= {name for name in _imports(trees[path]) if name != module}
        suffixes |= set(_entries(trees[path]))
    used |= {m for m in modules for s in suffixes if m == s or (s[0] == "." and m.endswith(s))}
    dead = [
        path
        for module, path in modules.items()
        if module not in used
        and not path.endswith(("/__init__.py", "/__main__.py"))
        and not module.startswith(PUBLIC_KITS)
    ]
    assert dead == []


def test_the_kernel_imports_only_what_it_may(
    trees: dict[str, ast.Module], modules: dict[str, str]
) -> None:
    foreign = []
    for module, path in modules.items():
        if not module.startswith("arkflow_kernel"):
            continue
        kit = module.startswith(PUBLIC_KITS)
        allowed = TEST_KIT_MAY_IMPORT if kit else KERNEL_MAY_IMPORT
        allowed = {"arkflow_kernel", *allowed, *KERNEL_MAY_IMPORT_OF_PYTHON}
        tops = {name.partition(".")[0] for name in _imports(trees[path])}
        foreign += [f"{path}: {name}" for name in sorted(tops - allowed)]
    assert foreign == []


def test_imports_are_absolute(trees: dict[str, ast.Module]) -> None:
    relative = [
        f"{name}:{node.lineno}"
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


@pytest.mark.parametrize("package", ["arkflow_kernel", "arkflow_ray"])
def test_every_module_can_be_imported_and_none_is_called_kernel(
    package: str, modules: dict[str, str]
) -> None:
    """`kernel` is a source root, not a package: loaded under both names, a class exists twice."""
    names = [name for name in modules if name.partition(".")[0] == package]
    code = "import importlib, sys\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "assert 'kernel' not in sys.modules, 'a module named kernel was imported'\n"
    run = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
