"""Is every version of a log what was published, although its file says only what changed, and does the log grow slowly?"""

import json
import math
import os
import time
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from samples import receipt_of, slot_of

from twice.abilities import Work
from twice.errors import Conflict, Fenced
from twice.faults import Died, armed, dying_at, recording
from twice.sight import NO_TABLE, REPLACED, Sight
from twice.stores import manifest as log
from twice.stores.chains import since_of
from twice.stores.files import FilesStore
from twice.stores.manifest import VIEW, DataFile, Manifest, Member
from twice.stores.parquet import publishing
from twice.stores.parquet.history import Lost, states, steps
from twice.stores.sweep import sweep
from worlds import once_at

SLOTS = [slot_of(f"2024-09-{day:02}", target="parquet:lake/out").text for day in range(1, 31)]
FIRST = Manifest(0, "id", "me", schema="{}", made_by="adopt", data_version=0)


@pytest.fixture
def table(tmp_path):
    return str(tmp_path / "lake" / "out")


@pytest.fixture(scope="module", autouse=True)
def no_waiting_for_the_disk():
    """What a power cut leaves is tried elsewhere; here a log has a thousand versions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def attempt_of(number):
    return f"0123abcd-{number}-89abcdef"


def put_file(table, number, slot):
    path = os.path.join("data", attempt_of(number), "a.parquet")
    os.makedirs(os.path.dirname(os.path.join(table, path)), exist_ok=True)
    with open(os.path.join(table, path), "w") as file:
        file.write("abc")
    return DataFile(path, 3, "xxh3:1", slot)


def published(base, slot, file, number):
    """Return the version after one, with a slot's file in the place of those that it had."""
    following = log.successor(base, f"publish {attempt_of(number)}")
    generation = base.receipts[slot].generation + 1 if slot in base.receipts else 1
    receipt = receipt_of(slot, generation, attempt=attempt_of(number), first_version=following.version)
    return replace(
        following,
        files=(*(one for one in base.files if one.slot != slot), file),
        receipts={**base.receipts, slot: receipt},
        ended={one: why for one, why in base.ended.items() if one != slot},
        older={one: held for one, held in base.older.items() if one != slot},
        data_version=following.version,
    )


def publish(table, slot, number, *, base=None, began=None):
    """Publish a slot by the rules of the log, as a plan that saw a version."""
    seen = base or log.newest(table)
    generation = seen.receipts[slot].generation + 1 if slot in seen.receipts else 1
    sight = Sight(version=seen.version, receipts=seen.receipts)
    work = Work("lake/out", slot, attempt_of(number), generation, sight, began=began)
    file = put_file(table, number, slot)

    def change(now, following):
        return replace(following, files=(*(one for one in now.files if one.slot != slot), file))

    log.publish(table, work, [receipt_of(slot, generation, attempt=work.attempt)], change)


def filled(table, count):
    """Publish slots in turn, a version each, and return all states."""
    made = []
    for number in range(count):
        made.append(published(made[-1] if made else replace(FIRST, version=-1), f"s{number}", a_file(number), number))
        log.append(table, made[-1])
    return made


def a_file(number):
    return DataFile(f"data/{attempt_of(number)}/a.parquet", 3, "xxh3:1", f"s{number}")


def said(table, version):
    with open(log.manifest_path(table, version)) as file:
        return json.load(file)


def files_of_the_log(table):
    return sorted(os.listdir(log.log_folder(table)))


def make_all_old(table, days=8):
    for name in files_of_the_log(table):
        os.utime(os.path.join(log.log_folder(table), name), (time.time() - days * 86_400,) * 2)


# ------------------------------------------------------------------ the same as a list of whole states


def restored(base, old):
    following = publishing.started(log.successor(base, f"restore {old.version}"), old, sight_of(base), frozenset())
    return replace(following, files=old.files, data_version=following.version)


def sight_of(manifest):
    return Sight(manifest.version, receipts=manifest.receipts, ended=manifest.ended, gone=frozenset(manifest.ended))


