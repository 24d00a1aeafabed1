"""Size and form of the code: what `ruff` and `mypy` do not say."""

import ast
import pathlib
from collections import defaultdict
from collections.abc import Iterator

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70
TABLES = {"kernel/arkflow_kernel/protocol.py"}
"""Tables of events and commands, which may be longer than a file of code."""

Functions = (ast.FunctionDef, ast.AsyncFunctionDef)


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in ast.walk(tree) if isinstance(node, Functions))


def _exported(tree: ast.Module) -> bool:
    targets = (
        target
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
    )
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


def test_a_file_has_at_most_400_lines(texts: dict[str, str], trees: dict[str, ast.Module]) -> None:
    lengths = {name: len(texts[name].splitlines()) for name in trees if name not in TABLES}
    assert {name: lines for name, lines in lengths.items() if lines > FILE_LINES_MAX} == {}


def test_a_function_has_at_most_70_lines(trees: dict[str, ast.Module]) -> None:
    long = [
        f"{name}:{node.lineno} {node.name}"
        for name, tree in trees.items()
        for node in _functions(tree)
        if (node.end_lineno or node.lineno) - node.lineno >= FUNCTION_LINES_MAX
    ]
    assert long == []


def test_every_file_says_what_it_is(trees: dict[str, ast.Module]) -> None:
    assert [name for name, tree in trees.items() if not ast.get_docstring(tree)] == []


def test_every_module_lists_its_public_names(
    trees: dict[str, ast.Module], modules: dict[str, str]
) -> None:
    """A module that defines nothing (the docstring of a package) has nothing to list."""
    unlisted = [
        path
        for path in modules.values()
        if len(trees[path].body) > 1 and not _exported(trees[path])
    ]
    assert unlisted == []


def test_every_public_function_and_class_has_a_docstring(
    trees: dict[str, ast.Module], modules: dict[str, str]
) -> None:
    silent = [
        f"{path}:{node.lineno} {node.name}"
        for path in modules.values()
        for node in trees[path].body
        if isinstance(node, (*Functions, ast.ClassDef))
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert silent == []


def test_no_file_is_named_for_everything_that_fits_nowhere(trees: dict[str, ast.Module]) -> None:
    vague = {"common", "helpers", "misc", "util", "utils"}
    assert [name for name in trees if vague.intersection(pathlib.Path(name).parts[:-1])] == []
    assert [name for name in trees if pathlib.Path(name).stem in vague] == []


def test_no_folder_of_tests_is_a_package(trees: dict[str, ast.Module]) -> None:
    """Pytest imports by path here; a package would shadow the real ones."""
    assert [name for name in trees if name.startswith("tests/") and "__init__" in name] == []


def test_no_folder_of_tests_is_named_like_a_library(trees: dict[str, ast.Module]) -> None:
    parts = {part for name in trees if name.startswith("tests/") for part in name.split("/")[1:-1]}
    assert parts.intersection({"ray", "pyarrow", "arkflow_ray", "arkflow_kernel"}) == set()


def test_the_name_of_a_test_file_is_used_once(trees: dict[str, ast.Module]) -> None:
    places = defaultdict(list)
    for name in trees:
        if name.startswith("tests/") and pathlib.Path(name).stem.startswith("test_"):
            places[pathlib.Path(name).name].append(name)
    assert [paths for paths in places.values() if len(paths) > 1] == []
