"""How does a ledger of an older Twice become one of this Twice?

Each entry of `MIGRATIONS` takes the schema one number up, in one transaction. A released entry is
never changed: a newer Twice opens an older ledger, an older Twice refuses a newer one.
"""

from __future__ import annotations

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE facts (
        name TEXT PRIMARY KEY,
        value TEXT NOT NULL
    );
    CREATE TABLE attempts (
        attempt TEXT PRIMARY KEY,
        slot TEXT NOT NULL,
        pipeline TEXT NOT NULL,
        target TEXT NOT NULL,
        generation INTEGER NOT NULL,
        fingerprint TEXT NOT NULL,
        code TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        rows INTEGER,
        version_before INTEGER,
        version_after INTEGER,
        started_at TEXT NOT NULL,
        ended_at TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        plan TEXT NOT NULL
    );
    CREATE INDEX attempts_by_slot ON attempts (slot, started_at);
    CREATE INDEX attempts_by_time ON attempts (started_at);
    CREATE TABLE receipts (
        slot TEXT PRIMARY KEY,
        pipeline TEXT NOT NULL,
        target TEXT NOT NULL,
        generation INTEGER NOT NULL,
        receipt TEXT NOT NULL,
        version INTEGER,
        confirmed_at TEXT NOT NULL
    );
    CREATE INDEX receipts_by_target ON receipts (target);
    CREATE TABLE versions (
        target TEXT NOT NULL,
        version INTEGER NOT NULL,
        slot TEXT NOT NULL,
        generation INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        rows INTEGER NOT NULL,
        published_at TEXT NOT NULL,
        PRIMARY KEY (target, version, slot)
    );
    CREATE TABLE acceptances (
        slot TEXT PRIMARY KEY,
        outside TEXT NOT NULL,
        accepted_at TEXT NOT NULL,
        accepted_by TEXT NOT NULL
    );
    CREATE TABLE leases (
        name TEXT PRIMARY KEY,
        attempt TEXT NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        process_started TEXT NOT NULL,
        boot TEXT NOT NULL,
        expires REAL NOT NULL
    );
    CREATE TABLE targets (
        target TEXT PRIMARY KEY,
        location TEXT NOT NULL
    );
    CREATE TABLE hashes (
        file TEXT PRIMARY KEY,
        content TEXT NOT NULL
    ) WITHOUT ROWID;
    """,
    """
    CREATE TABLE retries (
        slot TEXT PRIMARY KEY,
        pipeline TEXT NOT NULL,
        target TEXT NOT NULL,
        state TEXT NOT NULL,
        tries INTEGER NOT NULL,
        generation INTEGER NOT NULL,
        asked TEXT NOT NULL,
        parameters TEXT NOT NULL,
        kind TEXT NOT NULL,
        error TEXT NOT NULL,
        first_failed_at TEXT NOT NULL,
        last_failed_at TEXT NOT NULL,
        due_at TEXT NOT NULL
    );
    CREATE INDEX retries_by_target ON retries (target);
    CREATE TABLE retries_taken (
        take TEXT PRIMARY KEY,
        slot TEXT NOT NULL,
        taken_at TEXT NOT NULL
    );
    CREATE INDEX retries_taken_by_time ON retries_taken (taken_at);
    CREATE TABLE effects (
        effect_key TEXT NOT NULL,
        attempt TEXT NOT NULL,
        slot TEXT NOT NULL,
        pipeline TEXT NOT NULL,
        target TEXT NOT NULL,
        generation INTEGER NOT NULL,
        name TEXT NOT NULL,
        form TEXT NOT NULL,
        call TEXT NOT NULL,
        published INTEGER NOT NULL,
        state TEXT NOT NULL,
        tries INTEGER NOT NULL,
        answer TEXT NOT NULL,
        intended_at TEXT NOT NULL,
        called_at TEXT NOT NULL,
        confirmed_at TEXT NOT NULL,
        PRIMARY KEY (effect_key, attempt)
    );
    CREATE INDEX effects_by_slot ON effects (slot);
    CREATE INDEX effects_by_state ON effects (state)
    """,
    """
    CREATE TABLE untold (
        attempt TEXT PRIMARY KEY,
        start_told INTEGER NOT NULL,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        process_started TEXT NOT NULL
    );
    CREATE TABLE troubles (
        slot TEXT PRIMARY KEY,
        attempt TEXT NOT NULL,
        since TEXT NOT NULL,
        tries INTEGER NOT NULL
    );
    INSERT INTO troubles (slot, attempt, since, tries)
        SELECT a.slot, a.attempt, a.started_at, 1 FROM attempts a
        WHERE a.state IN ('failed', 'refused', 'unknown', 'died')
        AND NOT EXISTS (SELECT 1 FROM attempts b WHERE b.slot = a.slot AND b.attempt <> a.attempt AND b.started_at >= a.started_at)
        AND NOT EXISTS (SELECT 1 FROM receipts r WHERE r.slot = a.slot AND r.confirmed_at >= a.started_at);
    CREATE INDEX attempts_by_pipeline ON attempts (pipeline, state, started_at, rows);
    CREATE INDEX attempts_by_state ON attempts (state, started_at);
    """,
    """
    CREATE TABLE files (
        target TEXT NOT NULL,
        path TEXT NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        content TEXT NOT NULL,
        rows INTEGER,
        slot TEXT NOT NULL,
        generation INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        changed_at TEXT NOT NULL,
        PRIMARY KEY (target, path)
    );
    CREATE INDEX files_by_state ON files (target, state)
    """,
    """
    ALTER TABLE effects ADD COLUMN not_before TEXT NOT NULL DEFAULT '';
    ALTER TABLE attempts ADD COLUMN asked TEXT NOT NULL DEFAULT '';
    ALTER TABLE attempts ADD COLUMN parameters TEXT NOT NULL DEFAULT '';
    CREATE TABLE tallies (
        pipeline TEXT NOT NULL,
        state TEXT NOT NULL,
        runs INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        PRIMARY KEY (pipeline, state)
    );
    INSERT INTO tallies (pipeline, state, runs, rows)
        SELECT pipeline, state, count(*), coalesce(sum(rows), 0) FROM attempts WHERE state <> 'started' GROUP BY pipeline, state;
    """,
    # One tree in the order of the paths, and no index: of a million files noted, that is half of the cost.
    """
    ALTER TABLE files RENAME TO files_before;
    CREATE TABLE files (
        target TEXT NOT NULL,
        path TEXT NOT NULL,
        size INTEGER NOT NULL,
        mtime_ns INTEGER NOT NULL,
        content TEXT NOT NULL,
        rows INTEGER,
        slot TEXT NOT NULL,
        generation INTEGER NOT NULL,
        attempt TEXT NOT NULL,
        state TEXT NOT NULL,
        reason TEXT NOT NULL,
        changed_at TEXT NOT NULL,
        PRIMARY KEY (target, path)
    ) WITHOUT ROWID;
    INSERT INTO files SELECT * FROM files_before;
    DROP TABLE files_before;
    """,
    """
    ALTER TABLE attempts ADD COLUMN process_started TEXT NOT NULL DEFAULT '';
    ALTER TABLE attempts ADD COLUMN step TEXT NOT NULL DEFAULT '';
    CREATE TABLE logs (
        attempt TEXT PRIMARY KEY,
        text TEXT NOT NULL
    );
    """,
)
VERSION = len(MIGRATIONS)
