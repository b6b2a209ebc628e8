"""Scenarios 13 to 20: data overwrite, on every store."""

import pytest

import twice
from twice.faults import armed
from worlds import once_at

DAYS = {
    "2024-09-20": ["iphone-11", "iphone-12"],
    "2024-09-21": ["galaxy-a32", "galaxy-a33", "iphone-13", "redmi-note-10"],
    "2024-09-22": ["galaxy-", "iphone-"],
    "2024-09-23": ["galaxy-m32", "iphone-se-4", "pixel-7"],
}
FIX_22 = ["galaxy-m54", "iphone-14"]


def load(world):
    for day, ids in DAYS.items():
        world.put(day, ids)
        assert world.run(day).state == "published"


@pytest.fixture
def loaded(filled_once):
    return filled_once(load)


def test_13_first_pass(loaded):
    assert loaded.by_day() == DAYS


def test_14_targeted_fix_replaces_its_day_and_leaves_the_others_to_the_byte(loaded):
    others = {day: loaded.data_files(day) for day in DAYS if day != "2024-09-22"}
    loaded.put("2024-09-22", FIX_22)
    outcome = loaded.run("2024-09-22")
    assert (outcome.state, outcome.generation, outcome.reason) == ("published", 2, "the inputs changed")
    assert loaded.by_day() == {**DAYS, "2024-09-22": FIX_22}
    assert {day: loaded.data_files(day) for day in others} == others


@pytest.mark.parametrize("force", [False, True])
def test_15_reruns_in_any_order_leave_the_same_rows(loaded, force):
    for day in ("2024-09-23", "2024-09-20", "2024-09-22", "2024-09-21", "2024-09-21"):
        outcome = loaded.run(day, force=force)
        assert outcome.state == ("published" if force else "skipped")
    assert loaded.by_day() == DAYS


def test_16_shrinking_rerun(loaded):
    loaded.put("2024-09-21", ["only"])
    loaded.run("2024-09-21")
    assert loaded.by_day() == {**DAYS, "2024-09-21": ["only"]}
    assert len(loaded.rows()) == 8


def test_17_empty_rerun_clears_the_day(loaded):
    loaded.put("2024-09-23", [])
    outcome = loaded.run("2024-09-23")
    assert (outcome.state, outcome.rows) == ("published", 0)
    assert len(loaded.rows()) == 8
    assert loaded.run("2024-09-23").state == "skipped"


def test_17_empty_rerun_is_refused_where_the_caller_asked_for_it(loaded):
    loaded.pattern = twice.data_overwrite(slice="day", empty="fail")
    loaded.put("2024-09-23", [])
    with pytest.raises(twice.NotPublished, match="empty"):
        loaded.run("2024-09-23")
    assert loaded.by_day() == DAYS


def test_17_empty_rerun_keeps_the_rows_where_the_caller_asked_for_it(loaded):
    loaded.pattern = twice.data_overwrite(slice="day", empty="keep")
    files = loaded.data_files("2024-09-23")
    loaded.put("2024-09-23", [])
    outcome = loaded.run("2024-09-23")
    assert (outcome.state, outcome.generation, outcome.rows) == ("published", 2, 3)
    assert loaded.by_day() == DAYS
    assert loaded.data_files("2024-09-23") == files
    assert loaded.run("2024-09-23").state == "skipped"


def test_an_empty_first_run_publishes_its_receipt(world):
    world.put("2024-09-20", [])
    assert world.run("2024-09-20").state == "published"
    assert world.run("2024-09-20").state == "skipped"
    assert world.rows() == []


def test_19_failed_rerun_keeps_the_old_rows(loaded):
    def breaks(rows):
        raise ZeroDivisionError("in the middle")

    loaded.put("2024-09-21", ["new"])
    loaded.transform = breaks
    with pytest.raises(twice.NotPublished, match="in the middle"):
        loaded.run("2024-09-21")
    assert loaded.by_day() == DAYS


def test_20_all_partitions_are_rerun_whole(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["day"]))
    expected = {}
    for number in (1, 2, 3):
        day = f"2023-11-0{number}"
        expected[day] = sorted(f"{day}-{line:02}" for line in range(50))
        world.start = "2023-11-01"
        world.put(day, expected[day])
        world.run(day)
    for day in expected:
        assert world.run(day, force=True).generation == 2
    assert world.by_day() == expected


def test_rows_outside_the_slice_are_refused(loaded):
    loaded.put("2024-09-21", ["stray"], as_day="2024-09-20")
    with pytest.raises(twice.NotPublished, match="outside the slot's slice"):
        loaded.run("2024-09-21")
    assert loaded.by_day() == DAYS


# ------------------------------------------------------------------ partitions


