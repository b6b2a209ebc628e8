"""A reader that polls a table from a process of its own, and tells if it ever sees something half done."""

import os
import signal
from collections import defaultdict

import psycopg

_UNTIL = 0.002


class Reader:
    """Sees each day whole: all rows of one edition, or none."""

    def __init__(self, url, table, size):
        self._url, self._table, self._size = url, table, size

    def __enter__(self):
        self._told, writing = os.pipe()
        self._pid = os.fork()
        if not self._pid:
            signal.signal(signal.SIGTERM, self._stop)
            self._stopped = False
            os.write(writing, self._read().encode())
            os._exit(0)
        os.close(writing)
        return self

    def __exit__(self, kind, *_):
        os.kill(self._pid, signal.SIGTERM)
        with os.fdopen(self._told) as told:
            text = told.read()
        os.waitpid(self._pid, 0)
        self.polls, _, self.torn = text.partition(" ")
        if kind is None:
            assert int(self.polls) > 0, text
            assert self.torn == "", self.torn

    def _stop(self, *_):
        self._stopped = True

    def _read(self):
        polls = 0
        while not self._stopped:
            try:
                with psycopg.connect(self._url, autocommit=True) as db:
                    while not self._stopped:
                        torn = self._look(db)
                        if torn:
                            return f"{polls} {torn}"
                        polls += 1
                        signal.sigtimedwait([], _UNTIL) if hasattr(signal, "sigtimedwait") else None
            except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
                continue  # the server was killed, or the table is not there yet
        return f"{polls} "

    def _look(self, db):
        days = defaultdict(list)
        for day, edition, rows in db.execute(
            f"SELECT day, split_part(id, ':', 1), count(*) FROM {self._table} GROUP BY 1, 2"
        ):
            days[day].append((edition, rows))
        for day, seen in days.items():
            if len(seen) != 1 or seen[0][1] != self._size:
                return f"{day} showed {seen}"
        return ""
