"""Which rows of a table belong to a slot?"""

from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from samples import ATTEMPT, ZONES, changes_of_clock, interval, receipt_of, slot_of

from twice.abilities import Work
from twice.errors import Misuse
from twice.intervals import Schedule
from twice.runs import Slot, Target
from twice.sight import Sight
from twice.slices import ColumnSlice, PredicateSlice, quoted, string_literal
from twice.stores.memory import MemoryStore

HOUR = timedelta(hours=1)
CLOCKS = st.tuples(st.sampled_from(ZONES), st.integers(1991, 2024)).filter(lambda clock: changes_of_clock(*clock))
DAY = slot_of("2024-10-07")


def slot_on(part):
    return Slot("out", Target("memory", "lake/out"), part)


def hour(number):
    return slot_on(interval(f"2024-10-07T{number:02}:00Z", "1 hour"))


WARSAW = slot_on(interval("2024-10-07", zone="Europe/Warsaw"))


def sql(slot, type_, zone="UTC", column="at"):
    return ColumnSlice(column, slot, zone).sql({column: type_})


# ------------------------------------------------------------------ types and zones


@pytest.mark.parametrize(
    ("type_", "condition"),
    [
        ("date", "`at` = DATE '2024-10-07'"),
        ("string", "`at` = '2024-10-07'"),
        ("int", "`at` = 20241007"),
        ("bigint", "`at` = 20241007"),
        ("timestamp", "`at` >= TIMESTAMP '2024-10-07 00:00:00+00:00' AND `at` < TIMESTAMP '2024-10-08 00:00:00+00:00'"),
        ("timestamp_ntz", "`at` >= TIMESTAMP_NTZ '2024-10-07 00:00:00' AND `at` < TIMESTAMP_NTZ '2024-10-08 00:00:00'"),
    ],
)
def test_a_slot_is_written_in_the_type_of_its_column(type_, condition):
    assert sql(DAY, type_) == condition


def test_a_day_is_the_day_of_the_zone_and_a_timestamp_is_utc():
    assert sql(WARSAW, "date", "Europe/Warsaw") == "`at` = DATE '2024-10-07'"
    assert sql(WARSAW, "timestamp", "Europe/Warsaw").startswith("`at` >= TIMESTAMP '2024-10-06 22:00:00+00:00'")


@pytest.mark.parametrize("type_", ["double", "boolean", "decimal(10,2)", "array<int>", "binary"])
def test_a_type_that_cannot_stand_for_a_slot_is_refused(type_):
    with pytest.raises(Misuse, match="cannot stand for a slot"):
        sql(DAY, type_)


def test_a_column_that_is_not_there_is_refused_with_a_suggestion():
    with pytest.raises(Misuse, match="Did you mean 'days'"):
        ColumnSlice("day", DAY).sql({"days": "date", "id": "string"})


@pytest.mark.parametrize("number", [0, 6, 23])
@pytest.mark.parametrize("type_", ["date", "int"])
def test_an_hourly_slot_has_no_day_of_its_own(type_, number):
    with pytest.raises(Misuse, match="several slots of 'out' may start on one"):
        sql(hour(number), type_)


@pytest.mark.parametrize(
    ("every", "start"), [("12 hours", "12:00Z"), ("0 0,10 * * *", "10:00Z"), ("8 hours", "16:00Z")]
)
def test_the_last_of_several_slots_of_a_day_does_not_own_the_day(every, start):
    part = Schedule(every, "2024-10-07").at(f"2024-10-07T{start}")
    with pytest.raises(Misuse, match="several slots of 'out' may start on one"):
        sql(slot_on(part), "date")


@pytest.mark.parametrize("number", [0, 6, 23])
def test_an_hourly_slot_is_its_first_moment_in_a_string_column(number):
    assert sql(hour(number), "string") == f"`at` = '2024-10-07T{number:02}:00Z'"


def test_a_slot_without_an_interval_is_no_range_of_time():
    with pytest.raises(Misuse, match="has no interval"):
        sql(slot_of("pl"), "timestamp")


def test_a_bound_is_as_exact_as_a_cron_line_with_seconds():
    slot = slot_on(interval("2024-10-07", "* * * * * */30"))
    assert sql(slot, "timestamp").endswith("`at` < TIMESTAMP '2024-10-07 00:00:30+00:00'")


# ------------------------------------------------------------------ keys and quoting


@pytest.mark.parametrize(("key", "condition"), [("1", "`at` = 1"), ("-7", "`at` = -7"), ("0", "`at` = 0")])
def test_a_key_that_is_a_whole_number_fits_a_number_column(key, condition):
    assert sql(slot_of(key), "int") == condition


@pytest.mark.parametrize("key", ["01", "", "-0", "+1", "1.0", "x", "-", "1 ", "٣", "²", "--1"])
def test_a_key_that_is_not_written_as_a_whole_number_is_refused(key):
    with pytest.raises(Misuse, match="not written as a whole number"):
        sql(slot_of(key), "int")


def test_two_ways_to_write_a_number_are_two_strings():
    assert sql(slot_of("1"), "string") != sql(slot_of("01"), "string")
    assert not ColumnSlice("k", slot_of("1")).holds({"k": "01"})


@pytest.mark.parametrize(
    ("text", "literal"),
    [("a", "'a'"), ("o'clock", r"'o\'clock'"), ("\\", r"'\\'"), ("\\'", r"'\\\''"), ("' OR 1=1 --", r"'\' OR 1=1 --'")],
)
def test_a_key_cannot_end_its_literal(text, literal):
    assert string_literal(text) == literal


