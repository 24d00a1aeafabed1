"""Builds a chain's components from the registry, with secrets resolved (M8)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from arkflow_kernel.checkpoint_ports import EpochSink, Staging
from arkflow_kernel.errors import ComponentError
from arkflow_kernel.ids import JobId
from arkflow_kernel.plan import (
    ONLY_SUBTASK,
    ComponentPlan,
    OperatorPlan,
    SinkPlan,
    SourcePlan,
    Subtask,
)
from arkflow_kernel.ports import LineOutput, Operator, SinkWriter, SourceReader
from arkflow_ray.components.api import BuildContext, Built, ComponentKind
from arkflow_ray.components.building import build_component, component_model
from arkflow_ray.config.secrets import resolve_secrets
from arkflow_ray.runtime.secret_hiding import (
    HidingEpochSink,
    HidingOperator,
    HidingSink,
    HidingSource,
    SecretHiding,
)

BATCHES_PER_SECOND = 10


class RegistryComponents:
    """A `ComponentFactory` over the registry.

    `secrets` holds the variables that `${secret:NAME}` names, with their prefix; they go into
    configurations at the moment of building and nowhere else, and errors do not show them.
    `lines` is where `stdout` sinks print. `job` marks what sinks leave unfinished; without it,
    nothing of an earlier attempt is cleared away.
    """

    def __init__(
        self, secrets: Mapping[str, str], lines: LineOutput, job: JobId | None = None
    ) -> None:
        self._secrets = secrets
        self._lines = lines
        self._job = job

    def source(self, plan: SourcePlan) -> SourceReader:
        """See `ComponentFactory.source`."""
        columns = None if plan.columns is None else frozenset(plan.columns)
        context = BuildContext(plan.operator, columns=columns, fields=plan.fields)
        built = self._build(ComponentKind.INPUT, paced(plan), context, HidingSource)
        return cast(SourceReader, built)

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """See `ComponentFactory.operator`."""
        context = BuildContext(plan.operator, workers=workers)
        built = self._build(ComponentKind.PROCESSOR, plan.component, context, HidingOperator)
        return cast(Operator, built)

    def sink(
        self, plan: SinkPlan, staging: Staging | None = None, subtask: Subtask = ONLY_SUBTASK
    ) -> SinkWriter | EpochSink:
        """See `ComponentFactory.sink`: an `EpochSink` exactly if there is a `staging` (X1)."""
        context = BuildContext(
            plan.operator, lines=self._lines, staging=staging, job=self._job, subtask=subtask
        )
        if staging is None:
            built = self._build(ComponentKind.OUTPUT, plan.component, context, HidingSink)
            return cast(SinkWriter, built)
        built = self._build(ComponentKind.OUTPUT, plan.component, context, HidingEpochSink)
        return cast(EpochSink, built)

    def _build(
        self,
        kind: ComponentKind,
        plan: ComponentPlan,
        context: BuildContext,
        hide: Callable[[Any, SecretHiding], Built],
    ) -> Built:
        """The component, behind `hide` if its configuration names secrets."""
        hiding = SecretHiding(context.operator, [plan.config, plan.codec], self._secrets)
        with hiding.errors(ComponentError):
            built = build_component(
                kind, plan, context, resolve=lambda config: resolve_secrets(config, self._secrets)
            )
        return hide(built, hiding) if hiding.needed else built


def paced(plan: SourcePlan) -> ComponentPlan:
    """The source's component; with `rows_per_second`, in batches that leave ten times a second.

    The machine spaces batches, not rows, so a batch of 8,192 rows at 100 rows a second would be
    a burst every 82 seconds. A `batch_rows` that the user wrote stands.
    """
    component = plan.component
    model = component_model(ComponentKind.INPUT, component.type)
    if plan.rows_per_second is None or model is None or "batch_rows" in component.config:
        return component
    field = model.model_fields.get("batch_rows")
    if field is None:
        return component
    rows = min(int(field.default), max(1, int(plan.rows_per_second / BATCHES_PER_SECOND)))
    return replace(component, config={**component.config, "batch_rows": rows})


__all__ = ["RegistryComponents", "paced"]
