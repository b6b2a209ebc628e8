"""Which pattern fits, why, at what cost, and what does it not protect against?

A tree of questions leads to one advice. All of it is data: the questions, the tree, and one record
for each end of the tree with its texts and the lines to paste. Whether this version of Twice carries
a pattern, and whether a store does, is asked of the public names and of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from twice.errors import Misuse, Unsupported, suggestion

YES, NO = "yes", "no"

Answers = Mapping[str, str]


@dataclass(frozen=True)
class Question:
    """One question, and its possible answers with what each means.

    A question without choices is answered with yes or no.
    """

    name: str
    text: str
    choices: Mapping[str, str] = field(default_factory=dict)

    @property
    def values(self) -> tuple[str, ...]:
        """The answers that are understood."""
        return tuple(self.choices) or (YES, NO)

    @property
    def flag(self) -> str:
        """The option of the command line, without its value."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def usage(self) -> str:
        """The option with all that may be said."""
        if self.choices:
            return f"{self.flag} {'|'.join(self.choices)}"
        return f"{self.flag} or {self.said(NO)}"

    def said(self, answer: str) -> str:
        """Return the option that gives an answer."""
        if self.choices:
            return f"{self.flag} {answer}"
        return self.flag if answer == YES else f"--no-{self.flag.removeprefix('--')}"


@dataclass(frozen=True)
class Fork:
    """A question of the tree, and where each answer leads: to another fork, or to an advice by its name."""

    question: str
    branches: Mapping[str, Fork | str]


@dataclass(frozen=True)
class Way:
    """A pattern with the options of the example, and, for an alternative, how it differs from the advice."""

    pattern: str
    options: Mapping[str, Any] = field(default_factory=dict)
    difference: str = ""

    @property
    def code(self) -> str:
        """The pattern as it stands in a declaration."""
        said = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"twice.{self.pattern}({said})".replace("'", '"')


@dataclass(frozen=True)
class Advice:
    """A pattern for a situation.

    Attributes:
        situation: When it is given, in a few words.
        way: The pattern with the options of the example.
        why: Why it fits.
        cost: What it costs.
        not_protected: What goes wrong all the same, one sentence each.
        alternatives: Other ways, the nearest first.
        declaration: The lines to paste, with STORE and PATTERN to be filled in.
        store: The store of the lines, unless another is asked for.
    """

    situation: str
    way: Way
    why: str
    cost: str
    not_protected: tuple[str, ...]
    alternatives: tuple[Way, ...]
    declaration: str
    store: str = "delta"

    @property
    def pattern(self) -> str:
        """The name of the pattern."""
        return self.way.pattern

    def lines(self, way: Way | None = None, store: str | None = None) -> str:
        """Return a declaration to paste, with the advised pattern or another way."""
        return self.declaration.replace("STORE", store or self.store).replace("PATTERN", (way or self.way).code)


# ------------------------------------------------------------------ questions and tree

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question("keep_versions", "Must every version that was published stay readable, unchanged?"),
        Question(
            "data",
            "What does one run deliver?",
            {
                "full": "all rows of the table, or of the slot's own part of it",
                "increments": "changes: rows that are new, changed or deleted since the last run",
                "events": "new rows only, which never change afterwards",
                "files": "files of a folder that fills, some of them late, sent twice or not whole yet",
                "stream": "batches of a stream, which may be cut differently when it is replayed",
            },
        ),
        Question(
            "all_or_nothing",
            "Does one run load several inputs that must become visible together, all of them or none?",
        ),
        Question(
            "metadata",
            "Is there a metadata layer (a catalog with tables and views), where replacing a whole table is cheap?",
        ),
        Question("keys", "Does each row have a key that is the same every time the row is delivered?"),
        Question("backfills", "Will past slots be run again after newer ones, perhaps with corrected inputs?"),
    )
}

TREE = Fork(
    "keep_versions",
    {
        YES: "versions",
        NO: Fork(
            "data",
            {
                "full": Fork(
                    "all_or_nothing",
                    {YES: "together", NO: Fork("metadata", {YES: "periods", NO: "slices"})},
                ),
                "increments": Fork(
                    "keys",
                    {YES: Fork("backfills", {YES: "replayed changes", NO: "changes"}), NO: "changes without a key"},
                ),
                "events": Fork("keys", {YES: "events", NO: "events without a key"}),
                "files": Fork("keys", {YES: "files", NO: "files without a key"}),
                "stream": Fork(
                    "all_or_nothing",
                    {YES: "stream together", NO: Fork("keys", {YES: "stream", NO: "stream without a key"})},
                ),
            },
        ),
    },
)

