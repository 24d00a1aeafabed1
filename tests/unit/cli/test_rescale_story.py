"""What a run tells of a rescale: each phase once, what it took, why it came to nothing (K2)."""

import logging
from dataclasses import replace

import pytest

from arkflow_kernel.ids import ChainId, MonotonicMs, OperatorId, WallMs
from arkflow_kernel.metrics import ChainStatistics
from arkflow_kernel.ports import Moment
from arkflow_kernel.protocol import (
    JobOutcome,
    JobState,
    JobStatus,
    OutcomeKind,
    RescalePhases,
    RescaleStatus,
)
from arkflow_kernel.testing.plans import chain_plan, job_plan
from arkflow_ray.observability.display import LogDisplay
from arkflow_ray.observability.figures import JobFigures, RateMeter, figures
from arkflow_ray.observability.frame import jobs_frame
from arkflow_ray.observability.rescale_story import PHASES
from arkflow_ray.observability.results import job_result, results_text
from arkflow_ray.observability.story import JobStory

NOW = Moment(MonotonicMs(0), WallMs(0))
TOOK = RescalePhases(100, 200, 30, 4, 1_000)


def stand(phase: str, error: str | None = None, number: int = 1) -> RescaleStatus:
    return RescaleStatus(number, {OperatorId("counted"): 4}, phase, NOW, TOOK, error)


def status(rescale: RescaleStatus | None) -> JobStatus:
    return JobStatus(JobState.RESCALING, "", NOW, rescale=rescale)


def test_each_phase_and_the_end_are_told_once() -> None:
    story = JobStory("shop")
    phases = ["prepare", "prepare", "round", "deploy", "done", "done"]
    told = [[e.text for e in story.news(status(stand(phase)))] for phase in phases]
    assert told == [
        [f"job shop: rescaling to counted=4, prepare: {PHASES['prepare']}"],
        [],
        [f"job shop: rescaling to counted=4, round: {PHASES['round']}"],
        [f"job shop: rescaling to counted=4, deploy: {PHASES['deploy']}"],
        [
            "job shop: rescaled to counted=4 in 1,334 ms "
            "(prepare 100, round 200, end 30, claim 4, deploy 1,000)"
        ],
        [],
    ]


@pytest.mark.parametrize(
    ("phase", "said"),
    [
        ("failed", "job shop: was not rescaled to counted=4: no room"),
        (
            "taken back",
            "job shop: the rescale to counted=4 was taken back, the plan before runs again: "
            "no room",
        ),
    ],
)
def test_one_that_comes_to_nothing_is_a_warning_with_its_reason(phase: str, said: str) -> None:
    (event,) = JobStory("shop").news(status(stand(phase, "no\nroom")))
    assert (event.text, event.warning) == (said, True)
    assert event.fields["error"] == "no\nroom"


def test_a_later_one_is_told_again() -> None:
    story = JobStory("shop")
    story.news(status(stand("done")))
    assert len(story.news(status(stand("done", number=2)))) == 1


def shown(state: JobState, rescale: RescaleStatus | None) -> JobFigures:
    return JobFigures("shop", state, chains=3, ready=3, rescale=rescale)


def test_the_live_display_shows_the_phase_while_it_lasts() -> None:
    frame = jobs_frame([shown(JobState.RESCALING, stand("round"))], {}, 1.0, (80, 24))
    assert "rescaling, round" in frame[1]
    over = jobs_frame([shown(JobState.RUNNING, stand("done"))], {}, 1.0, (80, 24))
    assert "rescaling" not in over[1]


def test_log_lines_show_the_phase_and_the_state_only_when_it_runs_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "arkflow_ray")
    now = [0.0]
    display = LogDisplay(lambda: now[0])
    for state, rescale in [
        (JobState.RUNNING, None),
        (JobState.RESCALING, stand("round")),
        (JobState.RESCALING, stand("deploy")),
        (JobState.RUNNING, stand("done")),
    ]:
        display.update([shown(state, rescale)])
        now[0] += 11
    assert caplog.messages == [
        "job shop is running, 3 of 3 chains are up",
        "job shop: rescaling (deploy), 0 rows read, 0 written, 0 rows/s, 0 bad",
        "job shop is running, 3 of 3 chains are up",
    ]
    assert vars(caplog.records[1])["fields"]["rescale"]["phase"] == "deploy"


def test_a_rate_is_not_negative_when_another_attempt_counts_from_nothing() -> None:
    meter = RateMeter()
    rates = [meter.sample(float(second), rows) for second, rows in enumerate([0, 100, 0, 50, 100])]
    assert rates == [0.0, 100.0, 0.0, 50.0, 50.0]


def test_a_result_after_a_rescale_says_whose_figures_it_shows() -> None:
    graph = job_plan(chain_plan("a-0", sinks=("out",)), name="shop")
    chain = ChainStatistics(ChainId("a-0"), rows_in=5)
    last = figures(graph, replace(status(stand("done")), chains={chain.chain: chain}))
    result = job_result(last, JobOutcome(OutcomeKind.STOPPED), 2.0)
    assert (result.rescales, result.rows_per_s) == (1, None)
    assert result.as_dict()["rescales"] == 1
    assert "  rescales 1; the figures are those of the last attempt\n" in results_text([result])
