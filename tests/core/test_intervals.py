"""Which stretch of time does a run stand for, in any zone and on any day of the year?"""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import ZONES, changes_of_clock, follow_each_other, moment, span

from twice.errors import Misuse
from twice.intervals import Interval, Schedule, floor, parse_moment, period, utc_text, zone_named

HOUR = timedelta(hours=1)
CLOCKS = st.tuples(st.sampled_from(ZONES), st.integers(1991, 2024)).filter(lambda clock: changes_of_clock(*clock))
CRON = st.builds(
    "{} {} {} * {}".format,
    st.sampled_from(["0", "30", "*/10", "*/20", "7,38", "59"]),
    st.sampled_from(["*", "0", "2", "*/2", "1-4", "0,2,3", "23"]),
    st.sampled_from(["*", "*", "*", "1", "29-31"]),
    st.sampled_from(["*", "*", "0", "mon-fri"]),
)
EVERY = st.builds(
    "{} {}".format,
    st.sampled_from([1, 2, 3, 5, 12, 23, 36]),
    st.sampled_from(["minutes", "hours", "days", "weeks", "months", "years"]),
)


# ------------------------------------------------------------------ days, hours, weeks, months, years


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("UTC", "2024-03-31", 24),
        ("Europe/Warsaw", "2024-03-31", 23),
        ("Europe/Warsaw", "2024-10-27", 25),
        ("America/New_York", "2024-03-10", 23),
        ("America/New_York", "2024-11-03", 25),
        ("Australia/Lord_Howe", "2024-10-06", 23.5),
        ("Australia/Lord_Howe", "2024-04-07", 24.5),
        ("America/Sao_Paulo", "2018-11-04", 23),
        ("Africa/Cairo", "2024-04-26", 23),
        ("America/Havana", "2024-11-03", 25),
        ("Pacific/Apia", "2011-12-29", 24),
        ("Pacific/Apia", "2011-12-31", 24),
    ],
)
def test_a_day_is_as_long_as_its_zone_says(zone, day, hours):
    assert Schedule("1 day", "2010-01-01", zone).at(day).length == timedelta(hours=hours)


@pytest.mark.parametrize(
    ("every", "start", "end"),
    [
        ("1 minute", "2024-02-01T00:00Z", "2024-02-01T00:01Z"),
        ("15 minutes", "2024-02-01T00:00Z", "2024-02-01T00:15Z"),
        ("1 hour", "2024-02-01T00:00Z", "2024-02-01T01:00Z"),
        ("1 Day", "2024-02-01T00:00Z", "2024-02-02T00:00Z"),
        ("10 days", "2024-02-01T00:00Z", "2024-02-11T00:00Z"),
        ("1 week", "2024-01-29T00:00Z", "2024-02-05T00:00Z"),
        ("1 month", "2024-02-01T00:00Z", "2024-03-01T00:00Z"),
        ("3 months", "2023-12-01T00:00Z", "2024-03-01T00:00Z"),
        ("1 year", "2024-01-01T00:00Z", "2025-01-01T00:00Z"),
        (" 2 years ", "2024-01-01T00:00Z", "2026-01-01T00:00Z"),
    ],
)
def test_the_first_interval_has_the_length_that_was_declared(every, start, end):
    assert Schedule(every, start).at(start) == Interval.of(start, end)


def test_hours_are_hours_when_the_clock_is_changed():
    schedule = Schedule("6 hours", "2024-03-30", "Europe/Warsaw")
    found = list(schedule.from_to(moment("2024-03-30T23:00Z"), moment("2024-04-01T23:00Z")))
    assert {interval.length for interval in found} == {6 * HOUR}
    assert follow_each_other(found)


def test_a_week_is_an_iso_week():
    assert Schedule("1 week", "2024-01-01").around(moment("2024-12-31")) == span("2024-12-30", "2025-01-06")


