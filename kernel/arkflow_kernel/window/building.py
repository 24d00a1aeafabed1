"""Which operator runs a window: by its kind, and by whether aggregates or the rows leave."""

from arkflow_kernel.plan import OperatorPlan, WindowKind, WindowPlan
from arkflow_kernel.ports import TimedOperator
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.assign import FixedPanes, Panes
from arkflow_kernel.window.calendar import CalendarPanes
from arkflow_kernel.window.rows_operator import rows_operator
from arkflow_kernel.window.session_operator import session_operator
from arkflow_kernel.window.window_operator import columnar_window_operator


def window_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> TimedOperator:
    """The operator of a plan that has a `window`, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    window = plan.window
    assert window is not None
    panes = panes_of(window)
    if window.releases_rows:
        return rows_operator(plan, panes, journal, states)
    if panes is None:
        return session_operator(plan, journal, states)
    return columnar_window_operator(plan, panes, journal, states)


def panes_of(window: WindowPlan) -> Panes | None:
    """How the times of a window fall into panes; None for sessions, which have none."""
    match window.kind:
        case WindowKind.SESSION:
            return None
        case WindowKind.CALENDAR:
            return CalendarPanes(window.unit, window.timezone, window.offset_ms)
        case WindowKind.TUMBLING | WindowKind.SLIDING:
            slide = window.slide_ms or window.size_ms
            return FixedPanes(window.size_ms, slide, window.offset_ms)


__all__ = ["panes_of", "window_operator"]