# ------------------------------------------------------------------ lines to paste

_VISITS = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    source=twice.files(
        "landing/visits/{execution_date}.csv",
        schema="visit_id string, page string, day date",
    ),
    target="STORE:lake/visits",
    pattern=PATTERN,
)
def visits(rows, run):
    return rows
"""

_DEVICES = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    source=twice.files(
        "landing/devices/{execution_date}.csv",
        schema="device_id string, name string, is_deleted boolean, day date",
    ),
    target="STORE:lake/devices",
    pattern=PATTERN,
)
def devices(rows, run):
    return rows
"""

_CATALOGUE = """import twice


@twice.pipeline(
    source=twice.files(
        "landing/devices/*.csv",
        schema="device_id string, name string",
    ),
    target="STORE:lake/devices",
    pattern=PATTERN,
)
def devices(rows, run):
    return rows
"""

_SALES = """import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    sources={
        "shops": twice.files(
            "landing/shops/{execution_date}.csv",
            schema="sale_id string, amount int, day date",
        ),
        "web": twice.files(
            "landing/web/{execution_date}.csv",
            schema="sale_id string, amount int, day date",
        ),
    },
    target="STORE:lake/sales",
    pattern=PATTERN,
)
def sales(shops, web, run):
    return shops.unionByName(web)
"""

_ORDERS = """import twice


@twice.pipeline(
    # each file once, whenever it comes
    source=twice.files(
        "landing/orders/**/*.csv",
        schema="order_id string, amount int",
        track=True,
        file_column="source_file",
    ),
    target="STORE:lake/orders",
    pattern=PATTERN,
)
def orders(rows, run):
    return rows
"""

_CLICKS = """import twice


@twice.pipeline(
    every="1 hour",
    start="2024-10-07",
    # the stream as it has landed, hour by hour
    source=twice.files(
        "landing/clicks/{start:%Y-%m-%dT%H}/*.json",
        schema="click_id string, page string, landed_at timestamp",
    ),
    target="STORE:lake/clicks",
    pattern=PATTERN,
)
def clicks(rows, run):
    return rows
"""

# ------------------------------------------------------------------ the ends of the tree

_BY_DAY = {"slice": "day"}
_BY_HOUR = {"slice": "landed_at"}

