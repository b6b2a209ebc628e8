"""Which mistakes must our own tools find?

Patterns, stores, executors, sources and pipelines that are broken on purpose, each by a small change of the real code,
with the way that must catch it. `given` is the world in which it is tried, broken or not.
"""

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

import twice
from twice import backfills, considered, decide, execute, merges, replays
from twice.abilities import Work
from twice.errors import Conflict
from twice.execute import _Attempt
from twice.faults import reach
from twice.ledger import Ledger
from twice.patterns import fast_metadata_cleaner, stateful_merger
from twice.patterns.data_overwrite import DataOverwrite
from twice.patterns.fast_metadata_cleaner import FastMetadataCleaner
from twice.patterns.stateful_merger import StatefulMerger
from twice.patterns.transactional_writer import TransactionalWriter
from twice.sight import Sight, State
from twice.sources import files, marking
from twice.stores import durable, editions, manifest, sweep
from twice.stores.delta import DeltaStore, upkeep
from twice.stores.delta import log as delta_log
from twice.stores.delta import store as delta_store
from twice.stores.delta.jvm import Transaction
from twice.stores.memory import MemoryStore
from twice.stores.parquet import ParquetStore
from twice.stores.postgres import publishing, targets, unmoved
from twice.stores.postgres.kinds import Fitted
from ways import Clock

Patch = Callable[[Any], None]


@dataclass(frozen=True)
class Mutant:
    """One mistake: its name, what it breaks, the way that must catch it, what that way must see, and how it is made."""

    name: str
    breaks: str
    way: str
    shows: str
    patch: Patch
    given: Mapping[str, Any] = field(default_factory=dict)
    broken: Mapping[str, Any] = field(default_factory=dict)
    store: str = "memory"


MUTANTS: list[Mutant] = []


def mutant(
    breaks: str, *, by: str, shows: str, given: Mapping[str, Any] | None = None, store: str = "memory"
) -> Callable[[Patch], Patch]:
    """Put a mistake in the code on the list, under its function's name in words."""

    def listed(patch: Patch) -> Patch:
        MUTANTS.append(Mutant(patch.__name__.replace("_", " "), breaks, by, shows, patch, given or {}, store=store))
        return patch

    return listed


def pipeline(
    name: str, breaks: str, *, by: str, shows: str, given: Mapping[str, Any] | None = None, **broken: Any
) -> None:
    """Put a mistake of somebody's pipeline on the list."""
    MUTANTS.append(Mutant(name, breaks, by, shows, lambda patch: None, given or {}, broken))


def without(*names: str) -> Callable[..., None]:
    """Return a compare that passes over conflicts whose reason begins so."""
    real = MemoryStore._compare

    def compare(self, work, now, staged, receipts):
        try:
            real(self, work, now, staged, receipts)
        except Conflict as conflict:
            if not str(conflict).startswith(names):
                raise

    return compare


MERGER = {"pattern": twice.merger(keys=["id"])}
STATEFUL = {"pattern": twice.stateful_merger(keys=["id"])}
EACH = {"pattern": twice.stateful_merger(keys=["id"], visible="each")}
PROXY = {"pattern": twice.proxy(keep=3)}
WEEKS = {"pattern": twice.fast_metadata_cleaner(period="week")}
APPEND = {"pattern": twice.transactional_writer()}

# ---------------------------------------------------------------- stores


@mutant(
    "the store lets a publish through although the slot has moved",
    by="two at once with newer input",
    shows="'published' instead of 'Overtaken'",
)
def receipt_not_compared(patch):
    patch.setattr(MemoryStore, "_compare", without("the slot's fence"))


@mutant(
    "the store refuses only what is older than the fence",
    by="two at once with newer input",
    shows="'published' instead of 'Overtaken'",
)
def compared_by_older_instead_of_equal(patch):
    real = MemoryStore._compare

    def compare(self, work, now, staged, receipts):
        kept = [one for one in receipts if one.generation < now.receipts.get(one.slot, one).generation]
        real(self, work, now, staged, kept or [replace(receipts[0], slot="nobody's", generation=1)])

    patch.setattr(MemoryStore, "_compare", compare)


@mutant(
    "rows become visible, and no receipt says so",
    by="death at every point",
    shows="Its receipt is not in the store now",
)
def append_without_a_receipt(patch):
    real = MemoryStore._next

    def forgetful(self, work, now, staged, published):
        made = real(self, work, now, staged, published)
        return replace(made, receipts=now.receipts, rows=now.rows + made.rows)

    patch.setattr(MemoryStore, "_next", forgetful)


@mutant(
    "the receipt comes in a commit of its own, after the rows",
    by="death at every point",
    given=APPEND,
    shows="Died at memory.between: 4 rows instead of 2",
)
def receipt_after_the_rows(patch):
    real = MemoryStore.publish

    def in_two_commits(self, work, staged, receipts):
        now = self._newest(work.name)
        made = self._next(work, now, staged, receipts)
        self._append(work.name, replace(made, receipts=now.receipts, rows=now.rows + made.rows))
        reach("memory.between")
        real(self, work, replace(staged, handle=None), receipts)

    patch.setattr(MemoryStore, "publish", in_two_commits)


