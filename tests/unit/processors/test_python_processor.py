"""The `python` processor: loading, calling, results, failures, prints."""

import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from arkflow_kernel.bad_rows import NOWHERE
from arkflow_kernel.errors import ComponentError, ConfigError, ProcessingError
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors import thread_stdout
from arkflow_ray.components.processors.python import PythonOperator, build
from arkflow_ray.components.processors.python_config import PythonConfig

BATCH = pa.record_batch({"a": [1, 2], "b": ["x", "y"]})


@pytest.fixture(autouse=True)
def _same_search_path() -> Iterator[None]:
    before, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        if name.startswith("user_mod"):
            del sys.modules[name]


def built(script: str | None, **fields: Any) -> PythonOperator:
    text = None if script is None else textwrap.dedent(script)
    config = PythonConfig.model_validate({"function": "f", "script": text, **fields})
    return build(config, BuildContext("py"))


def run(script: str, batch: pa.RecordBatch = BATCH, **fields: Any) -> list[pa.RecordBatch]:
    operator = built(script, **fields)
    try:
        operator.open()
        return list(operator.process(batch, NOWHERE).batches)
    finally:
        operator.close()


def issues(script: str | None, **fields: Any) -> list[tuple[str, str]]:
    with pytest.raises(ConfigError) as caught:
        built(script, **fields)
    return [(issue.path, issue.message) for issue in caught.value.issues]


def test_a_record_batch_is_taken_as_it_is() -> None:
    assert run("def f(batch): return batch.slice(1)") == [BATCH.slice(1)]


def test_a_table_gives_its_batches_in_order() -> None:
    script = """
        import pyarrow as pa
        def f(batch): return pa.Table.from_batches([batch, batch.slice(1)])
    """
    assert run(script) == [BATCH, BATCH.slice(1)]


def test_a_list_may_hold_batches_and_tables_of_different_schemas() -> None:
    script = """
        import pyarrow as pa
        def f(batch): return [batch, pa.table({"z": [1.5]})]
    """
    assert [b.schema.names for b in run(script)] == [["a", "b"], ["z"]]


@pytest.mark.parametrize("returned", ["None", "[]", "batch.slice(2)", "[batch.slice(0, 0)]"])
def test_nothing_and_empty_batches_filter_the_rows(returned: str) -> None:
    assert run(f"def f(batch): return {returned}") == []


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("batch.to_pylist()", r"returned dict at index 0 of its list; return a pyarrow RecordB"),
        ("batch.to_pydict()", "returned dict; return a pyarrow RecordBatch, a Table, a list"),
        ("(batch,)", "returned tuple;"),
        ("[batch, 1]", "returned int at index 1 of its list"),
        ("(b for b in [batch])", "returned generator; iterators are not read"),
        ("iter([batch])", "returned list_iterator; iterators are not read"),
        ("batch['a']", r"returned pyarrow.lib.Int64Array;"),
    ],
)
def test_anything_else_is_an_error_that_names_its_type(returned: str, told: str) -> None:
    with pytest.raises(ProcessingError, match=told) as caught:
        run(f"def f(batch): return {returned}")
    assert caught.value.error_class == "TypeError"
    assert caught.value.row == '{"a":1,"b":"x"}'


def test_an_exception_is_told_in_the_users_lines_only() -> None:
    script = """\
        def g(x):
            raise ValueError("bad price")

        def f(batch):
            return g(batch)
    """
    with pytest.raises(ProcessingError) as caught:
        run(script)
    assert caught.value.cause.splitlines() == [
        "ValueError: bad price",
        "  <script of operator py>, line 5, in f: return g(batch)",
        '  <script of operator py>, line 2, in g: raise ValueError("bad price")',
    ]
    assert caught.value.error_class == "ValueError"
    assert caught.value.row == '{"a":1,"b":"x"}'


