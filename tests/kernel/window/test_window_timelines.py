"""Windows as pictures: what comes in, item by item, and what leaves (W6, W7, W10, N2, N5)."""

from tests.kernel.window.timeline import Timeline, window

YEAR_1, YEAR_9999_END = -62_135_596_800_000, 253_402_300_799_999


def test_a_window_fires_when_the_watermark_reaches_its_end_and_not_before() -> None:
    line = Timeline(window(1_000))
    given = "a1@0 a2@999 | w=999 | w=1000              | w=2000"
    fired = "-           | -     | a[0,1000)=3/2 | -"
    assert line.play(given) == " | ".join(part.strip() for part in fired.split("|"))


def test_a_row_at_the_end_of_a_window_is_in_the_next() -> None:
    line = Timeline(window(1_000))
    assert line.play("a1@999 a2@1000 | w=2000") == "- | a[0,1000)=1/1 a[1000,2000)=2/1"


def test_a_row_at_the_watermark_is_not_late_while_its_window_is_open() -> None:
    line = Timeline(window(1_000))
    given = "a1@500 | w=1500 | a2@1500 a3@1499 a4@1000 | a5@999 | w=2000"
    assert line.play(given) == "- | a[0,1000)=1/1 | - | late:1 | a[1000,2000)=9/3"


def test_a_row_below_its_partitions_watermark_is_late_for_what_ends_up_to_it() -> None:
    """The stamp decides, although this operator's own watermark is far behind (W6)."""
    line = Timeline(window(1_000))
    given = "a1@100^1000 a2@100^999 a3@100 | w=1000"
    assert line.play(given) == "late:1 | a[0,1000)=5/2"


def test_times_before_1970_fall_into_windows_below_zero() -> None:
    line = Timeline(window(1_000))
    given = "a1@-1 a2@-1000 a3@-1001 a4@0 | w=-1000 | w=0 | end"
    fired = "- | a[-2000,-1000)=3/1 | a[-1000,0)=3/2 | a[0,1000)=4/1"
    assert line.play(given) == fired


def test_the_offset_moves_all_windows() -> None:
    line = Timeline(window(1_000, offset=300))
    assert line.play("a1@299 a2@300 | end") == "- | a[-700,300)=1/1 a[300,1300)=2/1"


def test_a_slide_need_not_divide_the_size() -> None:
    line = Timeline(window(10, 4))
    given = "a1@5 a2@11 | w=6 | w=10 | w=13 | end"
    fired = "- | a[-4,6)=1/1 | a[0,10)=1/1 | - | a[4,14)=3/2 a[8,18)=2/1"
    assert line.play(given) == fired


def test_a_row_at_the_end_of_a_sliding_window_is_not_in_it() -> None:
    line = Timeline(window(10, 5))
    assert line.play("a1@10 | end") == "- | a[5,15)=1/1 a[10,20)=1/1"


def test_a_sliding_row_that_is_late_for_some_windows_joins_the_others() -> None:
    line = Timeline(window(10, 5))
    given = "a1@7 | w=10 | a2@7 | w=15 | a3@7"
    assert line.play(given) == "- | a[0,10)=1/1 | - | a[5,15)=3/2 | late:1"


def test_a_stamped_sliding_row_counts_only_in_windows_that_end_after_its_stamp() -> None:
    """Also when the operator's own watermark has not fired the others yet (W7)."""
    line = Timeline(window(10, 5))
    given = "a1@7 a2@7^10 a4@7^14 a8@7^15 | w=10 | w=15"
    assert line.play(given) == "late:1 | a[0,10)=1/1 | a[5,15)=7/3"


def test_under_update_a_late_row_corrects_its_window_at_once() -> None:
    line = Timeline(window(1_000, late="update", lateness=2_000))
    given = "a1@100 | a2@900 | w=1500 | a5@1500 | a10@500 | a1@3500 | w=3500 | a7@200"
    fired = "- | - | a[0,1000)=3/2 | - | a[0,1000)=13/3! | - | a[1000,2000)=5/1 | late:1"
    assert line.play(given) == fired