ADVICE: dict[str, Advice] = {
    "versions": Advice(
        situation="every published version must stay",
        way=Way("proxy"),
        why="Each publish makes a new version that is never written again, and then points the one place where "
        "readers look at it. Going back is pointing at an older version.",
        cost="Each version is a whole copy, so the storage grows with every publish, until you limit it with keep=. "
        "Readers have to go through the one access point.",
        not_protected=(
            "A run that delivers changes or events: the transform has to build the whole table from all inputs.",
            "Somebody who deletes the files of an old version by hand.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                difference="replaces the table in one step; older versions stay only as long as the store keeps them",
            ),
        ),
        declaration=_CATALOGUE,
    ),
    "together": Advice(
        situation="several inputs that must appear together",
        way=Way("transactional_writer", {"lineage": "day"}),
        why="The rows of all inputs are written where no reader looks, and one transaction makes them visible "
        "together with the receipt. If one input fails, none is seen.",
        cost="The slowest input, or a bad one, holds back all others. Until the commit the rows take room twice.",
        not_protected=(
            "It adds rows: a slot is replaced only because its rows carry it, in the column that lineage= names.",
            "A table that is delivered whole in every slot: each slot would add one more copy.",
            "Duplicates inside the inputs.",
            "Calls to services outside the store: no transaction takes them back.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "also publishes all rows of a run in one step, and replaces the slot's slice; it fits where one run "
                "fills one table",
            ),
        ),
        declaration=_SALES,
    ),
    "periods": Advice(
        situation="full dataset, with a metadata layer",
        way=Way("fast_metadata_cleaner", {"period": "week"}),
        why="Each period has a table of its own, and a view unites them. A period is replaced by making its table "
        "again, so no old row has to be looked for.",
        cost="One table for each period, and there is a limit to how many a catalog bears. Readers need the view. "
        "Running one slot again means replaying its whole period.",
        not_protected=(
            "A correction finer than the period: its other slots are run again as well, so their inputs must be kept.",
            "Readers that open a period's table instead of the view.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "one table and no view; replaces the rows of one slot, which the store has to find and swap",
            ),
        ),
        declaration=_VISITS,
    ),
    "slices": Advice(
        situation="full dataset, on plain files or an object store",
        way=Way("data_overwrite", _BY_DAY),
        why="A run delivers all rows of its slot, so they replace the slot's old rows as a whole. A rerun can "
        "neither add to them nor leave half of them.",
        cost="All rows of the slot are written again, even if one has changed.",
        not_protected=(
            "Rows of other slots: what belongs to another day is refused, and needs that day to be run.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way("data_overwrite", difference="without slice=, for a run that delivers the whole table"),
            Way("proxy", difference="keeps every older version, at the price of a whole copy each"),
            Way(
                "fast_metadata_cleaner",
                {"period": "week"},
                "replaces whole tables of a period, where a catalog makes this cheap",
            ),
        ),
        declaration=_VISITS,
        store="parquet",
    ),
    "changes": Advice(
        situation="increments with a key",
        way=Way("merger", {"keys": ["device_id"], "deleted": "is_deleted"}),
        why="The key tells which row a change belongs to. One MERGE updates, deletes and inserts in one step, and "
        "the same increment applied again gives the same rows.",
        cost="The store looks for the matching rows in the table and rewrites the files that hold them: more than "
        "an append, and more as the table grows.",
        not_protected=(
            "Backfills: an old increment run again puts old values over new ones, unless order= tells which is newer.",
            "A corrected increment: rows that it no longer holds stay in the table.",
            "Keys that change.",
        ),
        alternatives=(
            Way(
                "stateful_merger",
                {"keys": ["device_id"], "deleted": "is_deleted"},
                "also gets backfills and corrected increments right, by replaying what came after",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "keeps the changes of each day as rows of that day; readers have to take the newest row of each key",
            ),
        ),
        declaration=_DEVICES,
    ),
    "replayed changes": Advice(
        situation="increments with a key, and backfills",
        way=Way("stateful_merger", {"keys": ["device_id"], "deleted": "is_deleted"}),
        why="A slot that is run again starts from the table as it was before it, and the later slots are applied "
        "once more. So nothing of the older edition stays, and nothing newer is lost.",
        cost="Running an old slot again replays every slot from it to the newest. The inputs, and versions or a "
        "history of the table, have to be kept for as far back as you want to go.",
        not_protected=(
            "Slots whose versions and inputs are both gone: the plan says so, and nothing changes.",
            "Writes by others between the slots: a run refuses until it is told what to do with them.",
            "Keys that change.",
        ),
        alternatives=(
            Way(
                "merger",
                {"keys": ["device_id"], "deleted": "is_deleted"},
                "cheaper, and each slot is safe to run again at once; but an old slot run again later puts old values "
                "over new ones",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "keeps the changes of each day as rows of that day, so a backfill replaces that day alone; readers "
                "have to take the newest row of each key",
            ),
        ),
        declaration=_DEVICES,
    ),
    "changes without a key": Advice(
        situation="increments without a key",
        way=Way("data_overwrite", _BY_DAY),
        why="Without a key nothing tells which row a change belongs to. So each slot keeps the rows that it "
        "delivered, and running it again replaces exactly those.",
        cost="The table holds changes, not the present state: readers have to work that out. All rows of the slot "
        "are written again.",
        not_protected=(
            "Rows of earlier slots: a change stands beside the row that it changes.",
            "Duplicates inside the input.",
        ),
        alternatives=(
            Way(
                "transactional_writer",
                {"lineage": "day"},
                "adds the rows with a receipt; a corrected slot replaces the rows that carry it",
            ),
        ),
        declaration=_DEVICES,
    ),
    "events": Advice(
        situation="events with a key that must not repeat",
        way=Way("dedup_insert", {"keys": ["visit_id"]}),
        why="An event never changes, so a row whose key is there already is left out. An event that is delivered "
        "twice, by a rerun or by its sender, is there once.",
        cost="Each publish looks for the new keys in the table, or in the window that you let it look back.",
        not_protected=(
            "A correction: the row that came first stays.",
            "A repeat from before the window, if one is set.",
            "Keys that are made on delivery, of a clock or of a random number: every delivery looks new.",
        ),
        alternatives=(
            Way(
                "merger",
                {"keys": ["visit_id"]},
                "takes the newest delivery of an event instead of the first",
            ),
            Way(
                "data_overwrite",
                _BY_DAY,
                "a rerun of a day adds nothing; an event that is delivered again on another day is there twice",
            ),
        ),
        declaration=_VISITS,
    ),
    "events without a key": Advice(
        situation="events without a key",
        way=Way("transactional_writer"),
        why="Nothing in the rows tells two events apart, so only a receipt can. Rows and receipt are added in one "
        "transaction, and a slot whose receipt is there is skipped.",
        cost="Little: one append, and the table is not read.",
        not_protected=(
            "An event that is delivered in two slots is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_DAY,
                "replaces the day's own rows, so a corrected input is taken; each row must carry its day",
            ),
        ),
        declaration=_VISITS,
    ),
    "files": Advice(
        situation="files that arrive in a folder, with a key in each row",
        way=Way("dedup_insert", {"keys": ["order_id"]}),
        why="With track=True the pipeline is an ingest: the table keeps a mark of each file that it has taken in, and a "
        "run takes in the others, however late they come. The key keeps out a row that two files hold.",
        cost="A run walks the folder, reads every new file once more for its hash, and looks for the new keys in the "
        "table. Runs of one ingest go one after the other.",
        not_protected=(
            "A correction: the row that came first stays.",
            "A file that is rewritten to the same size, and given its old time again: it is not looked into.",
            "Keys that are made on delivery, of a clock or of a random number: every delivery looks new.",
        ),
        alternatives=(
            Way("merger", {"keys": ["order_id"]}, "takes the newest delivery of a row instead of the first"),
            Way(
                "transactional_writer",
                difference="adds the rows of each file as they are, which is cheaper; a row that two files hold is "
                "there twice",
            ),
        ),
        declaration=_ORDERS,
    ),
    "files without a key": Advice(
        situation="files that arrive in a folder, without a key",
        way=Way("transactional_writer"),
        why="With track=True the pipeline is an ingest: the table keeps a mark of each file that it has taken in, and a "
        "run takes in the others, however late they come. Rows and marks appear in one publish.",
        cost="A run walks the folder and reads every new file once more for its hash. The table is not read. Runs of "
        "one ingest go one after the other.",
        not_protected=(
            "A row that stands in two files is there twice; a file with the content of another is skipped.",
            "A file that is rewritten to the same size, and given its old time again: it is not looked into.",
            "A file that was taken in and has other content now is refused, until on_changed_file= says what it means.",
        ),
        alternatives=(
            Way(
                "dedup_insert",
                {"keys": ["order_id", "amount"]},
                "takes all columns for the key, so that equal rows are there once, whichever files they stand in",
            ),
        ),
        declaration=_ORDERS,
    ),
    "stream together": Advice(
        situation="stream of several inputs that must appear together",
        way=Way("transactional_writer"),
        why="The rows of a batch and the receipt become visible in one transaction. If a batch fails half way, "
        "readers see nothing of it, and it is done again.",
        cost="Readers wait for the transaction: the larger the batch, the later. The table is not read.",
        not_protected=(
            "It adds rows: one that comes again under the same key, in another batch, is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
            "Readers that also read what is not committed.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_HOUR,
                "also publishes all rows of a slot in one step, and replaces those that it published before; each "
                "row must carry the time at which it landed",
            ),
        ),
        declaration=_CLICKS,
    ),
    "stream": Advice(
        situation="stream with keys",
        way=Way("keyed", {"keys": ["click_id"]}),
        why="Each row is written under a key of properties that never change. However a replay cuts the batches, "
        "the same rows land in the same places.",
        cost="Every row is an update or an insert by key, which is more than an append. The last write of a key wins.",
        not_protected=(
            "Keys that depend on the arrival, the batch or the process: a replay makes new ones.",
            "Rows that a replay no longer delivers: they stay.",
            "A store without transactions: readers may see a part of a batch until it is done.",
        ),
        alternatives=(
            Way(
                "dedup_insert",
                {"keys": ["click_id"]},
                "keeps the first row of each key instead of the last",
            ),
            Way(
                "data_overwrite",
                _BY_HOUR,
                "replaces the rows that landed in the slot; a row that lands again in another slot is there twice",
            ),
        ),
        declaration=_CLICKS,
    ),
    "stream without a key": Advice(
        situation="stream without keys",
        way=Way("transactional_writer"),
        why="Nothing in the rows tells two of them apart, so only a receipt can. Rows and receipt are added in one "
        "transaction, and what has its receipt is not added again.",
        cost="Little: one append, and the table is not read.",
        not_protected=(
            "A row that its sender delivers twice is there twice.",
            "A corrected input is refused, unless lineage= names a column in which the rows carry their slot.",
        ),
        alternatives=(
            Way(
                "data_overwrite",
                _BY_HOUR,
                "replaces the rows that landed in the slot, so a corrected input is taken",
            ),
        ),
        declaration=_CLICKS,
    ),
}