def test_the_lines_above_an_import_inside_the_function_are_kept() -> None:
    with pytest.raises(ProcessingError, match=r"(?s)ModuleNotFoundError.*line 2, in f"):
        run("def f(batch):\n    import user_mod_absent\n")


def test_sys_exit_fails_the_batch_and_not_the_process() -> None:
    with pytest.raises(ProcessingError, match="SystemExit: 3"):
        run("import sys\ndef f(batch): sys.exit(3)")


@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "GeneratorExit"])
def test_what_is_no_exception_fails_the_batch_all_the_same(raised: str) -> None:
    told: list[str] = []

    def lane() -> None:
        with pytest.raises(ProcessingError) as caught:
            run(f"def f(batch):\n    raise {raised}")
        told.extend(caught.value.cause.splitlines())

    thread = threading.Thread(target=lane)
    thread.start()
    thread.join()
    assert told == [raised, f"  <script of operator py>, line 2, in f: raise {raised}"]


def test_a_ctrl_c_of_the_user_is_not_taken_for_the_functions_failure() -> None:
    with pytest.raises(KeyboardInterrupt):
        run("def f(batch):\n    raise KeyboardInterrupt")


def test_a_wrong_number_of_parameters_is_the_functions_error() -> None:
    with pytest.raises(ProcessingError, match=r"TypeError: .*positional argument"):
        run("def f(): return None")


def test_an_empty_batch_does_not_reach_the_function() -> None:
    assert run("def f(batch): raise ValueError('called')", BATCH.slice(2)) == []


def test_the_script_sees_itself_as_main_and_leaves_the_real_one_alone() -> None:
    script = """
        planted_by_script = __name__
        def f(batch):
            return batch if planted_by_script == "__main__" else None
    """
    assert run(script) == [BATCH]
    assert not hasattr(sys.modules["__main__"], "planted_by_script")


def test_two_scripts_do_not_share_names() -> None:
    one = built("n = 1\ndef f(batch): return batch.slice(n)")
    two = built("n = 0\ndef f(batch): return batch.slice(n)")
    for operator in (one, two):
        operator.open()
    assert one.process(BATCH, NOWHERE).batches == (BATCH.slice(1),)
    assert two.process(BATCH, NOWHERE).batches == (BATCH,)
    one.close()
    two.close()


def test_a_syntax_error_is_found_by_the_check_with_its_line() -> None:
    assert issues("x = 1\ndef f(batch)\n    return batch\n") == [
        ("script", "Python syntax error: line 2, column 13: expected ':': def f(batch)")
    ]


def test_the_check_runs_nothing_of_the_script() -> None:
    built("raise SystemExit('ran')")


def test_neither_script_nor_module_is_a_mistake() -> None:
    assert issues(None) == [
        ("script", "give a `script` that defines 'f', or the `module` that does")
    ]


def test_a_script_that_raises_fails_the_open_with_its_line() -> None:
    operator = built("x = 1\ny = 1 / 0\ndef f(b): pass")
    with pytest.raises(ComponentError, match=r"(?s)script failed to load: ZeroDiv.*line 2, in <mo"):
        operator.open()
    operator.close()


def test_a_missing_function_names_the_nearest_and_what_is_there() -> None:
    operator = built("import os\ndef enrich(b): pass\ndef other(b): pass", function="enrch")
    with pytest.raises(ComponentError, match=r"no function 'enrch'.*mean 'enrich'.*enrich, other"):
        operator.open()
    operator.close()


def test_a_name_that_is_no_function_is_refused() -> None:
    operator = built("f = 3")
    with pytest.raises(ComponentError, match="'f' in the script of operator 'py' is int, not a"):
        operator.open()
    operator.close()


def test_a_module_is_found_by_the_check_and_imported_only_by_open(tmp_path: Path) -> None:
    package = tmp_path / "user_mod_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "inner.py").write_text("def f(batch): return batch\n")
    operator = built(None, module="user_mod_pkg.inner", python_path=[str(tmp_path)])
    assert "user_mod_pkg" not in sys.modules
    assert str(tmp_path) not in sys.path
    operator.open()
    assert sys.path[:2] == [str(tmp_path), "."]
    assert operator.process(BATCH, NOWHERE).batches == (BATCH,)
    operator.close()