@mutant(
    "old rows are removed in one commit, and the new ones come in the next",
    by="a reader at every point",
    shows="a reader saw []",
)
def delete_then_insert(patch):
    real = MemoryStore.publish

    def in_two_commits(self, work, staged, receipts):
        now = self._newest(work.name)
        self._append(work.name, replace(now, number=now.number + 1, rows=()))
        reach("memory.between")
        real(self, work, staged, receipts)

    patch.setattr(MemoryStore, "publish", in_two_commits)


@mutant(
    "a name points at a version before its rows are there",
    by="a reader at every point",
    given=PROXY,
    shows="a reader saw []",
)
def view_changed_before_the_table(patch):
    real = MemoryStore.publish

    def points_first(self, work, staged, receipts):
        now = self._newest(work.name)
        self._append(work.name, replace(now, number=now.number + 1, rows=(), current=work.attempt))
        reach("memory.between")
        real(self, replace(work, base=self.look(work.name)), staged, receipts)

    patch.setattr(MemoryStore, "publish", points_first)


@mutant(
    "a draft is published over what came since the state that it was computed from",
    by="a replay beside a later slot",
    shows="rows: ",
)
def draft_published_without_the_head_rule(patch):
    patch.setattr(MemoryStore, "_compare", without("the head moved"))


@mutant(
    "an insert looks for its keys before the publish, and not in it",
    by="the same key at once",
    shows="keys: ['a', 'same']",
)
def look_at_the_target_outside_the_publish(patch):
    patch.setattr(MemoryStore, "_compare", without("the table moved since"))


@mutant(
    "rows that were fitted to older columns are published",
    by="a column that appears at the publish",
    shows="columns of the rows",
)
def columns_not_compared(patch):
    patch.setattr(MemoryStore, "_compare", without("the table has other columns"))


@mutant(
    "a slot replaces partitions that another one has filled since it looked",
    by="a late row in the partition of a neighbour",
    shows="'published' instead of 'NotPublished'",
)
def partitions_of_others_not_compared(patch):
    patch.setattr(MemoryStore, "_compare", without("another slot fills"))


@mutant(
    "a receipt is published for rows that were to be kept and are gone",
    by="rows to be kept that go away",
    shows="'published' instead of 'ProofGone'",
)
def kept_rows_not_compared(patch):
    patch.setattr(MemoryStore, "_compare", without("the rows that were to be kept"))


@mutant(
    "the store does not ask whose the table is by now",
    by="the table changes hands at the publish",
    shows="'published' instead of 'Stranger'",
)
def owner_not_compared(patch):
    patch.setattr(MemoryStore, "_compare", without("another ledger"))


@mutant(
    "whoever published last in this process gives the receipt",
    by="two slots at once",
    shows="the rerun of 2024-09-20: 'published'",
)
def receipt_read_from_the_session(patch):
    session: dict[str, Any] = {}
    real_receipt, real_next = _Attempt._receipt, MemoryStore._next

    def receipt(self, plan, part, staged, rows):
        session["receipt"] = real_receipt(self, plan, part, staged, rows)
        return session["receipt"]

    patch.setattr(_Attempt, "_receipt", receipt)
    patch.setattr(
        MemoryStore,
        "_next",
        lambda self, work, now, staged, _: real_next(self, work, now, staged, [session["receipt"]]),
    )


@mutant("rows of an older edition stay beside the new ones", by="changed input", shows="rows after the corrections")
def slice_not_cleared(patch):
    patch.setattr(
        MemoryStore,
        "_changed",
        lambda self, work, now, staged: (*now.rows, *((work.slot, row) for row in staged.handle[1])),
    )


@mutant(
    "a restore leaves every proof as it was",
    by="restore and rerun",
    shows="a slot that was restored away was not refused",
)
def restore_that_ends_no_proof(patch):
    patch.setattr(
        State, "leaves_of", lambda self, sight, published, version: replace(sight, ended={}, gone=frozenset())
    )


@mutant("fences fall with a restore", by="restore and rerun", shows="a fence never falls: 1 instead of 2")
def restore_that_takes_receipts_along(patch):
    def restored(self, name, base, version, owner):
        self._append(name, replace(self._version(name, version), number=base.version + 1))

    patch.setattr(MemoryStore, "restore", restored)


# ---------------------------------------------------------------- the transaction of a PostgreSQL table


@mutant(
    "a transaction deletes partitions that another slot has filled since the plan",
    by="a late row in the partition of a neighbour",
    shows="'published' instead of 'NotPublished'",
    store="postgres",
)
def partitions_of_others_not_compared_on_postgresql(patch):
    patch.setattr(publishing, "_check_partitions", lambda *asked: None)