# ------------------------------------------------------------------ the walk


def next_question(answers: Answers) -> Question | None:
    """Return the first question on the way that is not answered, or None at the end of the way.

    Raises:
        Misuse: An answer is not among those that its question has.
    """
    place = _walked(answers)
    return QUESTIONS[place.question] if isinstance(place, Fork) else None


def open_questions(answers: Answers) -> list[Question]:
    """Return every question that may still have to be answered, in the order in which they are asked."""
    wanted = set(_open_below(_walked(answers), answers))
    return [question for name, question in QUESTIONS.items() if name in wanted]


def advise(answers: Answers) -> Advice:
    """Return the advice to which the answers lead.

    Raises:
        Misuse: A question on the way has no answer, or one that it does not know.
    """
    place = _walked(answers)
    if isinstance(place, str):
        return ADVICE[place]
    raise Misuse(
        "Questions are left open, and without a terminal nobody can be asked.",
        f"May still be needed: {'; '.join(question.usage for question in open_questions(answers))}.",
        f"Say them as options, for example: {command(_any_way(answers))}",
    )


def led_there(answers: Answers) -> dict[str, str]:
    """Return those of the answers that made the difference, in the order in which they were asked for."""
    return {fork.question: answers[fork.question] for fork in _passed(answers)}


def command(answers: Answers, store: str | None = None) -> str:
    """Return the command that gives the advice of these answers without a question."""
    said = [QUESTIONS[name].said(answer) for name, answer in answers.items()]
    return " ".join(["twice advise", *said, *([f"--store {store}"] if store else [])])