def test_a_correction_tells_of_the_keys_that_changed_only() -> None:
    line = Timeline(window(1_000, late="update", lateness=2_000))
    given = "a1@1 b1@1 c1@1 | w=1000 | b5@2 d7@3"
    fired = "- | a[0,1000)=1/1 b[0,1000)=1/1 c[0,1000)=1/1 | b[0,1000)=6/2! d[0,1000)=7/1!"
    assert line.play(given) == fired


def test_a_window_that_fires_for_the_first_time_with_late_rows_of_before_is_no_update() -> None:
    line = Timeline(window(1_000, late="update", lateness=2_000))
    assert line.play("a1@1^1500 | w=1000") == "- | a[0,1000)=1/1"


def test_a_late_sliding_row_corrects_every_fired_window_that_it_is_in() -> None:
    line = Timeline(window(10, 5, late="update", lateness=4))
    given = "a1@7 b1@7 | w=15 | a2@7 | w=19 | a4@7 | a8@12 | w=24"
    fired = (
        "- | a[0,10)=1/1 b[0,10)=1/1 a[5,15)=1/1 b[5,15)=1/1 | a[5,15)=3/2!"
        " | - | late:1 | - | a[10,20)=8/1"
    )
    assert line.play(given) == fired


def test_corrections_of_one_batch_cover_several_windows_and_keys() -> None:
    line = Timeline(window(10, late="update", lateness=100))
    given = "a1@1 b1@1 a1@11 b1@11 a1@21 b1@21 | w=30 | a2@2 b2@12 a3@25"
    fired = line.play(given).split(" | ")[2]
    assert fired == "a[0,10)=3/2! b[10,20)=3/2! a[20,30)=4/2!"


def test_under_drop_the_lateness_takes_no_row() -> None:
    line = Timeline(window(1_000, late="drop"))
    assert line.play("a1@1 | w=1000 | a2@2") == "- | a[0,1000)=1/1 | late:1"


def test_under_route_late_rows_leave_with_a_mark_and_without_the_gates_column() -> None:
    line = Timeline(window(1_000, late="route"))
    assert line.play("a1@1 | w=1000 | a2@2 a3@1500^1400 a4@3^999") == (
        "- | a[0,1000)=1/1 | late:2 routed:2"
    )
    assert [batch.to_pylist() for batch in line.routed] == [
        [
            {"k": "a", "v": 2, "ts": 2, "__arkflow_late_event_route": True},
            {"k": "a", "v": 4, "ts": 3, "__arkflow_late_event_route": True},
        ]
    ]


def test_rows_without_a_time_leave_with_a_mark_of_their_own() -> None:
    line = Timeline(window(1_000, late="route"))
    assert line.play("a1@1 | w=1000 | a2@? a3@3 a5@1001 | end") == (
        "- | a[0,1000)=1/1 | late:2 routed:2 | a[1000,2000)=5/1"
    )
    marks = "__arkflow_late_event_route", "__arkflow_invalid_timestamp_route"
    assert [[row[mark] for mark in marks] for row in line.routed[0].to_pylist()] == [
        [None, True],
        [True, None],
    ]


def test_at_the_end_everything_open_fires_once() -> None:
    line = Timeline(window(10, 5, late="update", lateness=100))
    given = "a1@7 b2@1 | w=10 | end | end"
    fired = "- | b[-5,5)=2/1 a[0,10)=1/1 b[0,10)=2/1 | a[5,15)=1/1 | -"
    assert line.play(given) == fired


def test_the_years_1_and_9999_have_windows() -> None:
    line = Timeline(window(86_400_000))
    given = f"a1@{YEAR_1} a2@{YEAR_9999_END} | w=0 | end"
    assert line.play(given) == (
        f"- | a[{YEAR_1},{YEAR_1 + 86_400_000})=1/1"
        f" | a[{YEAR_9999_END + 1 - 86_400_000},{YEAR_9999_END + 1})=2/1"
    )


def test_the_window_of_a_quiet_key_closes_by_the_rows_of_others() -> None:
    line = Timeline(window(1_000))
    given = "b7@10 a1@20 | a1@1500 | w=1400 | a1@2500 | w=2400"
    assert line.play(given) == "- | - | a[0,1000)=1/1 b[0,1000)=7/1 | - | a[1000,2000)=1/1"