@mutant(
    "a transaction publishes to a target that another ledger owns by now",
    by="the table changes hands at the publish",
    shows="'published' instead of 'Stranger'",
    store="postgres",
)
def owner_not_compared_on_postgresql(patch):
    patch.setattr(publishing, "_MOVE", publishing._MOVE.replace("owner in ('', %(owner)s) and", ""))


@mutant(
    "a transaction replaces the whole table by what was computed before a newer slot was published",
    by="a newer slot within the transaction",
    shows="rows: ",
    store="postgres",
)
def head_not_compared_on_postgresql(patch):
    patch.setattr(publishing, "_MOVE", publishing._MOVE.replace("n = %(base)s or", "true or"))


@mutant(
    "what was computed from the whole target is published although the target is another one by now",
    by="a stranger before the transaction",
    shows="'published' instead of 'ProofGone'",
    store="postgres",
)
def target_not_compared_on_postgresql(patch):
    patch.setattr(unmoved, "_state", lambda sight: ())


@mutant(
    "a transaction publishes a slot although another generation of it was published since the plan",
    by="two at once with newer input",
    shows="'published' instead of 'Overtaken'",
    store="postgres",
)
def receipt_not_compared_on_postgresql(patch):
    patch.setattr(publishing, "_AGAIN", publishing._AGAIN.replace("and generation = %(generation)s - 1 ", ""))


@mutant(
    "a first publish takes the place of one that a twin has made since the plan",
    by="two at once that append",
    shows="'published'",
    store="postgres",
)
def first_receipt_not_compared_on_postgresql(patch):
    anyhow = "on conflict (target, slot) do update set receipt = excluded.receipt returning changes"
    patch.setattr(publishing, "_FIRST", publishing._FIRST.replace("on conflict do nothing returning changes", anyhow))


@mutant(
    "a change by others between the compare of the target and the receipt counts as seen",
    by="a stranger within the transaction",
    shows="'published' instead of 'ProofGone'",
    store="postgres",
)
def changes_since_the_compare_not_counted_on_postgresql(patch):
    real = publishing._move_receipts
    patch.setattr(publishing, "_move_receipts", lambda *asked: real(*asked[:-1], None))


@mutant(
    "a receipt is published for rows that were to be kept and were changed",
    by="rows to be kept that go away",
    shows="'published' instead of 'ProofGone'",
    store="postgres",
)
def kept_rows_not_compared_on_postgresql(patch):
    patch.setattr(publishing, "_KEPT", "select true or %(target)s = %(slot)s or {now} > 0")


@mutant(
    "a receipt is published for rows that were to be kept in a table that is gone",
    by="a table to be kept that is dropped",
    shows="outcome: 'published'",
    store="postgres",
)
def dropped_table_with_kept_rows_on_postgresql(patch):
    patch.setattr(publishing, "_broken", lambda *asked: "")


@mutant(
    "a merge lets others write to the table between its reading and its COMMIT",
    by="a stranger who looks before inserting",
    shows="keys: ",
    store="postgres",
)
def merged_table_not_locked_on_postgresql(patch):
    patch.setattr(publishing, "_LOCK", publishing._LOCK.replace("share row exclusive", "access share"))


@mutant(
    "a transaction writes to a table whose rules changed since the rows were staged",
    by="an heir that comes before the publish",
    shows="'published' instead of 'Misuse'",
    store="postgres",
)
def rules_not_asked_again_on_postgresql(patch):
    patch.setattr(targets, "_refuse", lambda *found: None)


@mutant(
    "a transaction does not count the rows that the table took",
    by="a trigger that leaves a row out",
    shows="outcome: ",
    given={"pattern": twice.merger(keys=["id", "day"])},
    store="postgres",
)
def rows_taken_not_counted_on_postgresql(patch):
    patch.setattr(targets, "check_taken", lambda name, taken, *asked: taken)
    patch.setattr(targets, "check_keys", lambda *asked: None)


@mutant(
    "a transaction does not look where triggers of the table have put its rows",
    by="a trigger that moves a row",
    shows="'published' instead of 'NotPublished'",
    store="postgres",
)
def rows_not_looked_for_on_postgresql(patch):
    patch.setattr(targets, "check_there", lambda *asked: None)


@mutant(
    "a transaction does not look whether triggers of the table have left its keys as they came",
    by="a trigger that changes a key",
    shows="'published' instead of 'NotPublished'",
    store="postgres",
)
def keys_not_looked_for_on_postgresql(patch):
    patch.setattr(targets, "check_keys", lambda *asked: None)


@mutant(
    "keys are compared as they come, and not as their column compares them",
    by="two spellings of one key",
    shows="rows: 2 instead of 1",
    store="postgres",
)
def keys_compared_before_their_cast_on_postgresql(patch):
    patch.setattr(Fitted, "cast_of", lambda self, column: "")


@mutant(
    "an overwrite deletes rows that stay, and takes along what others have that references them",
    by="rows of others that reference a row",
    shows="rows of others: [] instead of",
    store="postgres",
)
def referenced_rows_deleted_on_postgresql(patch):
    patch.setattr(targets.Target, "key", ())