def next_state(draw, made):
    """Return some version that could follow: of a publish, a restore, a sweep, a replacement, or of a view."""
    base, number = made[-1], len(made)
    slot, following = draw(st.sampled_from(SLOTS[:6])), log.successor(base, "")
    new = published(base, slot, a_file(number), number)
    swept = {name: version for name, version in base.swept.items() if version > draw(st.integers(0, number))}
    member = Member(f"w{draw(st.integers(10, 99))}", covers=("a",), files=(a_file(number),), schema="{}")
    members = sorted((member, *(one for one in base.members if one.name != member.name)), key=lambda one: one.name)
    changed = draw(st.sampled_from(base.files)) if base.files else None
    could = [
        *[new] * 6,
        restored(base, draw(st.sampled_from(made))),
        replace(following, swept={**swept, attempt_of(number): number}, forgot=number - 1),
        replace(new, files=new.files[-1:], ended=dict.fromkeys(set(new.receipts) - {slot}, f"{REPLACED} {number}")),
        replace(following, kind=VIEW, members=tuple(members), by="week", writer="trips", current=member.name),
        replace(following, schema=f'"{number}"', sealed="x" if base.is_view and not base.sealed else ""),
        replace(following, files=tuple(replace(one, size=9) if one == changed else one for one in base.files)),
    ]
    return draw(st.sampled_from(could))


@st.composite
def histories(draw):
    """Make a story of versions that ends anywhere, with a tidy now and then."""
    made, keeps = [FIRST], []
    for _ in range(draw(st.integers(1, 45))):
        made.append(next_state(draw, made))
        keeps.append(draw(st.sampled_from([None] * 9 + [1, 3, 20])))
    return made, keeps


@settings(max_examples=60, deadline=None)
@given(histories())
def test_every_kept_version_is_what_was_published_whatever_came_before_and_after(tmp_path_factory, story):
    made, keeps = story
    table = str(tmp_path_factory.mktemp("log"))
    log.append(table, made[0])
    kept = [0]
    for state, keep in zip(made[1:], keeps, strict=True):
        log.append(table, state)
        kept.append(state.version)
        if keep is not None:
            old, kept = kept[:-keep], kept[-keep:]
            bury(table, old, kept)
        assert log.newest(table) == state
    assert log.kept(table) == kept
    assert [log.load(table, version) for version in kept] == [made[version] for version in kept]
    assert all(len(chain_of(table, version)) <= 1 + sum(map(int, str(version))) for version in kept)
    walked_is_told(table, [made[version] for version in kept])


def walked_is_told(table, made):
    """What is walked through is what whole states would tell, oldest first, newest first, and out of turn."""
    expected = [publishing.state_of(state) for state in made]
    found = list(states(table))[:-1]
    assert [(one.version, dict(one.holds), one.outside) for one in reversed(found)] == [
        (one.version, dict(one.holds), one.outside) for one in expected
    ]
    before = {}
    for step, state in zip(steps(table), expected, strict=True):
        came = {slot for slot, generation in state.holds.items() if before.get(slot) != generation}
        assert (step.version, step.holds, set(step.came)) == (state.version, len(state.holds), came)
        before = state.holds
    assert set(log.entries(table, "files")) == {file for state in made for file in state.files}
    assert set(log.entries(table, "members")) == {member for state in made for member in state.members}


def bury(table, old, kept):
    needed, going = set(), log.walk(table)
    for version, _ in log.steps(table, kept, going):
        assert version == going.chain[-1]
        needed.update(going.chain)
    log.bury(table, old, needed)


def chain_of(table, version):
    going = log.walk(table)
    going.to(version)
    return going.chain


# ------------------------------------------------------------------ how it grows


def test_a_version_is_told_from_the_one_whose_last_digit_is_one_lower():
    assert [since_of(number, 0) for number in (1, 7, 10, 4730, 4700, 4000)] == [0, 6, 0, 4720, 4600, 3000]
    assert [since_of(number, 4690) for number in (4691, 4700, 4710)] == [4690, 4690, 4700]


def test_what_the_next_version_is_told_from_is_in_the_chain_of_this_one():
    for number in range(3000):
        chain, one = {number}, number
        while one:
            one = since_of(one, 0)
            chain.add(one)
        assert since_of(number + 1, 0) in chain


