"""`python`: a function of the user's, or an object, called with each batch (F.6).

It gets a `pyarrow.RecordBatch` and returns a RecordBatch, a Table, a list of them, or None (the
rows are filtered). Its prints go to stderr. The time-out is the driver's: a thread cannot be
stopped from inside. With several workers it is called by several threads.

An object of a `class` is made by `open`, so once for each attempt of its chain: what it remembers
is in no checkpoint, and rows that are read again must not find what it made of them before.
"""

import importlib
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast

import pyarrow as pa

from arkflow_kernel.bad_rows import Origin
from arkflow_kernel.errors import ComponentError, ConfigError, Issue, ProcessingError
from arkflow_kernel.ports import OperatorResult
from arkflow_ray.components.api import BuildContext
from arkflow_ray.components.processors import thread_stdout, user_code
from arkflow_ray.components.processors.first_row import first_row_text
from arkflow_ray.components.processors.python_config import MAIN_MODULE, PythonConfig

_ALLOWED = "return a pyarrow RecordBatch, a Table, a list of them, or None"


class PythonOperator:
    """Calls the function or object. Built without running anything of the user's: `open` does."""

    def __init__(self, operator: str, config: PythonConfig) -> None:
        self._operator = operator
        self._config = config
        self._function: user_code.UserFunction | None = None
        self._object: object | None = None
        self._stdout_taken = False

    def open(self) -> None:
        """Run the script, import the module, find the function or make the object of the class.

        ComponentError if one of them fails.
        """
        thread_stdout.install()
        self._stdout_taken = True
        user_code.extend_search_path(self._config.python_path)
        with thread_stdout.prints_to_stderr():
            module, where = self._loaded()
            if self._config.function is not None:
                self._function = user_code.find_function(module, self._config.function, where)
            else:
                self._object = self._made(module, where)
                self._function = self._object

    def process(self, batch: pa.RecordBatch, origin: Origin) -> OperatorResult:  # noqa: ARG002
        """What the function returned, without empty batches.

        ProcessingError if it raises (with the user's own lines) or returns something else.
        """
        function = self._function
        if function is None:
            raise ComponentError(f"operator '{self._operator}' is not open; call `open` first")
        if batch.num_rows == 0:
            return OperatorResult(())
        try:
            with thread_stdout.prints_to_stderr():
                returned = function(batch)
        except BaseException as error:  # user code raises anything
            if _is_ctrl_c(error):
                raise
            raise ProcessingError(
                self._operator,
                user_code.failure_text(error, __file__),
                error_class=type(error).__name__,
                row=first_row_text(batch),
            ) from error
        return OperatorResult(tuple(self._batches(returned, batch)))

    def finish(self) -> OperatorResult:
        """Nothing is held."""
        return OperatorResult(())

    def close(self) -> None:
        """Close the object, give stdout back; what the script loaded goes with the operator.

        ComponentError if the object's own `close` raises.
        """
        closed, self._object, self._function = self._object, None, None
        try:
            if closed is not None:
                self._close(closed)
        finally:
            if self._stdout_taken:
                self._stdout_taken = False
                thread_stdout.uninstall()

    def _made(self, module: ModuleType, where: str) -> user_code.UserFunction:
        """The object of the class, made with the arguments of `init`."""
        config = self._config
        found = user_code.find_class(module, str(config.class_), where)
        try:
            made = found(**config.init)
        except BaseException as error:  # user code raises anything
            if _is_ctrl_c(error):
                raise
            told = user_code.failure_text(error, __file__)
            given = ", ".join(config.init) or "nothing"
            raise ComponentError(
                f"operator '{self._operator}': class '{config.class_}' could not be made: {told}\n"
                f"  `init` gives it {given}; change that, or its `__init__`"
            ) from error
        return cast(user_code.UserFunction, made)

    def _close(self, closed: object) -> None:
        close = getattr(closed, "close", None)
        if not callable(close):
            return
        try:
            with thread_stdout.prints_to_stderr():
                close()
        except BaseException as error:  # user code raises anything
            if _is_ctrl_c(error):
                raise
            told = user_code.failure_text(error, __file__)
            raise ComponentError(
                f"operator '{self._operator}': `close` of class '{self._config.class_}' "
                f"failed: {told}"
            ) from error

    def _loaded(self) -> tuple[ModuleType, str]:
        """Where the function or class is to be found, and what that is called."""
        config = self._config
        where = "the script"
        try:
            module = None
            if config.script is not None:
                module = user_code.script_namespace(config.script, self._operator)
            if config.module != MAIN_MODULE or module is None:
                where = f"module '{config.module}'"
                module = importlib.import_module(config.module)
        except BaseException as error:  # user code raises anything
            if _is_ctrl_c(error):
                raise
            told = user_code.failure_text(error, __file__)
            raise ComponentError(
                f"operator '{self._operator}': {where} failed to load: {told}"
            ) from error
        return module, f"{where} of operator '{self._operator}'"

    def _batches(self, returned: Any, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        items = returned if isinstance(returned, list) else [returned]
        if returned is None:
            return
        for index, item in enumerate(items):
            if isinstance(item, pa.Table):
                parts = item.to_batches()
            elif isinstance(item, pa.RecordBatch):
                parts = [item]
            else:
                inside = f" at index {index} of its list" if isinstance(returned, list) else ""
                raise self._wrong_type(item, inside, batch)
            yield from (part for part in parts if part.num_rows > 0)

    def _wrong_type(self, item: object, inside: str, batch: pa.RecordBatch) -> ProcessingError:
        kind = f"{type(item).__module__}.{type(item).__qualname__}".removeprefix("builtins.")
        advice = _ALLOWED
        if hasattr(item, "__next__"):
            advice = f"iterators are not read, collect the batches in a list: {_ALLOWED}"
        return ProcessingError(
            self._operator,
            f"{self._config.called} returned {kind}{inside}; {advice}",
            error_class="TypeError",
            row=first_row_text(batch),
        )


def _is_ctrl_c(error: BaseException) -> bool:
    """Whether the user interrupts the program: signals arrive in the main thread only."""
    main = threading.current_thread() is threading.main_thread()
    return main and isinstance(error, KeyboardInterrupt)


def build(config: PythonConfig, context: BuildContext) -> PythonOperator:
    """Check what can be checked without running user code. ConfigError names each mistake."""
    issues = list(_target_issues(config))
    if config.script is not None:
        issues += _script_issues(config.script, context.operator)
    if config.module != MAIN_MODULE:
        issues += _module_issues(config)
    elif config.script is None:
        name = config.function or config.class_
        sentence = f"give a `script` that defines '{name}', or the `module` that does"
        issues.append(Issue("script", sentence))
    if issues:
        raise ConfigError(issues)
    return PythonOperator(context.operator, config)


def _target_issues(config: PythonConfig) -> Iterator[Issue]:
    """One of `function` and `class`, and what belongs to it."""
    if config.function is None and config.class_ is None:
        yield Issue("function", "missing required key 'function', or 'class' in its place")
    elif config.function is not None and config.class_ is not None:
        yield Issue("class", "a `function` is called, or an object of a `class`; give one of them")
    elif config.class_ is None and config.init:
        yield Issue("init", "`init` holds the arguments of a `class`; a function has none")


def _script_issues(script: str, operator: str) -> list[Issue]:
    try:
        user_code.compiled(script, operator)
    except SyntaxError as error:
        return [Issue("script", f"Python syntax error: {user_code.syntax_sentence(error)}")]
    except ValueError as error:
        return [Issue("script", f"the script is no Python text: {error}")]
    return []


def _module_issues(config: PythonConfig) -> list[Issue]:
    if user_code.module_is_found(config.module, config.python_path):
        return []
    searched = ", ".join([*config.python_path, "."])
    sentence = (
        f"there is no module '{config.module}' in {searched} or the installed packages; "
        "add its folder to `python_path`"
    )
    return [Issue("module", sentence)]


__all__ = ["PythonOperator", "build"]
