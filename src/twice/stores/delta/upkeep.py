"""What is done to a Delta table between publishes, and how does it stay out of their way?

Whatever changes the log is a commit of its own, under the lock that publishes hold, after the owner was compared there.
Receipts are carried forward before Delta cleans the log that holds them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twice import session_settings
from twice.errors import Conflict
from twice.sight import Sight
from twice.slices import string_literal
from twice.stores import frames, merging
from twice.stores.delta import log
from twice.stores.delta.jvm import Transaction, locked
from twice.stores.delta.log import Payload

# Numbers that are the table's own and no slot's, kept as those of slots are.
OWNER = "twice:owner"
HEAD = "twice:head"
RESTATED = "twice:restated"

_RETENTION_DAYS_DEFAULT = 30
_DAY_MILLISECONDS = 86_400_000
_CARRIED_ALWAYS = 500
_CARRIED_SHARE = 100


def vacuum(spark: Any, table: str, *, dry_run: bool) -> int:
    """Let Delta remove files by its own retention, and tell how many there were."""
    path = "delta.`" + table.replace("`", "``") + "`"
    session = spark.newSession()
    # VACUUM would note itself in the log, outside of the lock that publishes hold.
    session.conf.set("spark.databricks.delta.vacuum.logging.enabled", "false")
    files = session.sql(f"VACUUM {path} DRY RUN").collect()
    if files and not dry_run:
        session.sql(f"VACUUM {path}")
    return len(files)


def restate(spark: Any, table: str, sight: Sight) -> list[str]:
    """Carry all receipts forward in a commit that changes no data, where none carries them yet."""
    transaction = Transaction(spark, table)
    if not sight.receipts or not is_time_to_carry(table, sight, transaction, least=1):
        return []
    transaction.last_version_of(OWNER)
    number = max(transaction.last_version_of(RESTATED), 0) + 1
    payload = Payload("restate", sight.owner, "nothing", table_id=transaction.table_id).carrying(sight)
    try:
        with locked(spark, table) as lock:
            check_owner(log.look(table), sight.owner)
            transaction.commit(lock, transaction.none(), {RESTATED: number}, payload.to_text(), "Append")
    except Conflict as error:
        return [f"receipts were not restated, since the table moved: {error}"]
    return [f"{len(sight.receipts)} receipts were restated"]


def let_types_grow(spark: Any, history: str) -> None:
    """Commit that columns of a history may get wider types: no transaction can both allow and do it."""
    transaction = Transaction(spark, history)
    if not transaction.exists or transaction.types_may_grow:
        return
    transaction.let_types_grow()
    number = max(transaction.last_version_of(RESTATED), 0) + 1
    payload = Payload("evolve", "", "nothing", table_id=transaction.table_id)
    with locked(spark, history) as lock:
        transaction.commit(lock, transaction.none(), {RESTATED: number}, payload.to_text(), "Append")


def move_head(spark: Any, table: str, sight: Sight) -> None:
    """Commit the next number of the head, and nothing else."""
    transaction = Transaction(spark, table, sight.version)
    transaction.last_version_of(OWNER)
    numbers = {HEAD: max(transaction.last_version_of(HEAD), 0) + 1}
    payload = Payload("tidy", sight.owner, "nothing", table_id=transaction.table_id)
    with locked(spark, table) as lock:
        check_owner(log.look(table), sight.owner)
        transaction.commit(lock, transaction.none(), numbers, payload.to_text(), "Append")


def drop_batches(spark: Any, table: str, names: Iterable[str]) -> None:
    """Commit the removal of change rows that were kept under some names."""
    transaction = Transaction(spark, table)
    nothing = frames.read_parquet(spark, [], transaction.schema)
    condition = is_named(names)
    with session_settings.watched():
        session_settings.hold(spark)
        actions = transaction.write(nothing, {"replaceWhere": condition}, transaction.partition_columns)
    numbers = {RESTATED: max(transaction.last_version_of(RESTATED), 0) + 1}
    payload = Payload("tidy", "", "rows", table_id=transaction.table_id)
    with locked(spark, table) as lock:
        transaction.commit(lock, actions, numbers, payload.to_text(), "Overwrite", condition)


def is_named(names: Iterable[str]) -> str:
    """Return the condition that rows were kept under one of some names."""
    return f"{merging.LABEL} IN ({', '.join(map(string_literal, names))})"


def check_owner(now: Sight, owner: str) -> None:
    """The owner is compared under the lock, where no other publish can change it."""
    if now.owner not in ("", owner):
        raise Conflict("another ledger took the table")


def is_time_to_carry(table: str, sight: Sight, transaction: Transaction, least: int = 0) -> bool:
    """Tell whether receipts should be carried forward: always while they are few, else when they grow old.

    Carried receipts take about a hundred bytes each. Above a few hundred of them one publish in many
    carries them all, so that a publish stays cheap however long the history is.
    """
    count, age = log.uncarried(table)
    if count >= max(least, (len(sight.receipts) - _CARRIED_ALWAYS) // _CARRIED_SHARE):
        return True
    kept = log.days_of(transaction.table_property("delta.logRetentionDuration"), _RETENTION_DAYS_DEFAULT)
    return age > kept * _DAY_MILLISECONDS / 4