@pytest.mark.parametrize("name", ["user_mod_nope", "json.nope", "user_mod_nope.x", "re.x.y"])
def test_an_absent_module_is_found_by_the_check(name: str) -> None:
    [(path, message)] = issues(None, module=name, python_path=["/some/folder"])
    assert path == "module"
    assert f"no module '{name}' in /some/folder, ." in message


def test_the_first_folder_of_the_path_wins(tmp_path: Path) -> None:
    for folder, rows in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        text = f"def f(batch): return batch.slice(0, {rows})\n"
        (tmp_path / folder / "user_mod_twice.py").write_text(text)
    path = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert run("", module="user_mod_twice", python_path=path) == [BATCH.slice(0, 1)]


def test_a_module_that_fails_to_import_is_told_in_its_lines(tmp_path: Path) -> None:
    (tmp_path / "user_mod_bad.py").write_text("x = 1\nraise KeyError('k')\n")
    operator = built(None, module="user_mod_bad", python_path=[str(tmp_path)])
    with pytest.raises(ComponentError, match=r"(?s)module 'user_mod_bad' failed") as caught:
        operator.open()
    assert caught.value.message.splitlines()[1:] == [
        f"  {tmp_path / 'user_mod_bad.py'}, line 2, in <module>: raise KeyError('k')"
    ]
    operator.close()


def test_prints_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    run("print('loading')\ndef f(batch):\n    print('rows', batch.num_rows)\n    return batch")
    assert capsys.readouterr() == ("", "loading\nrows 2\n")


def test_other_threads_keep_stdout_while_the_function_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inside, done = threading.Event(), threading.Event()

    def user() -> None:
        with thread_stdout.prints_to_stderr():
            inside.set()
            assert done.wait(5)
            print("from user code")

    thread_stdout.install()
    try:
        worker = threading.Thread(target=user)
        worker.start()
        assert inside.wait(5)
        print("a row of the job")
        done.set()
        worker.join()
    finally:
        thread_stdout.uninstall()
    assert capsys.readouterr() == ("a row of the job\n", "from user code\n")


def test_stdout_is_given_back_after_the_last_close() -> None:
    before = sys.stdout
    one, two = built("def f(b): pass"), built("def f(b): pass")
    one.open()
    two.open()
    one.close()
    assert sys.stdout is not before
    two.close()
    two.close()
    assert sys.stdout is before


def test_prints_of_a_failing_call_do_not_leave_the_thread_redirected() -> None:
    operator = built("def f(b): raise ValueError")
    operator.open()
    with pytest.raises(ProcessingError, match="ValueError"):
        operator.process(BATCH, NOWHERE)
    with thread_stdout.prints_to_stderr():
        pass
    assert getattr(thread_stdout._redirected, "depth", 0) == 0
    operator.close()


def test_several_threads_may_call_at_once() -> None:
    script = """
        import threading
        gate = threading.Barrier(2, timeout=5)
        def f(batch):
            gate.wait()
            return batch
    """
    operator = built(script)
    operator.open()
    results: list[Any] = []

    def call() -> None:
        results.append(operator.process(BATCH, NOWHERE).batches)

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    operator.close()
    assert results == [(BATCH,), (BATCH,)]


def test_a_long_first_row_is_cut_in_the_message() -> None:
    batch = pa.record_batch({"a": ["x" * 5000]})
    with pytest.raises(ProcessingError) as caught:
        run("def f(b): raise ValueError", batch)
    assert len(caught.value.row) == 300


def test_defaults_are_arkflows() -> None:
    config = PythonConfig.model_validate({"function": "f"})
    assert (config.module, config.python_path, config.timeout_ms) == ("__main__", [], 60_000)