def test_a_date_means_its_midnight_in_the_zone():
    schedule = Schedule("1 day", "2024-10-01", "Europe/Warsaw")
    assert schedule.at("2024-10-07").text == "2024-10-06T22:00Z/2024-10-07T22:00Z"
    assert schedule.at("2024-10-07T00:00+02:00") == schedule.at("2024-10-06T22:00Z") == schedule.at("2024-10-07")


def test_a_day_that_the_zone_left_out_is_no_interval_of_its_own():
    schedule = Schedule("1 day", "2011-12-01", "Pacific/Apia")
    found = schedule.from_to(moment("2011-12-29T00:00Z"), moment("2012-01-02T00:00Z"))
    assert [f"{i.start.astimezone(schedule.tz):%m-%d}" for i in found] == ["12-29", "12-31", "01-01", "01-02"]


@pytest.mark.parametrize(
    ("zone", "day"),
    [("America/Sao_Paulo", "2018-11-04"), ("Africa/Cairo", "2024-04-26"), ("Asia/Beirut", "2024-03-31")],
)
def test_a_calendar_may_start_on_a_day_that_has_no_midnight(zone, day):
    after = (date.fromisoformat(day) + timedelta(days=1)).isoformat()
    schedule = Schedule("1 day", day, zone)
    assert schedule.at(day).length == 23 * HOUR
    assert schedule.at(after).start == schedule.at(day).end == moment_in(zone, after)


def moment_in(zone, day):
    return parse_moment(day, zone_named(zone)).astimezone(UTC)


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize("naive", ["2024-10-07T06:00", "20241007", datetime(2024, 10, 7)])
def test_a_time_without_an_offset_is_refused(naive):
    with pytest.raises(Misuse, match="no offset from UTC"):
        Schedule("1 day", "2024-10-01").at(naive)


def test_an_interval_of_naive_times_is_refused():
    with pytest.raises(Misuse, match="no offset from UTC"):
        Interval(datetime(2024, 10, 7), datetime(2024, 10, 8, tzinfo=UTC))


@pytest.mark.parametrize("end", ["2024-10-07T00:00Z", "2024-10-06T23:00Z"])
def test_an_interval_that_does_not_last_is_refused(end):
    with pytest.raises(Misuse, match="ends at or before its start"):
        Interval.of("2024-10-07T00:00Z", end)


@pytest.mark.parametrize("text", ["yesterday", "2024-13-01", "2024-10-7", "", "2024-10-07T25:00Z"])
def test_what_is_no_moment_is_refused(text):
    with pytest.raises(Misuse, match="is not a moment"):
        parse_moment(text)


def test_a_time_inside_an_interval_is_refused_and_the_interval_is_named():
    with pytest.raises(Misuse, match="use --at 2024-10-07T00:00Z"):
        Schedule("1 day", "2024-10-01").at("2024-10-07T05:00Z")


def test_a_time_before_the_calendar_is_refused():
    with pytest.raises(Misuse, match="before the calendar, which starts at 2024-10-01T00:00Z"):
        Schedule("1 day", "2024-10-01").at("2024-09-30")


@pytest.mark.parametrize("day", ["2024-10-08", "2024-10-09"])
def test_a_time_after_the_calendar_is_refused(day):
    with pytest.raises(Misuse, match="after the calendar"):
        Schedule("1 day", "2024-10-01", end="2024-10-08").at(day)


def test_the_last_day_before_the_end_of_the_calendar_is_its_last():
    schedule = Schedule("1 day", "2024-10-01", end="2024-10-03")
    assert schedule.at("2024-10-02").end == schedule.last
    assert len(list(schedule.closed(moment("2030-01-01")))) == 2


@pytest.mark.parametrize("zone", ["Europe/Atlantis", "", "../../etc/passwd", "/etc/localtime", "CEST\0", "Europe"])
def test_a_bad_zone_is_refused(zone):
    with pytest.raises(Misuse, match="is not a time zone"):
        Schedule("1 day", "2024-10-01", zone)