# ---------------------------------------------------------------- the log of a Parquet table


@mutant(
    "a manifest computed from version n is linked to whatever number is free",
    by="two links at once",
    shows="receipts: ",
)
def latest_plus_one_instead_of_base_plus_one(patch):
    def publish(table, work, receipts, change):
        base = manifest.newest(table)
        manifest.compare(base, work, receipts)
        following = change(base, manifest._with_receipts(base, work, receipts))
        while True:
            try:
                return manifest.append(table, following)
            except Conflict:
                following = replace(following, version=following.version + 1)

    patch.setattr(manifest, "publish", publish)


@mutant("a manifest takes the place of one that has its number", by="two links at once", shows="receipts: ")
def rename_instead_of_link(patch):
    patch.setattr(os, "link", os.rename)


@mutant("a manifest holds its own receipt only", by="two links at once", shows="Conflict: the slot's fence moved")
def older_receipts_not_carried(patch):
    real = manifest._with_receipts

    def alone(base, work, receipts):
        made = real(base, work, receipts)
        return replace(made, receipts={slot: one for slot, one in made.receipts.items() if slot == work.slot})

    patch.setattr(manifest, "_with_receipts", alone)


@mutant(
    "a version past its keeping is removed, and its number is free again",
    by="a sleeper wakes after a tidy",
    shows="the attempt that published the slot",
)
def number_used_twice(patch):
    real = manifest.bury

    def bury(table, old, needed):
        real(table, old, needed)
        for version in old:
            os.unlink(manifest.manifest_path(table, version))

    patch.setattr(manifest, "bury", bury)


@mutant("a tidy buries what newer versions are told from", by="tidy of a long log", shows="00000021.json is gone")
def bases_buried(patch):
    real = manifest.bury
    patch.setattr(manifest, "bury", lambda table, old, needed: real(table, old, ()))


@mutant("a version says what changed since another than it names", by="tidy of a long log", shows="receipts: ")
def told_from_another_version(patch):
    real = manifest.difference

    def difference(version, since, *states, **settings):
        made = real(version, since, *states, **settings)
        return made and replace(made, since=max(since - 1, 0))

    patch.setattr(manifest, "difference", difference)


@mutant(
    "the names of swept attempts end, and with them what refuses their publish",
    by="a sleeper wakes a month after a tidy",
    shows="files that are missing",
)
def age_of_attempts_not_compared(patch):
    patch.setattr(Work, "is_older_than", lambda self, version: False)


@mutant("a tidy removes whatever no version names", by="tidy during a live run", shows="staging was swept")
def tidy_that_ignores_live_runs(patch):
    real = sweep.sweep
    patch.setattr(sweep, "sweep", lambda table, live, **asked: real(table, frozenset, **asked))


@mutant(
    "a tidy removes files, and does not name their attempts in the log first",
    by="tidy against a sleeper",
    shows="files that are missing",
)
def tidy_that_names_nobody(patch):
    real = manifest.append
    patch.setattr(sweep.log, "append", lambda table, made: None if made.made_by == "tidy" else real(table, made))


@mutant(
    "an attempt that a tidy swept may publish when it wakes up",
    by="tidy against a sleeper",
    shows="files that are missing",
)
def swept_attempt_not_refused(patch):
    real = manifest.compare
    patch.setattr(manifest, "compare", lambda base, work, receipts: real(replace(base, swept={}), work, receipts))


@mutant(
    "a manifest gets its name before its content is on disk",
    by="power cut at the publish",
    shows="on disk before they were named: [False]",
)
def publish_before_it_is_durable(patch):
    def write(path, content):
        with open(path, "xb") as file:
            file.write(content)

    patch.setattr(durable, "_write", write)


@mutant(
    "rows are published before their files are on disk",
    by="power cut after the stage",
    shows="staged files that a power cut would take",
    store="parquet",
)
def publish_before_the_stage_is_durable(patch):
    patch.setattr("twice.stores.parquet.staging._make_durable", lambda table, files: None)


@mutant(
    "the folders of staged files are not forced to disk",
    by="power cut after the publish",
    shows="slots that are not vouched for",
    store="parquet",
)
def staged_names_not_on_disk(patch):
    patch.setattr("twice.stores.parquet.staging.sync_folders", lambda paths: None)


@mutant(
    "the names of new folders that lead to a table are not forced to disk",
    by="power cut after the publish",
    shows="rows after a power cut",
    store="parquet",
)
def way_to_the_table_not_on_disk(patch):
    patch.setattr(manifest, "sync_way_to", lambda path: None)


@mutant(
    "a manifest's name is not forced to disk",
    by="power cut after a change of hands",
    shows="instead of 'another'",
)
def manifest_name_not_on_disk(patch):
    patch.setattr(durable, "_confirm", lambda path: None)


@mutant(
    "a run that finds its receipt does not force its manifest's name to disk",
    by="power cut after a death",
    shows="rows after a power cut",
    store="parquet",
)
def skipped_before_it_is_durable(patch):
    patch.setattr(ParquetStore, "settle", lambda self, name: None)


