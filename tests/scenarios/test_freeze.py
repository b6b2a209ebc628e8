"""Old periods are united in larger tables, and get columns that came later."""

import pytest

import twice
from twice.cli.views import _groups
from twice.errors import Fenced
from twice.faults import Died, armed, dying_at
from twice.intervals import parse_moment
from twice.prover import check, deaths_at_every_point

pytestmark = [pytest.mark.needs("UnitesTables")]

DAYS = ["2023-11-06", "2023-11-07", "2023-11-13", "2023-12-25", "2024-01-02"]


def fill(world):
    for day in DAYS:
        world.put(day, [f"{day}-a", f"{day}-b"])
        world.run(day)


@pytest.fixture
def visits(filled_once):
    return filled_once(fill, pattern=twice.fast_metadata_cleaner(period="week"), start="2022-12-26")


def groups(world):
    return _groups(world.project, world.pipeline, "year", parse_moment("2024-01-01"))


def freeze(world):
    for label, members in groups(world).items():
        world.store.freeze(world.target, label, members, world.project.ledger.id)


def test_readers_see_the_same_rows_and_slots_stay_vouched_for(visits):
    before = visits.table_rows("id", "day", "period")
    assert groups(visits) == {"2023": ["2023_w45", "2023_w46", "2023_w52"]}
    freeze(visits)
    assert visits.table_rows("id", "day", "period") == before
    assert groups(visits) == {}
    assert all(visits.run(day).state == "skipped" for day in DAYS)
    assert len(visits.sight().receipts) == len(DAYS)


def test_a_frozen_period_takes_no_new_edition(visits):
    freeze(visits)
    before = visits.rows()
    visits.put(DAYS[0], ["changed"])
    with pytest.raises(Fenced, match="frozen into 2023"):
        visits.run(DAYS[0])
    visits.put("2023-11-08", ["new"])
    with pytest.raises(Fenced, match="frozen into 2023"):
        visits.run("2023-11-08")
    assert visits.rows() == before


def test_new_periods_go_on_beside_a_frozen_one(visits):
    freeze(visits)
    visits.put("2024-01-09", ["next"])
    visits.run("2024-01-09")
    visits.put("2024-01-02", ["corrected"])
    visits.run("2024-01-02")
    assert len(visits.rows()) == 2 * 4 + 1 + 1


@pytest.mark.stores("parquet", "delta", "postgres")
def test_death_while_periods_are_frozen(visits, copies_of):
    visits.script = freeze
    assert len(check(deaths_at_every_point(copies_of(visits)))) >= 5


@pytest.mark.stores("parquet", "delta")
def test_a_period_that_is_being_frozen_takes_nothing(visits):
    store, name = visits.store, f"{visits.target}/2023_w45"
    store.take_over(name, store.look(name), "frozen:2023")
    visits.put(DAYS[0], ["changed"])
    with pytest.raises(Fenced, match="being frozen into 2023"):
        visits.run(DAYS[0])
    freeze(visits)
    assert visits.run(DAYS[1]).state == "skipped"


@pytest.mark.stores("parquet", "delta")
def test_tables_that_were_frozen_are_removed_once_no_kept_version_names_them(visits):
    freeze(visits)
    before = visits.rows()
    visits.store.tidy(visits.target, frozenset, keep_days=0, dry_run=False)
    visits.store.tidy(visits.target, frozenset, keep_days=0, dry_run=False)
    assert not (visits.table() / "2023_w45").exists()
    assert visits.rows() == before


def test_an_optional_column_is_added_to_old_periods(visits):
    owner = visits.project.ledger.id
    changed = visits.store.add_column(visits.target, "country", "string", owner)
    assert changed == ["2023_w45", "2023_w46", "2023_w52", "2024_w01"]
    assert visits.store.add_column(visits.target, "country", "string", owner) == []
    assert {row["country"] for row in visits.records()} == {None}
    assert all(visits.run(day).state == "skipped" for day in DAYS)


@pytest.mark.stores("parquet", "delta")
def test_a_period_that_comes_while_a_freeze_is_interrupted_is_not_lost(visits):
    with armed(dying_at("view.frozen")), pytest.raises(Died):
        freeze(visits)
    visits.put("2023-11-20", ["late"])
    visits.run("2023-11-20")
    with pytest.raises(Fenced, match="interrupted freeze"):
        freeze(visits)
    assert len(visits.rows()) == 2 * len(DAYS) + 1


def test_a_week_that_is_still_open_is_not_frozen_with_the_year_it_began_in(make_world):
    world = make_world(pattern=twice.fast_metadata_cleaner(period="week"), start="2022-12-26")
    for day in ("2024-12-16", "2024-12-23", "2024-12-30"):
        world.put(day, [day])
        world.run(day)
    found = _groups(world.project, world.pipeline, "year", parse_moment("2025-01-01"))
    assert found == {"2024": ["2024_w51", "2024_w52"]}