def _walked(answers: Answers) -> Fork | str:
    """Go as far as the answers lead."""
    _check(answers)
    passed = _passed(answers)
    return passed[-1].branches[answers[passed[-1].question]] if passed else TREE


def _passed(answers: Answers) -> list[Fork]:
    """Return the forks on the way whose question is answered."""
    passed = []
    place: Fork | str = TREE
    while isinstance(place, Fork) and place.question in answers:
        passed.append(place)
        place = place.branches[answers[place.question]]
    return passed


def _check(answers: Answers) -> None:
    for name, answer in answers.items():
        if name not in QUESTIONS:
            raise Misuse(f"There is no question {name!r}.", fix=suggestion(name, QUESTIONS))
        question = QUESTIONS[name]
        if answer not in question.values:
            raise Misuse(
                f"{answer!r} does not answer: {question.text}", fix=f"Use one of: {', '.join(question.values)}."
            )


def _open_below(place: Fork | str, answers: Answers) -> Iterator[str]:
    if isinstance(place, str):
        return
    if place.question in answers:
        yield from _open_below(place.branches[answers[place.question]], answers)
        return
    yield place.question
    for branch in place.branches.values():
        yield from _open_below(branch, answers)


def _any_way(answers: Answers) -> dict[str, str]:
    """Answer what is open with no or the first choice: one whole command is worth more than a grammar."""
    whole = dict(answers)
    while question := next_question(whole):
        whole[question.name] = NO if NO in question.values else question.values[0]
    return led_there(whole)


# ------------------------------------------------------------------ what can be had


def carried(pattern: str) -> bool:
    """Tell whether this version of Twice has the pattern."""
    import twice

    return pattern in twice.__all__


def refusal(way: Way, store: str) -> Unsupported | None:
    """Return why a store cannot carry a pattern that this version has, or None if it can.

    Raises:
        Misuse: There is no such store.
    """
    import twice
    from twice import matrix

    try:
        matrix.check(getattr(twice, way.pattern)(**way.options), store, "advised")
    except Unsupported as error:
        return error
    return None


def usable(advice: Advice, store: str | None = None) -> Way | None:
    """Return the advised way or else the nearest one that this version has and the store, if any, can carry."""
    for way in (advice.way, *advice.alternatives):
        if carried(way.pattern) and not (store and refusal(way, store)):
            return way
    return None