# ---------------------------------------------------------------- the commit of a Delta table


@mutant(
    "a commit is made although its slot has another number than the plan saw",
    by="two at once that append before rows are staged",
    shows="outcome, rows: ",
    store="delta",
)
def number_not_compared_on_delta(patch):
    real = DeltaStore._before_commit

    def unmoved_anyhow(self, work, staged, receipts):
        numbers = {one.slot: one.generation - 1 for one in receipts}
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Transaction, "last_version_of", lambda self, name: numbers.get(name, 0))
            return real(self, work, staged, receipts)

    patch.setattr(DeltaStore, "_before_commit", unmoved_anyhow)


@mutant(
    "a commit is made to a table that another ledger owns by now",
    by="the table changes hands before rows are staged",
    shows="outcome, rows: ",
    store="delta",
)
def owner_not_compared_on_delta(patch):
    patch.setattr(upkeep, "check_owner", lambda now, owner: None)


@mutant(
    "a publish that was computed from the whole table is compared only with what Delta takes for a conflict",
    by="a newer slot that changes no row beside an older one",
    shows="rows: [('a', 2)] instead of [('a', 1)]",
    store="delta",
)
def head_not_compared_on_delta(patch):
    patch.setattr(delta_store, "_check_head", lambda now, base: None)


# ---------------------------------------------------------------- the log of a Delta table


@mutant(
    "a write by somebody else leaves every proof as it was",
    by="a stranger in a delta log",
    shows="slots that are not vouched for: []",
)
def foreign_commit_not_noticed(patch):
    real = delta_log.read_commit
    patch.setattr(delta_log, "read_commit", lambda table, version: replace(real(table, version), changes_data=False))


@mutant(
    "a restore of a Delta table counts as a write that ends everything",
    by="a restore in a delta log",
    shows="slots that are not vouched for",
)
def restore_taken_for_a_write(patch):
    real = delta_log.read_commit
    patch.setattr(delta_log, "read_commit", lambda table, version: replace(real(table, version), restored_to=None))


@mutant(
    "receipts of commits that a restore went behind are forgotten",
    by="a restore in a delta log",
    shows="slots that are not vouched for: []",
)
def fence_falls_with_a_restore(patch):
    real = delta_log._Walk.take

    def forgetful(self, commit):
        if not (commit.payload and any((one.restored_to or 0) < commit.version for one in self.restores)):
            real(self, commit)

    patch.setattr(delta_log._Walk, "take", forgetful)


# ---------------------------------------------------------------- the executor


@mutant(
    "the ledger says published before the store has heard of it",
    by="death at every point",
    shows="Died at publish.before: the rerun failed: The ledger knows",
)
def ledger_marked_first(patch):
    real = _Attempt._receipt

    def confirms(self, plan, part, staged, rows):
        receipt = real(self, plan, part, staged, rows)
        self.ledger.confirm(self.name, receipt, 0)
        return receipt

    patch.setattr(_Attempt, "_receipt", confirms)


@mutant(
    "a run without an answer removes what it has staged",
    by="a publish that arrives after its reply was lost",
    shows="rows after the late arrival: {}",
)
def cleanup_after_an_unknown_outcome(patch):
    real = _Attempt._settle

    def settle(self, plan, work, staged, receipts, reply):
        try:
            return real(self, plan, work, staged, receipts, reply)
        except twice.OutcomeUnknown:
            self.store.discard(work, staged)
            raise

    patch.setattr(_Attempt, "_settle", settle)


@mutant(
    "a run without an answer believes that it has published",
    by="death at every point",
    shows="said to have succeeded, but 0 rows instead of 2",
)
def lost_reply_taken_for_success(patch):
    real = _Attempt._settle

    def settle(self, plan, work, staged, receipts, reply):
        if reply.startswith("lost"):
            return self._finish(plan, plan.base, receipts[0], "published", plan.reason)
        return real(self, plan, work, staged, receipts, reply)

    patch.setattr(_Attempt, "_settle", settle)


@mutant(
    "a publish is sent again when no answer came",
    by="death at every point",
    shows="LostReply at publish.after: said to have succeeded, but the receipts differ",
)
def blind_retry(patch):
    real = _Attempt._settle

    def settle(self, plan, work, staged, receipts, reply):
        if reply.startswith("lost"):
            sight = self.store.look(work.name)
            receipts = [replace(one, generation=sight.fence(one.slot) + 1) for one in receipts]
            self.store.publish(replace(work, base=sight), staged, receipts)
        return real(self, plan, work, staged, receipts, "landed")

    patch.setattr(_Attempt, "_settle", settle)


@mutant(
    "a receipt of the same generation counts as the same work, whatever it was made of",
    by="two at once with newer input",
    shows="'skipped' instead of 'Overtaken'",
)
def twin_by_number_alone(patch):
    patch.setattr(_Attempt, "_is_twin", lambda self, found, receipt: found.generation == receipt.generation)


