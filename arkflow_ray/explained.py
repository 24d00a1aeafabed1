"""`explain` over all jobs of a file: one text, one JSON object, or one diagram."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from arkflow_kernel.explain import Explanation, as_text, explain
from arkflow_kernel.explain_diagram import dot, mermaid
from arkflow_ray.config.project import CheckedJob

ExplainForm = Literal["text", "json", "mermaid", "dot"]


def explain_jobs(jobs: Sequence[CheckedJob], form: ExplainForm = "text") -> str:
    """The explanations of jobs without mistakes (C7).

    JSON: `{"jobs": [...]}`, indented. Diagrams hold all jobs, each in a frame of its own.
    """
    explanations = [_explanation(job) for job in jobs]
    if form == "json":
        told = {"jobs": [asdict(explanation) for explanation in explanations]}
        return json.dumps(told, indent=2, ensure_ascii=False)
    if form != "text":
        return (mermaid if form == "mermaid" else dot)(explanations).removesuffix("\n")
    return "\n".join(as_text(explanation) for explanation in explanations)


def _explanation(job: CheckedJob) -> Explanation:
    assert job.job is not None, "only jobs without mistakes are explained"
    assert job.graph is not None, "only jobs without mistakes are explained"
    return explain(job.job, job.graph)


__all__ = ["ExplainForm", "explain_jobs"]