def test_a_null_key_is_a_key_of_its_own() -> None:
    line = Timeline(window(1_000, late="update", lateness=5_000))
    fired = line.play("_1@1 a2@2 _4@3 | w=1000 | _8@5 | save | _16@5")
    assert fired.count("[0,1000)=5/2 ") == 1
    assert fired.split(" | ")[2].endswith("[0,1000)=13/3!")
    assert fired.split(" | ")[4].endswith("[0,1000)=29/4!")


def test_rows_without_a_value_are_not_counted_and_make_no_row_alone() -> None:
    line = Timeline(window(1_000))
    assert line.play("a?@1 a2@2 b?@3 | end") == "- | a[0,1000)=2/1"


def test_without_keys_all_rows_are_of_one_window() -> None:
    line = Timeline(window(10, 5), keys=())
    given = "a1@1 b2@2 | w=10 | save | a4@11 | end"
    assert line.play(given) == (
        "- | __all__[-5,5)=3/2 __all__[0,10)=3/2 | - | - | __all__[5,15)=4/1 __all__[10,20)=4/1"
    )


# --- snapshots ---------------------------------------------------------------------------------


def test_after_a_restore_what_has_fired_stays_fired_and_open_windows_fire() -> None:
    line = Timeline(window(1_000, late="update", lateness=3_000))
    given = "a1@1 a2@1001 | w=1000 | save | a4@2 | w=1000 | w=2000 | save | end"
    fired = "- | a[0,1000)=1/1 | - | a[0,1000)=5/2! | - | a[1000,2000)=2/1 | - | -"
    assert line.play(given) == fired


def test_after_a_restore_lateness_is_judged_by_the_watermark_of_before() -> None:
    line = Timeline(window(1_000))
    assert line.play("a1@1 | w=1000 | save | a2@2") == "- | a[0,1000)=1/1 | - | late:1"


def test_a_stamped_sliding_row_keeps_its_cut_over_a_restore() -> None:
    line = Timeline(window(10, 5))
    given = "a1@7 | a2@7^10 | save | a4@8 | save | w=10 | save | w=15"
    assert line.play(given) == "- | - | - | - | - | a[0,10)=5/2 | - | a[5,15)=7/3"


# --- processing time ---------------------------------------------------------------------------


def test_by_the_wall_clock_rows_count_when_they_come_and_windows_fire_at_their_end() -> None:
    """N9"""
    line = Timeline(window(1_000, event_time=False), wall_ms=100)
    assert line.operator.timer() is None
    assert line.play("a1@77777 a2@-5") == "-"
    assert line.operator.timer() == 1_000
    assert line.play("t=999 | b4@0 | t=1000 | t=1000") == (
        "- | - | a[0,1000)=3/2 b[0,1000)=4/1 | -"
    )
    assert line.operator.timer() is None
    assert line.play("w=50000") == "-"


def test_by_the_wall_clock_a_sliding_windows_timer_is_the_next_end() -> None:
    line = Timeline(window(10, 5, event_time=False), wall_ms=2)
    line.play("a1@0")
    assert line.operator.timer() == 5
    assert line.play("t=5") == "a[-5,5)=1/1"
    assert line.operator.timer() == 10
    assert line.play("t=12") == "a[0,10)=1/1"
    assert line.operator.timer() is None


def test_after_a_restore_what_is_past_fires_at_the_first_tick() -> None:
    line = Timeline(window(1_000, event_time=False), wall_ms=100)
    line.play("a1@0 | save")
    assert line.operator.timer() == 1_000
    assert line.play("t=70000") == "a[0,1000)=1/1"


def test_a_wall_clock_that_was_set_back_by_a_restore_loses_no_row() -> None:
    line = Timeline(window(1_000, event_time=False), wall_ms=100)
    line.play("a1@0 | t=5000 | save")
    line.wall_ms = 200
    assert line.play("a2@0 | t=5999 | t=6000") == "- | - | a[5000,6000)=2/1"


def test_at_the_end_windows_of_the_wall_clock_fire_too() -> None:
    line = Timeline(window(1_000, event_time=False), wall_ms=100)
    assert line.play("a1@0 | end | end") == "- | a[0,1000)=1/1 | -"