@given(st.text())
def test_a_literal_ends_with_its_own_quote_alone(text):
    inside = string_literal(text)[1:-1].replace("\\\\", "").replace("\\'", "")
    assert "'" not in inside
    assert "\\" not in inside


def test_a_column_is_quoted():
    assert quoted("odd` name") == "`odd`` name`"
    assert sql(slot_of("x"), "string", column="a.b") == "`a.b` = 'x'"


# ------------------------------------------------------------------ plain rows


@pytest.mark.parametrize(
    ("value", "inside"),
    [
        (date(2024, 10, 7), True),
        (date(2024, 10, 8), False),
        (datetime(2024, 10, 7, tzinfo=UTC), True),
        (datetime(2024, 10, 7, 23, 59), True),
        (datetime(2024, 10, 8, tzinfo=UTC), False),
        ("2024-10-07", True),
        ("2024-10-7", False),
        (20241007, True),
        (None, False),
    ],
)
def test_a_plain_row_lies_in_the_slice_or_not(value, inside):
    assert ColumnSlice("at", DAY).holds({"at": value}) == inside


def test_a_plain_row_without_the_column_is_refused():
    with pytest.raises(Misuse, match="no column 'at'"):
        ColumnSlice("at", DAY).holds({"id": 1})


@pytest.mark.parametrize(
    ("condition", "inside"),
    [
        ("day = '2024-10-07'", True),
        ("day = '2024-10-08'", False),
        ("day = '2024-10-07' AND land IN ('pl', 'de')", True),
        ("land IS NULL", False),
        ("gap = 1", False),
        ("gap IS NULL OR land = 'x'", True),
        ("`odd name` > 1", True),
    ],
)
def test_a_predicate_is_true_false_or_unknown(condition, inside):
    row = {"day": date(2024, 10, 7), "land": "pl", "gap": None, "odd name": 2}
    assert PredicateSlice(condition).holds(row) == inside


def test_a_slice_says_what_it_is():
    assert ColumnSlice("day", DAY).text == "day = 2024-10-07"
    assert PredicateSlice("a = 1").text == PredicateSlice("a = 1").sql({}) == "a = 1"


# ------------------------------------------------------------------ on the memory store


def put(store, slot, bounds, rows):
    """Publish rows to a slice as a run would, and return how many of them lay outside it."""
    base = store.look("lake/out")
    work = Work("lake/out", slot.text, ATTEMPT, base.fence(slot.text) + 1, base)
    staged = store.stage_slice(work, rows, bounds)
    store.publish(work, staged, [receipt_of(slot, work.generation)])
    return staged.outside


def test_a_predicate_replaces_its_own_rows_on_the_memory_store():
    store = MemoryStore()
    put(store, slot_of("pl"), PredicateSlice("land = 'pl'"), [{"id": 1, "land": "pl"}])
    put(store, slot_of("de"), PredicateSlice("land = 'de'"), [{"id": 2, "land": "de"}])
    put(store, slot_of("pl"), PredicateSlice("land = 'pl'"), [{"id": 3, "land": "pl"}])
    assert store.read("lake/out") == [{"id": 2, "land": "de"}, {"id": 3, "land": "pl"}]


def test_rows_outside_a_predicate_are_counted_on_the_memory_store():
    rows = [{"id": 1, "land": "pl"}, {"id": 2, "land": "de"}, {"id": 3, "land": None}]
    assert put(MemoryStore(), slot_of("pl"), PredicateSlice("land = 'pl'"), rows) == 2


def test_keys_01_and_1_do_not_replace_each_other_on_the_memory_store():
    store = MemoryStore()
    for key in ("01", "1", "01"):
        put(store, slot_of(key), ColumnSlice("k", slot_of(key)), [{"k": key}])
    assert sorted(row["k"] for row in store.read("lake/out")) == ["01", "1"]
    assert store.look("lake/out") != Sight()


# ------------------------------------------------------------------ no two slots share a label


@given(
    clock=CLOCKS,
    every=st.sampled_from(
        ["30 minutes", "1 hour", "6 hours", "23 hours", "25 hours", "1 day", "2 days", "0 */7 * * *"]
    ),
)
@example(clock=("Europe/Warsaw", 2024), every="23 hours")
@example(clock=("Pacific/Apia", 2011), every="1 day")
@example(clock=("America/Nuuk", 2024), every="30 minutes")
@example(clock=("America/St_Johns", 2010), every="30 minutes")
def test_two_slots_never_share_a_label(clock, every):
    schedule = Schedule(every, "1990-01-01", clock[0])
    for change in changes_of_clock(*clock):
        parts = list(schedule.from_to(change - 50 * HOUR, change + 50 * HOUR))
        labels = {ColumnSlice("at", slot_on(part), clock[0]).label for part in parts}
        assert len(labels) == len(parts)


@given(clock=CLOCKS, every=st.sampled_from(["1 day", "2 days", "1 week"]))
def test_a_daily_slot_is_called_by_its_day(clock, every):
    schedule = Schedule(every, "1990-01-01", clock[0])
    for change in changes_of_clock(*clock):
        part = schedule.around(change)
        label = ColumnSlice("at", slot_on(part), clock[0]).label
        assert label == f"{part.start.astimezone(schedule.tz):%Y-%m-%d}"