def test_partitions_that_the_slot_no_longer_fills_go_away(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    world.put("2024-09-20", ["a", "b"])
    world.put("2024-09-21", ["x"])
    world.run("2024-09-20")
    world.run("2024-09-21")
    bystander = world.data_files("2024-09-21")
    world.put("2024-09-20", ["b", "c"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": ["b", "c"], "2024-09-21": ["x"]}
    assert world.data_files("2024-09-21") == bystander
    world.put("2024-09-20", [])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-21": ["x"]}


def test_a_text_that_is_hives_name_of_null_stays_a_text_or_is_refused(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    name = "__HIVE_DEFAULT_PARTITION__"
    world.put("2024-09-20", [name, "a"])
    if world.kind == "delta":
        with pytest.raises(twice.NotPublished, match=name):
            world.run("2024-09-20")
        assert world.rows() == []
        return
    for force in (False, True):
        world.run("2024-09-20", force=force)
        assert world.rows() == [(name, "2024-09-20"), ("a", "2024-09-20")]


def test_a_partition_of_another_slot_is_refused(make_world):
    world = make_world(pattern=twice.data_overwrite(partitions=["id"]))
    world.put("2024-09-20", ["a"])
    world.put("2024-09-21", ["a"])
    world.run("2024-09-20")
    with pytest.raises(twice.NotPublished, match="belongs to the slot 2024-09-20"):
        world.run("2024-09-21")
    assert world.rows() == [("a", "2024-09-20")]


@pytest.mark.parametrize("point", ["stage.before", "publish.before"])
def test_a_late_row_of_a_slot_side_by_side_never_meets_the_rows_of_its_day(make_world, point):
    """Each slot looked before the other one published; the second to publish must not take the first one's rows."""
    world = make_world(pattern=twice.data_overwrite(partitions=["day"]))
    world.put("2024-09-19", ["own"])
    world.run("2024-09-19")
    late = {"id": "late", "day": "2024-09-21"}
    world.put_rows("2024-09-20", [{"id": "a", "day": "2024-09-20"}, late])
    world.put("2024-09-21", ["b"])
    beside = once_at(point, lambda: world.twin().run("2024-09-20"))
    with armed(beside), pytest.raises(twice.NotPublished, match="'day=2024-09-21' belongs to the slot 2024-09-20"):
        world.run("2024-09-21")
    assert world.by_day() == {"2024-09-19": ["own"], "2024-09-20": ["a"], "2024-09-21": ["late"]}
    world.put("2024-09-20", ["a"])
    for day in ("2024-09-20", "2024-09-21"):
        assert world.run(day).state == "published"
    assert world.by_day() == {"2024-09-19": ["own"], "2024-09-20": ["a"], "2024-09-21": ["b"]}


# ------------------------------------------------------------------ predicate and whole table


def test_a_predicate_replaces_what_it_names(make_world):
    world = make_world(pattern=twice.data_overwrite(where="day = '{execution_date}'"))
    for day in ("2024-09-20", "2024-09-21"):
        world.put(day, ["a", "b"])
        world.run(day)
    world.put("2024-09-20", ["c"])
    world.run("2024-09-20")
    assert world.by_day() == {"2024-09-20": ["c"], "2024-09-21": ["a", "b"]}
    world.put("2024-09-20", ["stray"], as_day="2024-09-22")
    with pytest.raises(twice.NotPublished, match="outside"):
        world.run("2024-09-20")


def test_a_whole_table_is_replaced_and_an_older_slot_needs_force(make_world):
    world = make_world(pattern=twice.data_overwrite())
    world.put("2024-09-20", ["old"])
    world.put("2024-09-21", ["new"])
    world.run("2024-09-20")
    world.run("2024-09-21")
    assert world.rows() == [("new", "2024-09-21")]
    with pytest.raises(twice.Fenced, match="replaced"):
        world.run("2024-09-20")
    assert world.rows() == [("new", "2024-09-21")]
    assert world.run("2024-09-20", force=True).generation == 2
    assert world.rows() == [("old", "2024-09-20")]
    assert world.run("2024-09-20").state == "skipped"


def test_an_older_slot_that_never_ran_needs_force_on_a_whole_table(make_world):
    world = make_world(pattern=twice.data_overwrite())
    world.put("2024-09-20", ["old"])
    world.put("2024-09-21", ["new"])
    world.run("2024-09-21")
    with pytest.raises(twice.Fenced, match="newer slot 2024-09-21"):
        world.run("2024-09-20")
    assert world.rows() == [("new", "2024-09-21")]


def test_a_whole_table_gets_new_columns_as_declared(make_world):
    world = make_world(pattern=twice.data_overwrite(), columns={"on_new_column": "add"})
    world.put("2024-09-20", ["a"])
    world.run("2024-09-20")
    if world.plain:
        world.transform = lambda rows: [{"id": row["id"], "day": row["day"], "n": 1} for row in rows]
    else:
        world.transform = lambda rows: rows.selectExpr("id", "day", "1 AS n")
    world.put("2024-09-21", ["b"])
    assert world.run("2024-09-21").state == "published"
    assert world.rows() == [("b", "2024-09-21")]


def test_a_new_missing_or_changed_column_is_refused_in_a_slice(world):
    world.put("2024-09-20", ["a"])
    world.put("2024-09-21", ["b"])
    world.run("2024-09-20")
    changes = (
        [lambda rows: [{**row, "extra": 1} for row in rows], lambda rows: [{"day": row["day"]} for row in rows]]
        if world.plain
        else [
            lambda rows: rows.selectExpr("*", "1 AS extra"),
            lambda rows: rows.drop("id"),
            lambda rows: rows.selectExpr("length(id) AS id", "day"),
        ]
    )
    for change in changes:
        world.transform = change
        with pytest.raises(twice.NotPublished, match=r"differ in the columns|do not fit the table"):
            world.run("2024-09-21")
    assert world.rows() == [("a", "2024-09-20")]