@pytest.mark.parametrize(
    "every",
    [
        "", "day", "0 days", "-1 day", "1 fortnight", "1.5 hours", "1 day 2 hours", "daily", "@reboot", "0 0 * *",
        "61 * * * *", "H H * * *",
    ],
)  # fmt: skip
def test_a_bad_every_is_refused(every):
    with pytest.raises(Misuse, match="every="):
        Schedule(every, "2024-01-01")


@pytest.mark.parametrize("every", ["R R * * *", "R(0-10) 6 * * *"])
def test_a_cron_line_that_draws_lots_is_refused(every):
    with pytest.raises(Misuse, match="every="):
        Schedule(every, "2024-01-01")


@pytest.mark.parametrize("every", ["0 0 30 2 *", "0 0 31 4,6 *"])
def test_a_cron_line_that_never_comes_is_refused(every):
    with pytest.raises(Misuse, match="every="):
        Schedule(every, "2024-01-01").at("2024-01-01")


@pytest.mark.parametrize("every", ["1000000 years", "99999999999 days", "99999999999999999999 minutes"])
def test_a_step_longer_than_the_calendar_of_python_is_refused(every):
    with pytest.raises(Misuse, match="every="):
        Schedule(every, "2024-01-01").at("2024-01-01")


@pytest.mark.parametrize(
    ("every", "start", "begins"),
    [
        ("1 hour", "2024-10-01T00:30Z", "2024-10-01T00:00:00"),
        ("1 day", "2024-10-01T06:00Z", "2024-10-01T00:00:00"),
        ("1 week", "2024-10-01", "2024-09-30T00:00:00"),
        ("1 month", "2024-10-02", "2024-10-01T00:00:00"),
        ("1 year", "2024-10-01", "2024-01-01T00:00:00"),
    ],
)
def test_a_calendar_that_starts_inside_its_unit_is_refused_and_the_beginning_is_named(every, start, begins):
    with pytest.raises(Misuse, match=begins):
        Schedule(every, start)


# ------------------------------------------------------------------ cron


def ticks(line, zone, start, end):
    schedule = Schedule(line, "2020-01-01", zone)
    return [utc_text(interval.start) for interval in schedule.from_to(moment(start), moment(end))]


def test_cron_ticks_are_times_of_the_zone():
    assert ticks("0 6 * * mon", "Europe/Warsaw", "2024-03-20T00:00Z", "2024-04-03T00:00Z") == [
        "2024-03-25T05:00Z",
        "2024-04-01T04:00Z",
    ]


def test_an_hour_that_the_clock_skips_has_no_tick_of_its_own():
    assert ticks("0 * * * *", "Europe/Warsaw", "2024-03-31T00:00Z", "2024-03-31T03:00Z") == [
        "2024-03-31T00:00Z",
        "2024-03-31T01:00Z",
        "2024-03-31T02:00Z",
    ]


def test_a_tick_that_the_clock_skips_falls_on_the_moment_after_the_gap():
    assert ticks("30 2 * * *", "Europe/Warsaw", "2024-03-30T12:00Z", "2024-04-01T12:00Z") == [
        "2024-03-31T01:00Z",
        "2024-04-01T00:30Z",
    ]


def test_an_hour_that_the_clock_repeats_belongs_to_one_interval():
    assert ticks("*/30 * * * *", "Europe/Warsaw", "2024-10-27T00:00Z", "2024-10-27T02:30Z") == [
        "2024-10-27T00:00Z",
        "2024-10-27T00:30Z",
        "2024-10-27T02:00Z",
    ]


def test_a_daily_tick_in_the_repeated_hour_comes_once():
    assert ticks("30 1 * * *", "America/New_York", "2024-11-02T12:00Z", "2024-11-04T12:00Z") == [
        "2024-11-03T05:30Z",
        "2024-11-04T06:30Z",
    ]