@mutant("a twin's work is not recognised", by="two at once", shows="('Overtaken', 2, 0)")
def twin_not_recognised(patch):
    patch.setattr(_Attempt, "_is_twin", lambda self, found, receipt: False)


@mutant(
    "rows are published although their input changed while it was read",
    by="an input that changes while it is read",
    shows="instead of ('InputsMoved', [])",
)
def inputs_not_looked_at_twice(patch):
    patch.setattr(_Attempt, "_look_again", lambda self, inputs: None)


@mutant(
    "a skip leaves the ledger behind the store",
    by="death at every point",
    shows="Died at publish.after: the ledger differs",
)
def skip_without_confirmation(patch):
    real = execute._confirmed
    patch.setattr(
        execute,
        "_confirmed",
        lambda ledger, attempt, *rest, **asked: real(ledger, attempt, *rest, **asked) if attempt else (),
    )


@mutant(
    "a replay that shows each slot does not say which ones follow",
    by="a replay shown slot by slot beside another run",
    shows="no longer vouched for",
)
def replay_not_declared(patch):
    real = _Attempt._receipt

    def receipt(self, plan, part, staged, rows):
        return replace(real(self, plan, part, staged, rows), pending=())

    patch.setattr(_Attempt, "_receipt", receipt)


@mutant(
    "nobody goes on with a replay that died half way",
    by="a replay shown slot by slot beside another run",
    shows="no longer vouched for",
)
def replay_not_taken_up(patch):
    patch.setattr(execute, "_go_on", lambda *asked: ())


@mutant(
    "a lease is honoured for ever, also that of a dead run",
    by="death at every point",
    shows="Died at lease.taken: the rerun failed",
)
def lease_that_never_ends(patch):
    patch.setattr(Ledger, "_is_live", lambda self, row, now: True)


@mutant(
    "a skip tells the ledger of the asked slot only, and not of those that were published with it",
    by="death in a replay",
    shows="the ledger differs",
)
def companions_not_confirmed(patch):
    real = execute._skip

    def alone(plan, look, job, reason=""):
        receipts = {job.slot.text: plan.base.receipts[job.slot.text]}
        return real(replace(plan, base=replace(plan.base, receipts=receipts)), look, job, reason)

    patch.setattr(execute, "_skip", alone)


@mutant("a slot that was begun once counts as done", by="death in a backfill", shows="2 rows instead of 3")
def backfill_that_counts_beginnings(patch):
    real = backfills.left_of

    def left(project, pipeline, slots, **asked):
        begun = [slot for slot in slots if project.ledger.newest_attempt(slot.text)]
        return [slot for slot in real(project, pipeline, slots, **asked) if slot not in begun]

    patch.setattr(backfills, "left_of", left)


@mutant("a backfill leaves out its last slot", by="backfill", shows="rows: ")
def backfill_ends_early(patch):
    real = backfills.slots_between
    patch.setattr(backfills, "slots_between", lambda *asked: real(*asked)[:-1])


@mutant("the generation counts attempts", by="death in a correction", shows="the rerun failed")
def generation_counts_attempts(patch):
    real = considered._decided

    def numbered(job, look, *rest):
        found = real(job, look, *rest)
        ended = [one for one in look.ledger.attempts(slot=job.slot.text) if one.state != "started"]
        return found if found.plan.skips else replace(found, plan=replace(found.plan, generation=len(ended) + 1))

    patch.setattr(considered, "_decided", numbered)


@mutant(
    "a run goes on with inputs that it resolved before the slot moved",
    by="a slot that moves before its lease is taken",
    shows="'InputsMoved' instead of 'skipped'",
)
def inputs_not_resolved_again(patch):
    def now(self, before):
        look = considered.Look(self.store, self.ledger)
        known, sight = look.at(self.job)
        return considered._decided(self.job, look, self.asked, before.fingerprint, known, sight, before.inputs)

    patch.setattr(_Attempt, "_considered_now", now)


@mutant(
    "a run does not look again once it has its lease",
    by="the table changes hands at the publish",
    shows="'Overtaken' instead of 'Stranger'",
)
def not_considered_again(patch):
    patch.setattr(_Attempt, "_considered_now", lambda self, before: before)


@mutant(
    "a refused run plans again although its slot was taken",
    by="two at once with newer input",
    shows="instead of 'Overtaken'",
)
def refusal_not_looked_into(patch):
    patch.setattr(_Attempt, "_check_refusal", lambda self, work, sight: None)


@mutant(
    "a receipt counts although its rows are gone already",
    by="a stranger right after the publish",
    shows="'published' instead of 'ProofGone'",
)
def rows_not_looked_at_when_read_back(patch):
    real = _Attempt._landed

    def landed(self, plan, work, staged, sight, found, *, mine):
        return real(self, plan, work, staged, replace(sight, ended={}), found, mine=mine)

    patch.setattr(_Attempt, "_landed", landed)


