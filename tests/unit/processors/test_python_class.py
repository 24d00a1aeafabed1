"""The `python` processor with a class: one object, made at the start, called with each batch."""

import textwrap
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ComponentError, ConfigError, ProcessingError
from arkflow_kernel.plan import ComponentPlan
from arkflow_ray.components.api import BuildContext, ComponentKind
from arkflow_ray.components.building import check_component
from arkflow_ray.components.processors.python import PythonOperator, build
from arkflow_ray.components.processors.python_config import PythonConfig

BATCH = pa.record_batch({"a": [1, 2]})

COUNTER = """
    import pyarrow as pa
    made = []
    class Counter:
        def __init__(self, start, step=1):
            made.append(start)
            print("made", len(made))
            self.count, self.step = start, step
        def __call__(self, batch):
            self.count += self.step * batch.num_rows
            return batch.append_column("count", pa.array([self.count] * batch.num_rows))
        def close(self):
            print("closed at", self.count)
"""


def built(script: str, name: str = "Counter", **fields: Any) -> PythonOperator:
    entry = {"class": name, "script": textwrap.dedent(script), **fields}
    return build(PythonConfig.model_validate(entry), BuildContext("py"))


def refused(script: str, name: str = "Counter", **fields: Any) -> str:
    operator = built(script, name, **fields)
    with pytest.raises(ComponentError) as caught:
        operator.open()
    operator.close()
    return caught.value.message


def mistakes(**config: Any) -> list[tuple[str, str]]:
    plan = ComponentPlan("python", config)
    found = check_component(ComponentKind.PROCESSOR, plan, BuildContext("py"))
    return [(issue.path, issue.message) for issue in found]


def test_one_object_is_made_and_keeps_what_it_knows_from_batch_to_batch(
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator = built(COUNTER, init={"start": 10, "step": 2})
    operator.open()
    counts = [
        operator.process(BATCH, NOWHERE).batches[0].column("count").to_pylist() for _ in range(3)
    ]
    assert counts == [[14, 14], [18, 18], [22, 22]]
    operator.close()
    assert capsys.readouterr() == ("", "made 1\nclosed at 22\n")


def test_nothing_is_made_by_the_check() -> None:
    assert mistakes(**{"class": "C"}, script="raise SystemExit('ran')\nclass C: pass") == []


def test_an_object_need_have_neither_arguments_nor_a_close() -> None:
    operator = built("class Same:\n    def __call__(self, batch): return batch", "Same")
    operator.open()
    assert operator.process(BATCH, NOWHERE).batches == (BATCH,)
    operator.close()
    operator.close()


def test_what_an_object_raises_fails_the_batch_with_the_users_lines() -> None:
    operator = built("class Bad:\n    def __call__(self, batch): raise KeyError('price')", "Bad")
    operator.open()
    with pytest.raises(ProcessingError, match=r"KeyError: 'price'\n.*line 2, in __call__"):
        operator.process(BATCH, NOWHERE)
    operator.close()


def test_an_object_that_returns_something_else_is_named() -> None:
    operator = built("class Bad:\n    def __call__(self, batch): return 3", "Bad")
    operator.open()
    with pytest.raises(ProcessingError, match="class 'Bad' returned int; return a pyarrow"):
        operator.process(BATCH, NOWHERE)
    operator.close()


def test_a_class_that_cannot_be_made_is_named_with_its_arguments_and_lines() -> None:
    told = refused(
        "class Model:\n    def __call__(self, batch): pass\n"
        "    def __init__(self, path, seed): open(path)",
        "Model",
        init={"path": "/no/weights", "seed": 1},
    )
    first, *frames, advice = told.splitlines()
    assert first.startswith(
        "operator 'py': class 'Model' could not be made: FileNotFoundError: [Errno 2]"
    )
    assert frames == [
        "  <script of operator py>, line 3, in __init__: def __init__(self, path, seed): open(path)"
    ]
    assert advice == "  `init` gives it path, seed; change that, or its `__init__`"


def test_an_argument_that_is_missing_is_told() -> None:
    told = refused(COUNTER)
    assert "TypeError: Counter.__init__() missing 1 required positional argument" in told
    assert "`init` gives it nothing" in told


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("class Contre: pass", "there is no class 'Counter' in the script of operator 'py'; "),
        ("Counter = 3", "'Counter' in the script of operator 'py' is int, not a class; name a"),
        ("def Counter(batch): pass", "is function, not a class; name a class, or a function with"),
        ("class Counter: pass", "has no `__call__`; give it `def __call__(self, batch)`"),
    ],
)
def test_what_is_no_such_class_is_refused_with_advice(script: str, told: str) -> None:
    assert told in refused(script)


def test_a_close_that_raises_is_told_and_gives_stdout_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = """
        class Bad:
            def __call__(self, batch): return batch
            def close(self): raise OSError("still in use")
    """
    operator = built(script, "Bad")
    operator.open()
    with pytest.raises(ComponentError, match="`close` of class 'Bad' failed: OSError: still in"):
        operator.close()
    print("to stdout")
    assert capsys.readouterr().out == "to stdout\n"


@pytest.mark.parametrize(
    ("config", "path", "told"),
    [
        ({}, "function", "missing required key 'function', or 'class' in its place"),
        ({"function": "f", "class": "C"}, "class", "give one of them"),
        ({"function": "f", "init": {"a": 1}}, "init", "a function has none"),
        ({"class": "C", "max_batch_rows": 0}, "max_batch_rows", "must be at least 1"),
        ({"class": "C", "max_batch_rows": 32_769}, "max_batch_rows", "must be at most 32768"),
        ({"class": "C", "max_wait_ms": 60_001}, "max_wait_ms", "must be at most 60000"),
        ({"class": "C", "concurrency": 257}, "concurrency", "must be at most 256"),
        ({"class": "C", "init": [1]}, "init", "expected a mapping, got a list"),
        ({"clas": "C"}, "clas", "unknown key 'clas'; did you mean 'class'?"),
    ],
)
def test_mistakes_in_the_keys_are_found_by_the_check(
    config: dict[str, Any], path: str, told: str
) -> None:
    found = mistakes(**config, script="def f(b): pass")
    assert any(at == path and told in message for at, message in found), found


def test_a_class_needs_a_script_or_a_module() -> None:
    with pytest.raises(ConfigError, match="give a `script` that defines 'C'"):
        build(PythonConfig.model_validate({"class": "C"}), BuildContext("py"))
