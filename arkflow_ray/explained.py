"""`explain` over all jobs of a file: one text, or one JSON object."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Literal

from arkflow_kernel.explain import Explanation, as_text, explain
from arkflow_ray.config.project import CheckedJob


def explain_jobs(jobs: Sequence[CheckedJob], form: Literal["text", "json"] = "text") -> str:
    """The explanations of jobs without mistakes. JSON: `{"jobs": [...]}`, indented."""
    explanations = [_explanation(job) for job in jobs]
    if form == "json":
        told = {"jobs": [asdict(explanation) for explanation in explanations]}
        return json.dumps(told, indent=2, ensure_ascii=False)
    return "\n".join(as_text(explanation) for explanation in explanations)


def _explanation(job: CheckedJob) -> Explanation:
    assert job.job is not None, "only jobs without mistakes are explained"
    assert job.graph is not None, "only jobs without mistakes are explained"
    return explain(job.job, job.graph)


__all__ = ["explain_jobs"]
