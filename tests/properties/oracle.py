"""What should a table hold, told with plain lists and dicts?

An independent reading of the design: nothing here is imported from Twice. Each pattern says which rows
it refuses and what it does to those that are there; `Oracle.run` says what a run answers, also when it
dies half way or another driver gets in between. `hook` is called with the name of each point of the way.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import date, timedelta

LOST_COMPARES = 8


class Refused(Exception):
    """How a run ends without a publish: the name of the error."""


class LeftOut(Exception):
    """The story leaves this step out, for a reason that is told where it is raised."""


class Lost(Exception):
    """The answer to a publish got lost."""


@dataclass
class Noted:
    """A receipt: which edition of a slot, from which input, and of how many rows, if that is judged."""

    generation: int
    content: str
    rows: int | None


@dataclass
class Edition:
    """Rows that a name can point at."""

    day: str
    generation: int
    rows: list


@dataclass
class Table:
    """One table: rows with the slot that brought them, receipts, and what happened to them since."""

    rows: list = field(default_factory=list)
    noted: dict = field(default_factory=dict)
    ended: set = field(default_factory=set)
    gone: set = field(default_factory=set)
    outside: int = 0
    version: int = 0
    editions: list = field(default_factory=list)
    current: int = -1

    def fence(self, day):
        return self.noted[day].generation if day in self.noted else 0

    def pass_by(self):
        """Slots that come after the version which the name shows are not vouched for."""
        shown = self.editions[self.current]
        later = self.editions[self.current + 1 :]
        self.ended = {
            one.day
            for one in self.editions
            if (one in later or one.day > shown.day) and self.fence(one.day) == one.generation
        }
        self.outside = self.version if self.ended else self.outside

    def has_newer(self, day):
        return any(other > day and other not in self.ended for other in self.noted)


@dataclass
class Staged:
    """The rows of the table as they will be, how many came in, and what the outcome says of them."""

    change: Callable[[Table], None] | None
    rows: int
    said: str = ""
    computed_at: int | None = None


@dataclass
class Said:
    """What a run answers."""

    state: str
    generation: int
    rows: int | None
    note: str = ""


class Oracle:
    """A target and the inputs of its slots."""

    compares_head = False
    has_view = False
    # A merge that leaves all rows alone is compared with the table once more when it is published.
    looks_twice = False

    def __init__(self):
        self.tables = {}
        self.inputs = {}
        self.written = {}
        self.accepted = {}

    # ---------------------------------------------------------------- what patterns say

    def label(self, day):
        return ""

    def companions(self, day, table):
        return []

    def refuses(self, day, table, force):
        return False

    def stage(self, table, day, rows, anew):
        raise NotImplementedError

    def seen(self):
        """All rows that a reader sees, with the label of their table where a view adds one."""
        return [row for table in self.tables.values() for _, row in table.rows]

    # ---------------------------------------------------------------- inputs

    def put(self, day, rows):
        self.inputs[day] = rows
        self.written[day] = self.written.get(day, 0) + 1

    # ---------------------------------------------------------------- a run

    def table(self, day):
        return self.tables.setdefault(self.label(day), Table())

    def noted(self):
        return {day: noted for table in self.tables.values() for day, noted in table.noted.items()}

    def ended(self):
        return {day for table in self.tables.values() for day in table.ended}

    def run(self, day, *, force=False, accept=False, hook=lambda point: None):
        table = self.table(day)
        saw, content, token = deepcopy(table), repr(self.inputs[day]), self.written[day]
        hook("inputs.resolved")
        goes_on = self._decide(day, saw, content, force=force, accept=accept)
        if accept and day in saw.ended:
            self.accepted[day] = saw.outside
        if not goes_on:
            return self._skipped(day, saw)
        hook("intended")
        hook("lease.taken")
        for _ in range(LOST_COMPARES):
            before, saw = saw, deepcopy(table)
            if saw.fence(day) != before.fence(day):
                content, token = repr(self.inputs[day]), self.written[day]
                hook("inputs.resolved")
            if not self._decide(day, saw, content, force=force, accept=accept):
                return self._skipped(day, saw)
            answer = self._try(day, table, saw, content, token, hook)
            if answer:
                return answer
        raise Refused("Overtaken")

    def _skipped(self, day, saw):
        return Said("skipped", saw.fence(day), saw.noted[day].rows)

    def _decide(self, day, saw, content, *, force, accept):
        """Tell whether there is anything to do."""
        vouched = day not in saw.ended or (day in self.accepted and self.accepted[day] == saw.outside)
        if not (vouched or force or accept):
            raise Refused("ProofGone")
        if day in saw.noted and not force and saw.noted[day].content == content:
            return False
        if self.refuses(day, saw, force):
            raise Refused("Fenced")
        return True

    def _try(self, day, table, saw, content, token, hook):
        companions = self.companions(day, saw)
        contents = {day: content} | {other: repr(self.inputs[other]) for other in companions}
        tokens = {day: token} | {other: self.written[other] for other in companions}
        if self.has_view:
            hook("view.open.before")
        hook("stage.before")
        rows = [row for part in contents for row in self.inputs[part]]
        staged = self.stage(table, day, rows, day in saw.noted)
        hook("stage.after")
        if any(self.written[part] != seen for part, seen in tokens.items()):
            raise Refused("InputsMoved")
        hook("looked.again")
        hook("publish.before")
        generations = {part: saw.fence(part) + 1 for part in contents}
        if self._conflicts(table, saw, staged, generations):
            return self._refused(day, table, saw, content, hook)
        try:
            hook("landing")
        except Lost:
            hook("read.back")
            raise Refused("OutcomeUnknown") from None
        self._land(day, table, staged, contents, generations)
        try:
            hook("landed")
            hook("publish.after")
        except Lost:
            pass
        found, ended = deepcopy(table.noted[day]), day in table.ended
        hook("read.back")
        if found.generation == generations[day] and ended:
            raise Refused("ProofGone")
        hook("confirmed")
        mine = found.generation == generations[day]
        return Said("published", found.generation, found.rows, staged.said if mine else "")

    def _conflicts(self, table, saw, staged, generations):
        fences = any(table.fence(part) + 1 != number for part, number in generations.items())
        counts = staged.change is not None or self.looks_twice
        computed = counts and staged.computed_at is not None and staged.computed_at != table.version
        return fences or computed or (self.compares_head and table.version != saw.version)

    def _refused(self, day, table, saw, content, hook):
        """The slot rule: a twin did the same work, or the slot has moved on, or others have and it is tried again."""
        found, ended = deepcopy(table.noted.get(day)), day in table.ended
        hook("read.back")
        if found and found.generation == saw.fence(day) + 1 and found.content == content:
            if ended:
                raise Refused("ProofGone")
            hook("confirmed")
            return Said("skipped", found.generation, found.rows)
        if table.fence(day) != saw.fence(day):
            raise Refused("Overtaken")
        return None

    def _land(self, day, table, staged, contents, generations):
        # After a replay the receipts do not tell the rows of their own slots, so these numbers are not judged.
        rows = staged.rows if len(contents) == 1 else None
        for part, content in contents.items():
            table.noted[part] = Noted(generations[part], content, rows)
            table.ended.discard(part)
            table.gone.discard(part)
        table.version += 1
        if staged.change:
            staged.change(table)

    # ---------------------------------------------------------------- what happens besides

    def forget(self):
        """The ledger is lost and rebuilt: what was accepted is asked again; every table gets a new owner."""
        self.accepted = {}
        for table in self.tables.values():
            if table.noted:
                table.version += 1

    def meddle(self, day):
        """Somebody deletes the rows of a day: no receipt is a proof from now on."""
        (table,) = self.tables.values()
        table.rows = [(slot, row) for slot, row in table.rows if row["day"] != date.fromisoformat(day)]
        table.ended, table.gone = set(table.noted), set()
        table.version += 1
        table.outside = table.version

    def restore(self, old):
        """Somebody brings an older state back: slots that it does not hold, or not in this edition, lose their proof."""
        (table,) = self.tables.values()
        lost = {day for day in table.noted if table.fence(day) != old.fence(day)}
        table.rows, table.ended, table.gone = old.rows, table.ended | lost, lost
        table.version += 1
        table.outside = table.version

    def point(self, number):
        """The name points at a version: editions after it are passed by."""
        (table,) = self.tables.values()
        if table.current == number:
            return
        table.current = number
        table.rows = list(table.editions[number].rows)
        table.version += 1
        table.pass_by()


# ---------------------------------------------------------------- patterns


def one_a_key(rows, keys, order=None, *, first=False):
    """Return the rows by key, or refuse them."""
    found = {}
    for row in rows:
        key = tuple(row[column] for column in keys)
        if None in key or (order and row[order] is None):
            raise Refused("NotPublished")
        found.setdefault(key, []).append(row)
    for key, several in found.items():
        if order:
            best = (min if first else max)(row[order] for row in several)
            several = [row for row in several if row[order] == best]  # noqa: PLW2901
            several = [row for number, row in enumerate(several) if row not in several[:number]]  # noqa: PLW2901
        if len(several) > 1:
            raise Refused("NotPublished")
        found[key] = several[0]
    return found


def said(inserted, updated, deleted, total):
    left = total - inserted - updated - deleted
    return f"inserted {inserted}, updated {updated}, deleted {deleted}, left alone {left}"


class Merged(Oracle):
    """Rows are brought into a table by key."""

    def __init__(self, keys, deleted=None, soft=False, order=None, insert_only=False):
        super().__init__()
        self.keys, self.deleted, self.soft, self.order, self.insert_only = keys, deleted, soft, order, insert_only

    def stage(self, table, day, rows, anew):
        source = one_a_key(rows, self.keys, self.order)
        after = {tuple(row[column] for column in self.keys): row for _, row in table.rows}
        counts = [0, 0, 0]
        for key, row in source.items():
            there = after.get(key)
            dies = bool(self.deleted and row[self.deleted] and not self.soft)
            new = {name: value for name, value in row.items() if self.soft or name != self.deleted}
            if there is None:
                if not dies:
                    after[key] = new
                    counts[0] += 1
            elif self.insert_only or (
                self.order and there[self.order] is not None and row[self.order] < there[self.order]
            ):
                continue
            elif dies:
                del after[key]
                counts[2] += 1
            elif there != new:
                after[key] = new
                counts[1] += 1
        result = [("", row) for row in after.values()]
        return merge_of(table, result, len(source), said(*counts, len(source)), changes=any(counts))


def merge_of(table, result, count, text, *, changes):
    """A merge is computed from one version of the table."""
    change = (lambda now: setattr(now, "rows", result)) if changes else None
    return Staged(change, count, text, table.version)


class Added(Oracle):
    """Rows are inserted whose key is not there, or not within the window."""

    def __init__(self, keys, order=None, days=None):
        super().__init__()
        self.keys, self.order, self.days = keys, order, days

    def stage(self, table, day, rows, anew):
        source = one_a_key(rows, self.keys, self.order, first=True)
        since = None
        if self.days:
            if any(row["day"] is None for row in source.values()):
                raise Refused("NotPublished")
            since = min([date.fromisoformat(day) - timedelta(self.days), *(row["day"] for row in source.values())])
        known = {
            tuple(row[column] for column in self.keys)
            for _, row in table.rows
            if since is None or (row["day"] is not None and row["day"] >= since)
        }
        new = [("", row) for key, row in source.items() if key not in known]
        text = said(len(new), 0, 0, len(source))
        return merge_of(table, table.rows + new, len(source), text, changes=bool(new))


class Appended(Oracle):
    """Rows are added once; with a lineage column a correction replaces them."""

    def __init__(self, lineage=None):
        super().__init__()
        self.lineage = lineage

    def refuses(self, day, table, force):
        return not self.lineage and day in table.noted and day not in table.gone

    def stage(self, table, day, rows, anew):
        new = [(day, row | ({self.lineage: day} if self.lineage else {})) for row in rows]

        def change(now):
            kept = [(slot, row) for slot, row in now.rows if not self.lineage or row[self.lineage] != day]
            now.rows = kept + new

        return Staged(change, len(new))


class Partitioned(Oracle):
    """A column names the slot, and its rows are replaced."""

    def __init__(self, by):
        super().__init__()
        self.by = by

    def stage(self, table, day, rows, anew):
        new = [(day, row | {self.by: day}) for row in rows]

        def change(now):
            now.rows = [(slot, row) for slot, row in now.rows if row[self.by] != day] + new

        return Staged(change, len(new))


class Pointed(Oracle):
    """Each publish is a version of its own; the name points at the last."""

    compares_head = True

    def __init__(self, keep=None):
        super().__init__()
        self.keep = keep

    def refuses(self, day, table, force):
        return table.has_newer(day) and not force

    def stage(self, table, day, rows, anew):
        new = [(day, row) for row in rows]

        def change(now):
            now.editions = [*now.editions, Edition(day, now.fence(day), new)][-(self.keep or 0) :]
            now.current, now.rows = len(now.editions) - 1, new
            now.pass_by()

        return Staged(change, len(new))


class United(Oracle):
    """One table for several slots behind a view, or one for each."""

    has_view = True

    def __init__(self, by, label, *, full=False, shared=True):
        super().__init__()
        self.by, self.named, self.full, self.shared = by, label, full, shared
        self.compares_head = shared

    def label(self, day):
        return self.named(day)

    def seen(self):
        return [row | {self.by: label} for label, table in self.tables.items() for _, row in table.rows]

    def companions(self, day, table):
        if self.full or not self.shared or day not in table.noted:
            return []
        return sorted(set(table.noted) - {day})

    def refuses(self, day, table, force):
        return self.full and table.has_newer(day) and not force

    def stage(self, table, day, rows, anew):
        new = [(day, row) for row in rows]
        replaces = self.full or not self.shared or anew

        def change(now):
            now.rows = new if replaces else now.rows + new
            if replaces:
                passed = set(now.noted) - {day, *self.companions(day, now)}
                now.gone |= passed - now.ended
                now.ended |= passed
                now.outside = now.version

        return Staged(change, len(new))
