"""Which operator runs a window: by its kind, and by whether aggregates or the rows leave."""

from typing import TYPE_CHECKING

from arkflow_kernel.plan import OperatorPlan, StatePlan, WindowKind, WindowPlan
from arkflow_kernel.ports import TimedOperator
from arkflow_kernel.state.api import StateAddress
from arkflow_kernel.state_journal import CommitOnAck
from arkflow_kernel.state_snapshots import ChainStates
from arkflow_kernel.window.assign import FixedPanes, Panes
from arkflow_kernel.window.calendar import CalendarPanes
from arkflow_kernel.window.rows_operator import rows_operator

if TYPE_CHECKING:
    from arkflow_kernel.window.aggregates import Family
    from arkflow_kernel.window.keys import KeyLedger
    from arkflow_kernel.window.pane_runs import PaneRuns


def window_operator(
    plan: OperatorPlan, journal: CommitOnAck, states: ChainStates | None = None
) -> TimedOperator:
    """The operator of a plan that has a `window`, with its states in the chain's journal.

    `states` are those of the chain, if it takes snapshots or spills.
    """
    window, state = plan.window, plan.state
    assert window is not None
    assert state is not None
    if window.releases_rows:
        panes = None if window.kind is WindowKind.SESSION else panes_of(window)
        return rows_operator(plan, panes, journal, states)
    from arkflow_kernel.window.aggregates import Aggregates
    from arkflow_kernel.window.keys import KeyLedger
    from arkflow_kernel.window.results import Results
    from arkflow_kernel.window.window_operator import ColumnarWindowOperator

    aggregates = Aggregates(window, plan.operator)
    ledger = KeyLedger(state.key_fields, plan.operator)
    runs: dict[str, "PaneRuns"] = {}
    for family in aggregates.families:
        held = runs[family.name] = _runs(plan, state, family, ledger, journal)
        journal.joined(held)
        if states is not None:
            states.joined(held)
    results = Results(window, state.key_fields, ledger)
    return ColumnarWindowOperator(
        plan.operator, window, panes_of(window), aggregates, ledger, runs, results, journal
    )


def panes_of(window: WindowPlan) -> Panes:
    """How the times of a window fall into panes."""
    if window.kind is WindowKind.CALENDAR:
        return CalendarPanes(window.unit, window.timezone, window.offset_ms)
    return FixedPanes(window.size_ms, window.slide_ms or window.size_ms, window.offset_ms)


def _runs(
    plan: OperatorPlan,
    state: StatePlan,
    family: "Family",
    ledger: "KeyLedger",
    journal: CommitOnAck,
) -> "PaneRuns":
    from arkflow_kernel.window.pane_runs import PaneRuns

    return PaneRuns(
        family,
        ledger,
        StateAddress(state.namespace, plan.operator, family.name),
        journal,
        max_bytes=state.max_bytes,
        memory_bytes=state.memory_bytes,
        max_parallelism=state.max_parallelism,
    )


__all__ = ["panes_of", "window_operator"]
