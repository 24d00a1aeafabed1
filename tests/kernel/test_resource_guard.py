"""Resources open in order, close in reverse, and nothing leaks (R1, T4)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkflow_kernel.resource_guard import Resource, ResourceGuard


class _Log:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def resource(self, name: str, *, opens: bool = True, closes: bool = True) -> Resource:
        def act(verb: str, works: bool) -> None:
            self.lines.append(f"{verb} {name}")
            if not works:
                raise OSError(f"cannot {verb} {name}")

        return Resource(name, lambda: act("open", opens), lambda: act("close", closes))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6))
def test_everything_that_was_opened_is_closed_once_in_reverse(
    script: list[tuple[bool, bool]],
) -> None:
    log, guard = _Log(), ResourceGuard()
    resources = [
        log.resource(str(i), opens=opens, closes=closes) for i, (opens, closes) in enumerate(script)
    ]
    broken = next((i for i, (opens, _) in enumerate(script) if not opens), None)
    reached = list(range(len(script) if broken is None else broken + 1))
    if broken is None:
        guard.open(resources)
        assert guard.opened == tuple(str(i) for i in reached)
        errors = guard.close()
        unclosed = [i for i in reversed(reached) if not script[i][1]]
        assert [str(e) for e in errors] == [f"cannot close {i}" for i in unclosed]
    else:
        with pytest.raises(OSError, match=f"cannot open {broken}"):
            guard.open(resources)
    expected = [f"open {i}" for i in reached] + [f"close {i}" for i in reversed(reached)]
    assert log.lines == expected
    assert guard.close() == []
    assert guard.opened == ()


def test_a_failed_opening_mentions_what_failed_while_closing() -> None:
    log, guard = _Log(), ResourceGuard()
    resources = [log.resource("a", closes=False), log.resource("b", opens=False)]
    with pytest.raises(OSError, match="cannot open b") as failure:
        guard.open(resources)
    assert failure.value.__notes__ == ["and while closing: cannot close a"]


def test_an_interrupt_while_opening_closes_too() -> None:
    log, guard = _Log(), ResourceGuard()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        guard.open([log.resource("a"), Resource("b", interrupt, lambda: None)])
    assert log.lines == ["open a", "close a"]
