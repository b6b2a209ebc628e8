"""A driver process of its own, with its own JVM, told over a pipe which slot to run next."""

import os
import subprocess
import sys
import threading
from pathlib import Path

HERE = Path(__file__).parent

PROGRAM = """
import sys, json
sys.path[:0] = [{tests!r}]
from pathlib import Path
import twice
from twice import settings
from twice.engine import Engine
from worlds import World

folder, kind, leases = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
engine = Engine(settings.load(folder), lambda: {{"delta"}})
world = World(folder, kind, engine.spark, lease_seconds=leases, start="2020-01-01")
print("ready", flush=True)
for line in sys.stdin:
    {body}
"""

RUN_SLOT = """day = line.strip()
    try:
        print(world.run(day).state, flush=True)
    except twice.TwiceError as error:
        print(f"{type(error).__name__} {error.exit_code}", flush=True)
"""

RECEIPTS = """from twice.abilities import Staged, Work
    from twice.errors import Conflict
    from twice.runs import Receipt
    name, count = line.split()
    for number in range(int(count)):
        slot = f"v1:out:delta:lake/out:key={name}-{number}"
        while True:
            work = Work("lake/out", slot, f"{name}-{number}", 1, world.sight())
            receipt = Receipt(slot, 1, f"{name}-{number}", "fingerprint", "code", world.project.ledger.id)
            try:
                world.store.publish(work, Staged(0), [receipt])
                break
            except Conflict:
                continue
        print(slot, flush=True)
"""


class Driver:
    """One process."""

    def __init__(self, folder: Path, kind: str, lease_seconds: float, body: str = RUN_SLOT):
        program = PROGRAM.format(tests=str(HERE.parent), body=body)
        environment = {name: value for name, value in os.environ.items() if name != "TWICE_FAULTS"}
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, str(folder), kind, str(lease_seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def wait_until_ready(self):
        assert self.answer() == "ready"

    def ask(self, text: str):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        return self.process.stdout.readline().strip()

    def stop(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Reader:
    """Polls a table in a thread, and keeps what it saw."""

    def __init__(self, read):
        self.read = read
        self.seen = []
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._poll)

    def _poll(self):
        while not self.stopped.is_set():
            self.seen.append(self.read())

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()
