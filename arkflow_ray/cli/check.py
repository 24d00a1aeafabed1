"""`validate` and `explain`: everything about a file, without starting anything."""

from pathlib import Path
from typing import TYPE_CHECKING

from arkflow_ray.cli.exits import ExitCode, say
from arkflow_ray.cli.problems import check, has_errors, issue_lines, summary, verdict_json

if TYPE_CHECKING:  # loading it takes as long as the rest of `validate` does
    from arkflow_ray.explained import ExplainForm


def validate(path: Path, *, lenient: bool, as_json: bool) -> int:
    """Print every mistake and warning (stderr; the verdict in JSON: stdout)."""
    project, issues = check(path, lenient=lenient)
    wrong = has_errors(issues)
    ids = [job.id for job in project.jobs] if project else []
    if as_json:
        print(verdict_json(path, issues, ids))
        return ExitCode.USAGE if wrong else ExitCode.DONE
    for line in issue_lines(issues):
        say(line)
    if wrong:
        say(summary(path, issues, ""))
        return ExitCode.USAGE
    print(f"The config is validated. {path}: {', '.join(ids)}")
    return ExitCode.DONE


def explain(path: Path, *, lenient: bool, form: "ExplainForm") -> int:
    """Print what the jobs of a file will do; its mistakes instead, if it has any."""
    as_json = form == "json"
    project, issues = check(path, lenient=lenient)
    if project is None or has_errors(issues):
        if as_json:
            print(verdict_json(path, issues, [job.id for job in project.jobs] if project else []))
            return ExitCode.USAGE
        for line in issue_lines(issues):
            say(line)
        say(summary(path, issues, "; there is nothing to explain"))
        return ExitCode.USAGE
    from arkflow_ray.explained import explain_jobs

    for line in issue_lines(issues):
        say(line)
    print(explain_jobs(project.jobs, form))
    return ExitCode.DONE


__all__ = ["explain", "validate"]