def test_intervals_do_not_overlap_where_the_clock_skips_half_an_hour():
    schedule = Schedule("*/20 * * * *", "2024-01-01", "Australia/Lord_Howe")
    found = list(schedule.from_to(moment("2024-10-05T15:00Z"), moment("2024-10-05T17:00Z")))
    assert follow_each_other(found)


def test_cron_works_across_a_day_that_the_zone_left_out():
    schedule = Schedule("0 */6 * * *", "2011-01-01", "Pacific/Apia")
    found = list(schedule.from_to(moment("2011-12-29T00:00Z"), moment("2012-01-01T00:00Z")))
    assert follow_each_other(found)
    assert {interval.length for interval in found} == {6 * HOUR}


def test_a_time_between_ticks_is_refused_and_the_tick_is_named():
    with pytest.raises(Misuse, match="use --at 2024-10-07T06:00Z"):
        Schedule("0 6 * * *", "2024-10-01").at("2024-10-07T07:00Z")


@given(clock=CLOCKS, line=CRON)
@example(clock=("Australia/Lord_Howe", 2024), line="*/20 * * * *")
@example(clock=("Antarctica/Troll", 2024), line="*/10 1-4 * * *")
@example(clock=("Pacific/Apia", 2011), line="*/20 * * * *")
@example(clock=("Pacific/Kwajalein", 1993), line="0 */2 * * *")
def test_cron_intervals_follow_each_other_around_every_change_of_the_clock(clock, line):
    schedule = Schedule(line, "1970-01-01", clock[0])
    for change in changes_of_clock(*clock):
        found = list(schedule.from_to(change - 4 * HOUR, change + 4 * HOUR))
        assert follow_each_other(found)
        assert [schedule.around(interval.end - timedelta(microseconds=1)) for interval in found] == found


# ------------------------------------------------------------------ walking along a calendar


@given(zone=st.sampled_from(ZONES), every=EVERY, start=st.datetimes(datetime(1990, 1, 2), datetime(2024, 1, 1)))
def test_intervals_follow_each_other_without_a_hole(zone, every, start):
    schedule = Schedule(every, "1990-01-01", zone)
    interval = schedule.around(start.replace(tzinfo=UTC))
    found = list(schedule.from_to(interval.start, interval.start + 20 * interval.length))
    assert found[0] == interval
    assert follow_each_other(found)


@given(clock=CLOCKS, every=EVERY, seconds=st.integers(-90_000, 90_000))
@example(clock=("Pacific/Apia", 2011), every="1 days", seconds=0)
@example(clock=("America/St_Johns", 2010), every="1 days", seconds=1800)
def test_every_moment_near_a_change_of_the_clock_lies_in_its_interval(clock, every, seconds):
    schedule = Schedule(every, "1990-01-01", clock[0])
    for change in changes_of_clock(*clock):
        near = change + timedelta(seconds=seconds)
        interval = schedule.around(near)
        assert interval.start <= near < interval.end
        assert schedule.at(interval.start) == interval


@given(
    zone=st.sampled_from(ZONES),
    every=st.one_of(CRON, EVERY.filter(lambda every: "minutes" not in every)),
    hours=st.integers(0, 40),
)
@example(zone="Europe/Paris", every="0 6 * * *", hours=12)
def test_the_newest_closed_interval_is_the_last_of_the_closed_ones(zone, every, hours):
    schedule = Schedule(every, "2024-01-01", zone)
    now = schedule.first + timedelta(hours=hours)
    assert schedule.newest_closed(now) == max(schedule.closed(now), default=None)


def test_the_newest_closed_interval_may_reach_beyond_the_end_of_the_calendar():
    schedule, now = Schedule("1 week", "2024-01-01", end="2024-01-10"), moment("2024-02-01")
    assert schedule.newest_closed(now) == max(schedule.closed(now))