def test_the_log_of_a_table_grows_with_its_slots_and_not_with_their_square(table):
    count = 320
    filled(table, count)
    said_of = [said(table, version) for version in range(count)]
    entries = [len(one.get("files", ())) + len(one.get("receipts", ())) + len(one.get("gone", ())) for one in said_of]
    digits = math.ceil(math.log10(count))
    assert sum(entries) <= 2 * count * digits  # of whole states it would be 102,400
    assert sorted(entries)[count // 2] == 2  # one file and one receipt
    assert max(len(chain_of(table, version)) for version in range(count)) <= 1 + 9 * digits


def test_a_table_that_is_replaced_over_and_over_has_no_version_that_says_more_than_all_of_it(table):
    state = published(replace(FIRST, version=-1), "only", replace(a_file(0), slot="only"), 0)
    log.append(table, state)
    for number in range(1, 120):
        state = published(state, "only", replace(a_file(number), slot="only"), number)
        log.append(table, state)
    assert max(len(said(table, version)["files"]) for version in range(120)) == 1
    assert log.newest(table) == state


def test_a_table_that_each_slot_replaces_says_by_one_number_whose_rows_are_gone(table):
    made = [replace(FIRST, version=-1)]
    for number in range(120):
        new = published(made[-1], f"s{number}", a_file(number), number)
        gone = dict.fromkeys(set(new.receipts) - {f"s{number}"}, f"{REPLACED} {number}")
        made.append(replace(new, files=(a_file(number),), ended=gone))
        log.append(table, made[-1])
    assert [log.load(table, version) for version in range(120)] == made[1:]
    assert [(step.came, step.holds) for step in steps(table)] == [((f"s{number}",), 1) for number in range(120)]
    assert sum(len(said(table, version).get("ended", ())) for version in range(120)) == 0


def test_names_of_swept_attempts_end_a_month_later(table):
    publish(table, SLOTS[0], 0)
    for number in range(1, 31):
        put_file(table, number, "dead")
        sweep(table, frozenset, keep_days=0, dry_run=False)
        if number == 28:
            assert len(log.newest(table).swept) == 28
            make_all_old(table, days=31)
    newest = log.newest(table)
    # Version 27 became a tombstone in the tidy after that, and counts from then on.
    assert newest.swept == {attempt_of(number): number for number in (27, 29, 30)}
    assert (newest.version, newest.forgot) == (30, 28)


@pytest.mark.parametrize("store", ["parquet", "files"])
def test_an_attempt_whose_name_has_ended_is_refused_by_its_age_whatever_it_saw_last(table, store):
    publish(table, SLOTS[0], 0)
    seen = log.newest(table)
    for number in (1, 2):
        if store == "parquet":
            put_file(table, number, "dead")
            sweep(table, frozenset, keep_days=0, dry_run=False)
        else:
            os.makedirs(os.path.join(table, "_twice", "ready", attempt_of(number)))
            root, name = os.path.split(table)
            FilesStore(root, None).tidy(name, frozenset, keep_days=0, dry_run=False)
        make_all_old(table, days=31)
    assert list(log.newest(table).swept) == [attempt_of(2)]
    for base in (seen, log.newest(table)):
        with pytest.raises(Conflict, match="not known any more"):
            publish(table, SLOTS[1], 1, base=base, began=seen.version)
    publish(table, SLOTS[1], 3)
    assert SLOTS[1] in log.newest(table).receipts


# ------------------------------------------------------------------ logs of an older Twice


def old_manifest(version, slots, swept=()):
    """Return a manifest of format 1, as an older Twice wrote it: each said all."""
    names = ("generation", "attempt", "fingerprint", "code", "owner", "rows", "partitions", "first_version")
    receipts = [{"slot": s, **dict(zip(names, (1, attempt_of(n), "f", "c", "me", 3, [], n), strict=True))}
                for n, s in enumerate(slots)]  # fmt: skip
    files = [{"path": f"data/{attempt_of(n)}/a.parquet", "size": 3, "content": "xxh3:1", "slot": s, "partition": ""}
             for n, s in enumerate(slots)]  # fmt: skip
    return {
        "format": 1, "version": version, "table_id": "id", "owner": "me", "made_by": "publish", "data_version": version,
        "schema": "{}", "files": files, "receipts": receipts, "ended": {}, "swept": list(swept), "keep_days": 0, "older": {},
    }  # fmt: skip


@pytest.fixture
def old_table(table):
    """A table of three versions, in which a tidy swept an attempt, as an older Twice left it."""
    os.makedirs(log.log_folder(table))
    for version, swept in enumerate([(), (), (attempt_of(9),)]):
        for number, slot in enumerate(SLOTS[: version + 1]):
            put_file(table, number, slot)
        with open(log.manifest_path(table, version), "w") as file:
            json.dump(old_manifest(version, SLOTS[: version + 1], swept), file, indent=1)
    return table


def test_a_log_of_an_older_twice_is_read_and_gone_on_with(old_table):
    newest = log.newest(old_table)
    assert (list(newest.receipts), len(newest.files)) == (SLOTS[:3], 3)
    assert newest.swept == {attempt_of(9): 2}
    with pytest.raises(Conflict, match="swept"):
        publish(old_table, SLOTS[4], 9)
    publish(old_table, SLOTS[3], 3)
    assert list(log.newest(old_table).receipts) == SLOTS[:4]
    assert (said(old_table, 3)["format"], said(old_table, 3)["since"], len(said(old_table, 3)["files"])) == (2, 2, 1)
    assert [len(log.load(old_table, version).files) for version in range(4)] == [1, 2, 3, 4]
    assert [len(state.holds) for state in states(old_table)] == [4, 3, 2, 1, 0]


def test_a_tidy_keeps_of_an_older_log_what_newer_versions_are_told_from(old_table):
    publish(old_table, SLOTS[3], 3)
    sweep(old_table, frozenset, keep_days=0, dry_run=False)
    assert [len(log.load(old_table, v).files) for v in log.kept(old_table)][-1] == 4
    assert "00000002.base" in files_of_the_log(old_table)


# ------------------------------------------------------------------ tidies


def test_what_newer_versions_are_told_from_outlives_a_tidy_and_goes_with_them(table):
    made = filled(table, 25)
    make_all_old(table)
    sweep(table, frozenset, keep_days=7, dry_run=False)
    assert (log.kept(table), log.newest(table)) == ([24], made[-1])
    bases = [f"{version:08}.base" for version in (0, 10, 20, 21, 22, 23)]
    assert [name for name in files_of_the_log(table) if name.endswith(".base")] == bases
    with pytest.raises(Fenced, match="Version 20 of the table is not kept"):
        log.load(table, 20)
    for number in range(25, 31):
        made.append(published(made[-1], f"s{number}", a_file(number), number))
        log.append(table, made[-1])
    make_all_old(table)
    sweep(table, frozenset, keep_days=7, dry_run=False)
    assert log.newest(table) == made[-1]
    assert [name for name in files_of_the_log(table) if name.endswith(".base")] == [
        f"{version:08}.base" for version in (0, 10, 20)
    ]


def points_of_a_tidy(table):
    points = []
    with armed(recording(points)):
        sweep(table, frozenset, keep_days=0, dry_run=False)
    return points


def busy(table):
    """A table of a dozen versions, with a file that was replaced and one of a dead attempt."""
    for number in range(13):
        publish(table, SLOTS[number % 7], number)
    put_file(table, 99, "dead")
    return table


POINTS = (
    "sweep.listed", "parquet.sweep.bases", "parquet.sweep.linked", "parquet.sweep.buried",
    "parquet.manifest.written", "parquet.manifest.linked", "parquet.sweep.named",
)  # fmt: skip


def test_the_points_of_a_tidy_are_those_that_are_tried(table):
    assert set(points_of_a_tidy(busy(table))) == set(POINTS)


@pytest.mark.parametrize("visit", [1, 2, 5, 10])
@pytest.mark.parametrize("point", POINTS)
def test_a_tidy_that_dies_anywhere_leaves_the_table_as_it_was_and_is_finished_by_the_next(table, point, visit):
    before = log.newest(busy(table))
    try:
        with armed(dying_at(point, visit=visit)):
            sweep(table, frozenset, keep_days=0, dry_run=False)
    except Died:
        pass
    assert rows_of(log.newest(table)) == rows_of(before)
    assert all(log.load(table, version) for version in log.kept(table))
    publish(table, SLOTS[8], 50)
    sweep(table, frozenset, keep_days=0, dry_run=False)
    newest = log.newest(table)
    assert set(rows_of(newest)) == {*rows_of(before), (SLOTS[8], attempt_of(50))}
    assert holes(table) == []
    assert attempt_of(99) not in os.listdir(os.path.join(table, "data"))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_publishes_at_any_moment_of_a_tidy_keep_their_rows_and_all_others(table, point, count):
    before, done = log.newest(busy(table)), []

    def meanwhile(reached):
        if reached == point and not done:
            done.append(reached)
            for number in range(count):
                publish(table, SLOTS[10 + number], 60 + number)

    with armed(meanwhile):
        sweep(table, lambda: frozenset(map(attempt_of, (60, 61, 62))), keep_days=0, dry_run=False)
    expected = {*rows_of(before), *((SLOTS[10 + number], attempt_of(60 + number)) for number in range(count))}
    assert (set(rows_of(log.newest(table))), holes(table), done) == (expected, [], [point])
    assert all(log.load(table, version) for version in log.kept(table))


@pytest.mark.parametrize("point", POINTS)
def test_two_tidies_at_once_leave_what_newer_versions_are_told_from(table, point):
    before, done = log.newest(busy(table)), []

    def meanwhile(reached):
        if reached == point and not done:
            done.append(reached)
            publish(table, SLOTS[10], 60)
            sweep(table, frozenset, keep_days=0, dry_run=False)

    with armed(meanwhile):
        sweep(table, lambda: frozenset([attempt_of(60)]), keep_days=0, dry_run=False)
    assert set(rows_of(log.newest(table))) == {*rows_of(before), (SLOTS[10], attempt_of(60))}
    assert holes(table) == []
    assert all(log.load(table, version) for version in log.kept(table))


@pytest.mark.parametrize("point", ["parquet.manifest.written", "manifest.rebase"])
def test_tidies_at_any_moment_of_a_publish_let_it_land_on_what_is_there(table, point):
    before, done = log.newest(busy(table)), []

    def tidy(reached):
        if reached == point and not done:
            done.append(reached)
            sweep(table, lambda: frozenset([attempt_of(60)]), keep_days=0, dry_run=False)

    overtaken = once_at("parquet.manifest.written", partial(publish, table, SLOTS[12], 61))
    with armed(lambda reached: (overtaken(reached), tidy(reached))):
        publish(table, SLOTS[10], 60)
    assert done
    assert {*rows_of(before), (SLOTS[10], attempt_of(60))} <= set(rows_of(log.newest(table)))
    assert holes(table) == []


def rows_of(manifest):
    return sorted((slot, receipt.attempt) for slot, receipt in manifest.receipts.items())


def holes(table):
    return [one.path for one in log.newest(table).files if not os.path.exists(os.path.join(table, one.path))]


# ------------------------------------------------------------------ files that are gone or damaged


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_a_file_that_newer_versions_are_told_from_is_named_where_it_is_gone_or_damaged(table, damage):
    filled(table, 13)
    path = log.manifest_path(table, 10)
    if damage == "gone":
        os.unlink(path)
    else:
        os.truncate(path, 40 if damage == "cut" else 0)
    for ask in (log.newest, lambda table: log.load(table, 11), lambda table: list(steps(table))):
        with pytest.raises(Fenced, match=r"00000010.json (is gone|cannot be read)") as refused:
            ask(table)
        assert "from a backup" in refused.value.fix
    with pytest.raises(Fenced):
        publish(table, SLOTS[0], 50)
    assert log.versions(table)[-1] == 12
    assert log.load(table, 9).version == 9


def test_whether_a_version_can_be_read_is_asked_of_each_file_that_it_has(table):
    for number in range(4):
        publish(table, SLOTS[0] if number == 3 else SLOTS[number], number)
    os.unlink(os.path.join(table, "data", attempt_of(0), "a.parquet"))
    lost = Lost(table)
    for version, gone in ((0, True), (2, True), (3, False), (1, True), (NO_TABLE, False)):
        assert bool(lost(version)) == gone, version
