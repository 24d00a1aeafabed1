"""The log of a job without a terminal: numbered lines, bounded, the oldest ones go first."""

from arkflow_ray.cluster.job_log import PAGE_BYTES_MAX, PAGE_LINES_MAX, JobLog, LoggedRows


def test_lines_are_numbered_from_one_and_told_behind_a_number() -> None:
    log = JobLog()
    log.write("a\nb\n")
    log.write("c")
    assert log.after(0) == (1, ["a", "b", "c"])
    assert log.after(2) == (3, ["c"])
    assert log.after(3) == (4, [])
    assert log.last == 3


def test_whoever_reads_too_late_sees_what_is_missing() -> None:
    log = JobLog(lines_max=2)
    for line in "abcd":
        log.write(line)
    assert log.after(0) == (3, ["c", "d"])


def test_bytes_bound_it_too() -> None:
    log = JobLog(bytes_max=10)
    log.write("12345678")
    log.write("1234")
    assert log.after(0) == (2, ["1234"])


def test_the_last_lines_begin_behind_the_number_that_tail_says() -> None:
    log = JobLog()
    log.write("a\nb\nc")
    assert log.after(log.tail(2)) == (2, ["b", "c"])
    assert log.after(log.tail(9)) == (1, ["a", "b", "c"])
    assert log.after(log.tail(0)) == (4, [])


def test_a_page_has_bounds_and_at_least_one_line() -> None:
    log = JobLog()
    log.write("\n".join("x" * 10 for _ in range(PAGE_LINES_MAX + 1)))
    assert len(log.after(0)[1]) == PAGE_LINES_MAX
    log.write("y" * (PAGE_BYTES_MAX + 1))
    log.write("z")
    first, page = log.after(PAGE_LINES_MAX + 1)
    assert (first, len(page)) == (PAGE_LINES_MAX + 2, 1)


def test_rows_of_stdout_sinks_are_lines_of_it() -> None:
    log = JobLog()
    rows = LoggedRows(log)
    rows.put(b'{"a": 1}\n{"a": "\xff"}\n')
    assert log.after(0)[1] == ['{"a": 1}', '{"a": "\ufffd"}']
    assert not rows.closed