def test_an_interval_is_closed_at_its_end_and_not_before():
    schedule = Schedule("1 day", "2024-10-01")
    assert schedule.newest_closed(moment("2024-10-03T00:00Z")) == schedule.at("2024-10-02")
    assert schedule.newest_closed(moment("2024-10-02T23:59Z")) == schedule.at("2024-10-01")
    assert schedule.newest_closed(moment("2024-10-01T23:59Z")) is None


def test_intervals_are_chosen_by_their_start():
    schedule = Schedule("1 day", "2024-10-01")
    found = schedule.from_to(moment("2024-10-02T12:00Z"), moment("2024-10-04T12:00Z"))
    assert list(found) == [schedule.at("2024-10-03"), schedule.at("2024-10-04")]


def test_nothing_lies_before_the_calendar():
    schedule = Schedule("1 day", "2024-10-01")
    assert list(schedule.from_to(moment("2024-01-01"), moment("2024-10-01"))) == []
    assert next(schedule.from_to(moment("2024-01-01"), moment("2024-10-05"))) == schedule.at("2024-10-01")


def test_a_cron_calendar_begins_with_its_first_tick():
    schedule = Schedule("0 6 * * *", "2024-10-01")
    assert next(schedule.from_to(schedule.first, moment("2024-10-05"))).start == moment("2024-10-01T06:00Z")


# ------------------------------------------------------------------ intervals and periods


def test_intervals_that_touch_do_not_overlap():
    first, second = span("2024-10-01", "2024-10-02"), span("2024-10-02", "2024-10-03")
    assert not first.overlaps(second)
    assert span("2024-10-01T12:00Z", "2024-10-02T12:00Z").overlaps(first)


def test_seconds_are_written_only_where_they_are_needed():
    assert utc_text(moment("2024-10-07T02:00+02:00")) == "2024-10-07T00:00Z"
    assert utc_text(moment("2024-10-07T00:00:30Z")) == "2024-10-07T00:00:30Z"
    assert utc_text(moment("2024-10-07T00:00:00.5Z")) == "2024-10-07T00:00:00.500000Z"


@pytest.mark.parametrize(
    ("unit", "label", "start", "end"),
    [
        ("hour", "20241230_05", "2024-12-30T05:00Z", "2024-12-30T06:00Z"),
        ("day", "20241230", "2024-12-30", "2024-12-31"),
        ("week", "2025_w01", "2024-12-30", "2025-01-06"),
        ("month", "2024_12", "2024-12-01", "2025-01-01"),
        ("year", "2024", "2024-01-01", "2025-01-01"),
    ],
)
def test_a_period_has_a_name_and_an_interval(unit, label, start, end):
    assert period(moment("2024-12-30T05:17Z"), unit, zone_named("UTC")) == (label, span(start, end))


def test_the_same_week_of_two_years_has_two_names():
    utc = zone_named("UTC")
    assert period(moment("2024-01-01"), "week", utc)[0] == "2024_w01"
    assert period(moment("2024-12-30"), "week", utc)[0] == "2025_w01"


@given(
    clock=CLOCKS,
    unit=st.sampled_from(["hour", "day", "week", "month", "year"]),
    minutes=st.integers(-120, 120),
)
@example(clock=("America/Havana", 2024), unit="day", minutes=30)
@example(clock=("America/St_Johns", 2010), unit="day", minutes=10)
def test_a_period_holds_its_moment_and_its_name_means_one_interval(clock, unit, minutes):
    tz = zone_named(clock[0])
    for change in changes_of_clock(*clock):
        near = change + timedelta(minutes=minutes)
        label, interval = period(near, unit, tz)
        assert interval.start <= near < interval.end
        assert period(interval.start, unit, tz) == (label, interval)
        assert period(interval.end - timedelta(microseconds=1), unit, tz) == (label, interval)


def test_the_floor_of_a_minute_is_the_minute():
    assert floor(moment("2024-10-07T06:05:31.5Z"), "minute") == moment("2024-10-07T06:05Z")