@mutant(
    "a lease on the whole target is not honoured",
    by="a starved run holds the target",
    shows="a run beside a starved one was not refused",
)
def lease_on_the_target_not_honoured(patch):
    patch.setattr(_Attempt, "_wait_for_target", lambda self: None)


@mutant("the end of a failed run is not recorded", by="a run that fails", shows="['started']")
def end_not_recorded(patch):
    patch.setattr(Ledger, "end", lambda self, attempt, state, reason="": None)


# ---------------------------------------------------------------- decisions


@mutant("the generation is what the ledger knows, and one", by="ledger stale", shows="Overtaken")
def number_from_the_ledger(patch):
    real = considered.decide

    def numbered(question, sight):
        plan = real(question, sight)
        return plan if plan.skips else replace(plan, generation=question.known.get(plan.slot.text, 0) + 1)

    patch.setattr(considered, "decide", numbered)


@mutant(
    "a slot that the ledger knows is skipped without asking the store",
    by="restore and rerun",
    shows="a slot that was restored away was not refused",
)
def skip_decided_from_the_ledger(patch):
    real = considered.decide

    def trusting(question, sight):
        return real(question, replace(sight, ended={}) if question.slot.text in question.known else sight)

    patch.setattr(considered, "decide", trusting)


@mutant(
    "rows that are no longer vouched for are built on",
    by="a stranger writes",
    shows="a run over somebody's rows was not refused",
)
def proof_not_asked_for(patch):
    patch.setattr(decide, "_check_proof", lambda question, sight: None)


@mutant("a target of another ledger is written to", by="ledger lost", shows="Overtaken")
def owner_not_asked_for(patch):
    patch.setattr(decide, "_check_owner", lambda question, sight: None)


@mutant(
    "a table that went back in time is taken for a new one",
    by="table dropped",
    shows="a run on a table that is gone was not refused",
)
def ledger_ahead_not_noticed(patch):
    patch.setattr(decide, "_check_ledger_ahead", lambda question, sight: None)


@mutant(
    "a replay starts from a version with an older edition of an earlier slot",
    by="two corrections of a history",
    shows="'2024-09-20': ['a']",
)
def old_edition_comes_back(patch):
    patch.setattr(
        replays,
        "_holds_only",
        lambda state, earlier, sight: state.known and all(slot in earlier for slot in state.holds),
    )


@mutant(
    "only the asked slot is done again, and later ones stay as they were",
    by="an older slot after a newer one",
    shows="rows: ",
)
def later_slots_not_replayed(patch):
    patch.setattr(StatefulMerger, "companions", lambda self, slot, base, *, forced: ())
    patch.setattr(StatefulMerger, "draft", lambda self, slot, base, companions, past, *, forced: None)


@mutant(
    "rows from before the first slot are in no history",
    by="rows from before a history",
    shows="rows: ",
)
def adopted_rows_not_kept(patch):
    patch.setattr(stateful_merger, "_is_adopted", lambda base: False)


@mutant(
    "a tidy takes change rows away, and refuses nobody who planned before",
    by="tidy of change rows against a sleeper",
    shows="change rows that are missing",
)
def change_rows_removed_under_a_sleeper(patch):
    patch.setattr(MemoryStore, "_move_head", lambda self, name, sight: None)


@mutant(
    "a tidy takes change rows of live runs",
    by="tidy of change rows during a live run",
    shows="change rows of a live run that were taken",
)
def change_rows_of_live_runs_removed(patch):
    patch.setattr(editions, "is_of", lambda name, attempts: False)


@mutant(
    "a slot builds on others whose rows are not vouched for",
    by="a stranger under a history",
    shows="a slot on top of somebody's rows was not refused",
)
def other_proofs_not_asked_for(patch):
    patch.setattr(decide, "_check_all_proofs", lambda question, sight: None)


@mutant(
    "a replay is gone on with although its last receipt is no proof",
    by="a stranger in a replay shown slot by slot",
    shows="a replay over somebody's rows was not refused",
)
def pending_of_any_receipt(patch):
    def pending(self):
        newest = max(self.receipts.values(), key=lambda one: one.first_version or 0, default=None)
        return newest.pending if newest else ()

    patch.setattr(Sight, "pending", property(pending))


@mutant(
    "an earlier slot is done again from whatever its input is now",
    by="an earlier input that changed since",
    shows="a replay from an input that nobody asked for was not refused",
)
def earlier_slot_as_it_is_now(patch):
    patch.setattr(considered, "_part_as_it_was", considered._part)


@mutant("slots between a version and the asked one are forgotten", by="two corrections of a history", shows="rows: ")
def slots_between_forgotten(patch):
    patch.setattr(replays, "_between", lambda state, earlier: ())


@mutant(
    "two pipelines write to one target",
    by="another pipeline on the same target",
    shows="a second pipeline was not refused",
)
def neighbours_not_looked_at(patch):
    patch.setattr(decide, "_check_neighbours", lambda slot, sight: None)


# ---------------------------------------------------------------- patterns


