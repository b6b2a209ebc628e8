"""A process that takes in what is in a folder, again and again, until it is killed; told on which store, and where to note how runs end."""

import json
import os
import sys
import time
from pathlib import Path

import twice
from databases import Database
from inboxes import COLUMN, Inbox
from servers import GivenServer
from twice import settings
from twice.engine import Engine

POLICIES = {"format": "json", "file_column": COLUMN, "on_changed_file": "replace", "on_bad_file": "set_aside"}
BETWEEN_RUNS_SECONDS = 0.05
BEGUN = "begun"


def fed_inbox(folder: Path, kind: str, address: str = "", spark=None, **policies) -> Inbox:
    """Return the ingest that all processes run; where there is a session, rows may be bad."""
    source = {**POLICIES, **({"max_quarantined": 100_000, "batch_files": 4} if spark else {}), **policies}
    database = None
    if address:
        server, _, name = address.rpartition("/")
        database = Database(GivenServer(server), name)
    return Inbox(folder, kind, spark, files="landing/**/*.jsonl*", source=source, database=database)


def run_once(inbox: Inbox) -> dict:
    """Run, and tell how it ended."""
    try:
        outcome = inbox.run()
    except twice.TwiceError as error:
        return {"state": type(error).__name__, "what": str(error)}
    return outcome.to_json()


def main(folder: Path, kind: str, address: str, log: Path) -> None:
    parent = os.getppid()
    engine = None
    if kind != "postgres":
        engine = Engine(settings.load(folder), lambda: {"delta"})
    inbox = fed_inbox(folder, kind, address, engine.spark if engine else None)
    with log.open("a") as ends:
        ends.write("\n" + json.dumps({"state": BEGUN}) + "\n")
        ends.flush()
        # Nobody is left to kill it if the test itself was.
        while os.getppid() == parent:
            ends.write(json.dumps(run_once(inbox)) + "\n")
            ends.flush()
            time.sleep(BETWEEN_RUNS_SECONDS)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], Path(sys.argv[4]))
