"""Builds a chain's components from the registry, with secrets resolved (M8)."""

from collections.abc import Mapping
from typing import cast

from arkflow_kernel.plan import ComponentPlan, OperatorPlan, SinkPlan, SourcePlan
from arkflow_kernel.ports import LineOutput, Operator, SinkWriter, SourceReader
from arkflow_ray.components.api import BuildContext, Built, ComponentKind
from arkflow_ray.components.building import build_component
from arkflow_ray.config.secrets import resolve_secrets


class RegistryComponents:
    """A `ComponentFactory` over the registry.

    `secrets` holds the variables that `${secret:NAME}` names, with their prefix; they go into
    configurations at
    the moment of building and nowhere else. `lines` is where `stdout` sinks print.
    """

    def __init__(self, secrets: Mapping[str, str], lines: LineOutput) -> None:
        self._secrets = secrets
        self._lines = lines

    def source(self, plan: SourcePlan) -> SourceReader:
        """See `ComponentFactory.source`."""
        context = BuildContext(plan.operator)
        return cast(SourceReader, self._build(ComponentKind.INPUT, plan.component, context))

    def operator(self, plan: OperatorPlan, workers: int) -> Operator:
        """See `ComponentFactory.operator`."""
        context = BuildContext(plan.operator, workers=workers)
        return cast(Operator, self._build(ComponentKind.PROCESSOR, plan.component, context))

    def sink(self, plan: SinkPlan) -> SinkWriter:
        """See `ComponentFactory.sink`."""
        context = BuildContext(plan.operator, lines=self._lines)
        return cast(SinkWriter, self._build(ComponentKind.OUTPUT, plan.component, context))

    def _build(self, kind: ComponentKind, plan: ComponentPlan, context: BuildContext) -> Built:
        return build_component(
            kind, plan, context, resolve=lambda config: resolve_secrets(config, self._secrets)
        )


__all__ = ["RegistryComponents"]
