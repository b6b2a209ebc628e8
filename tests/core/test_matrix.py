"""Which store can carry which pattern, and what does a refusal say?"""

import re

import pytest

from twice.abilities import Opening, ReplacesPartitions, ReplacesSlices, ReplacesTable, Store
from twice.errors import Misuse, Unsupported
from twice.matrix import VARIANTS, Cell, cells, check, missing
from twice.patterns.data_overwrite import DataOverwrite
from twice.stores.registry import BUILT_IN, kinds, make_store, store_class


class Tape(Store, ReplacesTable):
    """A store that can only be written from its start."""

    kind = "tape"
    lacks = {"ReplacesSlices": "a tape is written from its start"}  # noqa: RUF012 - as stores declare it


class Stone(Store):
    """A store that can do nothing."""

    kind = "stone"
    lacks = {}  # noqa: RUF012 - as stores declare it


@pytest.fixture
def with_tape(monkeypatch):
    monkeypatch.setitem(BUILT_IN, "tape", f"{__name__}:Tape")
    monkeypatch.setitem(BUILT_IN, "stone", f"{__name__}:Stone")


# ------------------------------------------------------------------ the table


def test_which_patterns_each_store_carries():
    assert {cell.pattern for cell in cells(["memory"]) if not cell.supported} == {"keyed (file)"}
    refused = {cell.pattern for cell in cells(["parquet", "delta"]) if not cell.supported}
    assert refused == {"keyed (file)", "transactional_writer (tables)"}
    assert [cell.pattern for cell in cells(["files"]) if cell.supported] == ["keyed (file)"]


@pytest.mark.parametrize(
    "cell", [cell for cell in cells() if not cell.supported], ids=lambda c: f"{c.pattern} on {c.store}"
)
def test_a_pair_that_cannot_hold_its_promise_is_refused_with_reason_and_ways_out(cell):
    with pytest.raises(Unsupported) as refused:
        check(VARIANTS[cell.pattern], cell.store, "orders")
    assert cell.reason.partition(";")[0] in str(refused.value)
    assert "a target that can:" in str(refused.value)


def test_the_table_has_a_cell_for_every_pattern_and_store(with_tape):
    assert [(cell.pattern, cell.store) for cell in cells()] == [(name, kind) for name in VARIANTS for kind in kinds()]


def test_a_cell_is_computed_from_what_a_store_inherits(with_tape):
    assert cells(["tape"])[:3] == [
        Cell("data_overwrite (table)", "tape", supported=True),
        Cell("data_overwrite (slice)", "tape", supported=False, reason="a tape is written from its start"),
        Cell("data_overwrite (partitions)", "tape", supported=False, reason="lacks ReplacesPartitions"),
    ]
    assert not any(cell.supported for cell in cells(["tape"])[3:])


@pytest.mark.parametrize(
    ("pattern", "ability"),
    [
        (DataOverwrite(), ReplacesTable),
        (DataOverwrite(slice="day"), ReplacesSlices),
        (DataOverwrite(where="a = 1"), ReplacesSlices),
        (DataOverwrite(partitions=("day",)), ReplacesPartitions),
    ],
)
def test_a_pattern_needs_the_one_ability_that_its_options_ask_for(pattern, ability):
    assert missing(pattern, Stone) == [ability]


# ------------------------------------------------------------------ refusals


def test_a_pair_that_holds_its_promise_passes(with_tape):
    check(DataOverwrite(), "tape", "orders")


def test_a_refusal_names_the_ability_the_reason_and_the_alternatives(with_tape):
    message = (
        "tape cannot carry the pattern 'data_overwrite' for pipeline 'orders'.\n"
        "  It needs ReplacesSlices; a tape is written from its start.\n"
        "  Use 'data_overwrite (table)' (tape supports it), or a target that can: memory, parquet, delta, postgres."
    )
    with pytest.raises(Unsupported, match=f"^{re.escape(message)}$") as refused:
        check(DataOverwrite(slice="day"), "tape", "orders")
    assert (refused.value.exit_code, isinstance(refused.value, Misuse)) == (2, True)


def test_a_refusal_without_a_reason_says_so(with_tape):
    with pytest.raises(Unsupported, match="It needs ReplacesPartitions; the store does not have it"):
        check(DataOverwrite(partitions=("day",)), "tape", "orders")


def test_a_store_that_can_do_nothing_names_others_alone(with_tape):
    with pytest.raises(Unsupported, match=r"a target that can: memory, parquet, delta, postgres, tape.$") as refused:
        check(DataOverwrite(), "stone", "orders")
    assert "stone supports" not in str(refused.value)


# ------------------------------------------------------------------ the registry


def test_an_unknown_store_is_refused_with_a_suggestion():
    with pytest.raises(Misuse, match=r"There is no store 'dleta'.\n  Did you mean 'delta'"):
        store_class("dleta")


def test_a_memory_store_needs_no_root():
    assert make_store("memory", Opening("", None)).look("lake/out").exists is False


@pytest.mark.parametrize("kind_", kinds())
def test_a_store_knows_its_own_kind(kind_):
    assert store_class(kind_).kind == kind_