@mutant(
    "a deletion that is replayed brings its row back",
    by="the last delivery by force",
    shows="rows after the deletion was replayed",
)
def missing_live_guard(patch):
    real = merges._action
    patch.setattr(merges, "_action", lambda row, there, rule: "insert" if there is None else real(row, there, rule))


@mutant("a row without its key never meets itself", by="rows without a key", shows="the row was added twice")
def equals_on_null_keys(patch):
    real = merges.key_of
    patch.setattr(merges, "refuse_null_keys", lambda count, keys: None)
    patch.setattr(
        merges, "key_of", lambda row, keys: tuple(object() if one is None else one for one in real(row, keys))
    )


@mutant(
    "a late change takes the place of a newer one",
    by="an older change after a newer one",
    shows="[('a', 1)] instead of [('a', 2)]",
)
def order_not_compared(patch):
    patch.setattr(merges, "_is_late", lambda ours, theirs: False)


@mutant("rows outside the slice are published", by="rows of another day", shows="a row of another day was not refused")
def rows_outside_the_slice(patch):
    patch.setattr(DataOverwrite, "judge", lambda self, staged, work: staged)


@mutant(
    "rows that fail a test are published", by="a correction that fails a test", shows="a repeated id was not refused"
)
def tests_that_are_not_asked(patch):
    patch.setattr(_Attempt, "_tested", lambda self, staged, parts: ())


@mutant(
    "the last days of December share a table with January",
    by="the turn of the year",
    shows="rows: {'2024-12-30': ['2024-12-30']}",
)
def iso_week_with_the_calendar_year(patch):
    real = fast_metadata_cleaner.period_of

    def calendar(moment, unit, zone):
        label, interval = real(moment, unit, zone)
        return f"{moment.astimezone(zone):%Y}{label[4:]}", interval

    patch.setattr(fast_metadata_cleaner, "period_of", calendar)


@mutant(
    "a rerun of one day replaces the table of its week, and forgets the other days",
    by="changed input",
    given=WEEKS,
    shows="The whole table was replaced",
)
def companions_forgotten(patch):
    patch.setattr(FastMetadataCleaner, "companions", lambda self, slot, base, *, forced: ())


@mutant(
    "an append lets a second edition through",
    by="an append that is corrected",
    shows="a second edition of an append was not refused",
)
def second_append(patch):
    patch.setattr(TransactionalWriter, "refusal", lambda self, slot, base, *, forced: "")
    patch.setattr(
        MemoryStore,
        "_changed",
        lambda self, work, now, staged: (*now.rows, *((work.slot, row) for row in staged.handle[1])),
    )


# ---------------------------------------------------------------- inputs


@mutant("a file is known by its name, whatever is in it", by="changed input", shows="rows after the corrections")
def file_identity_by_name_only(patch):
    patch.setattr(files.FileSet, "facts", property(lambda self: [["files", mark.path] for mark in self.marks]))


@mutant("a fingerprint is never the same twice", by="twice in a row", shows="'published' instead of 'skipped'")
def fingerprint_of_the_moment(patch):
    real, numbers = considered.fingerprint_of, itertools.count()
    patch.setattr(considered, "fingerprint_of", lambda inputs, values: f"{real(inputs, values)}-{next(numbers)}")


@mutant(
    "a file that is delivered again counts as another one",
    by="twice in a row with touched files",
    shows="'published' instead of 'skipped'",
)
def file_identity_by_time(patch):
    real = files.FileSet.facts.fget
    patch.setattr(files.FileSet, "facts", property(lambda self: [*real(self), *([*mark.token] for mark in self.marks)]))


@mutant(
    "the second look compares contents, and misses a change that was undone",
    by="an input that changes and changes back",
    shows="{'2024-09-20': ['new']} instead of {'2024-09-20': ['old']}",
)
def second_look_by_content(patch):
    def still(self, mark):
        return marking.content_hash(mark.real) == mark.content

    patch.setattr(files.FileSet, "_still", still)


# ---------------------------------------------------------------- pipelines


def stamped(rows):
    return [{**row, "loaded": Clock.today} for row in rows]


def named_by_attempt(rows, run):
    return [{**row, "id": f"{row['id']}-{run.attempt}"} for row in rows]


def counted(rows, calls=[]):  # noqa: B006 - the mistake in question: state that outlives the call
    calls.append(1)
    return [{**row, "id": f"{row['id']}-{len(calls)}"} for row in rows]


pipeline(
    "date from the clock",
    "rows hold the day on which they were loaded",
    by="two clean runs",
    shows="rows of the second clean run",
    transform=stamped,
)
pipeline(
    "key that contains the attempt",
    "a rerun finds none of its own rows",
    by="twice by force",
    shows="rows after a forced rerun",
    given=MERGER,
    transform=named_by_attempt,
)
pipeline(
    "key from a counter",
    "a key depends on what ran before",
    by="twice by force",
    shows="rows after a forced rerun",
    given=MERGER,
    transform=counted,
)
pipeline(
    "key from hash()",
    "a key differs from process to process",
    by="another hash seed",
    shows="keys under the second seed",
    key="hash",
)
