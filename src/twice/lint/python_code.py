"""Where does Python code depend on more than its inputs?

The function that a pipeline calls is looked at, what it calls in the same file, and the constants of
the file that it uses. Nothing is imported or called. Where the code does not show what something is,
it is let pass: a false alarm costs more than a miss.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from twice.lint import sql_text
from twice.lint.allowed import allowed_lines, is_allowed
from twice.lint.frames import ORDERED, UNKNOWN, UNORDERED, is_window_ordered, order_of
from twice.lint.names import FUNCTIONS, Names
from twice.lint.rules import (
    CLOCK,
    DISTINCT_INSTEAD,
    ENVIRONMENT,
    HASH,
    LAYOUT,
    LIMIT_INSTEAD,
    LIST_INSTEAD,
    LISTING_FUNCTIONS,
    ORDER,
    ORDER_FREE_FUNCTIONS,
    PICK_INSTEAD,
    PICKING_FUNCTIONS,
    RANDOM,
    RANKING_FUNCTIONS,
    SAMPLE_INSTEAD,
    SEEDED,
    SET_ORDER,
    UDF,
    WINDOW_INSTEAD,
    Remark,
    Rule,
    of_function,
)

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_CLOCKS = frozenset(
    {
        "datetime.datetime.now",
        "datetime.datetime.utcnow",
        "datetime.datetime.today",
        "datetime.date.today",
        "pandas.Timestamp.now",
        "pandas.Timestamp.today",
        "pandas.Timestamp.utcnow",
        "time.time",
        "time.time_ns",
    }
)
_CLOCKS_WITHOUT_TIME = {"time.localtime": 0, "time.gmtime": 0, "time.ctime": 0, "time.strftime": 1}
_RANDOM = frozenset({"uuid.uuid1", "uuid.uuid4", "os.urandom"})
_RANDOM_MODULES = ("random.", "secrets.", "numpy.random.")
_WITH_SEED = frozenset(
    {"random.Random", "numpy.random.default_rng", "numpy.random.RandomState", "numpy.random.SeedSequence"}
)
_SEEDING = frozenset({"random.seed", "numpy.random.seed"})
_ENVIRONMENT = frozenset(
    {"os.getenv", "os.getpid", "os.getcwd", "socket.gethostname", "platform.node", "getpass.getuser"}
)
_LOGGING = frozenset({"debug", "info", "warning", "error", "exception", "critical", "log", "print"})
_ORDER_FREE = frozenset({"sorted", "set", "frozenset", "len", "sum", "min", "max", "any", "all", "dict"})
_SETS = frozenset({"builtins.set", "builtins.frozenset"})
_TAKING = frozenset({"limit", "take", "head", "first", "tail"})
_NUMBERING = frozenset({"zipWithIndex", "zipWithUniqueId"})
_SQL = frozenset({"expr", "selectExpr", "sql"})
_SHOWN_AT_MOST = 60
_INSIDE_UDF = frozenset({CLOCK, RANDOM, HASH, ENVIRONMENT})


@dataclass(frozen=True)
class File:
    """One file of Python, parsed."""

    path: str
    text: str
    tree: ast.Module
    names: Names = field(default_factory=Names)

    @classmethod
    def read(cls, path: str, shown: str) -> File | None:
        """Read and parse a file, or return None where that cannot be."""
        try:
            with open(path, encoding="utf-8") as opened:
                text = opened.read()
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return None
        return cls(shown, text, tree, Names.of(tree))

    def function_at(self, line: int, name: str) -> ast.AST | None:
        """Find what is defined on a line, decorators counted; a lambda has no name."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
                if min([node.lineno, *(one.lineno for one in node.decorator_list)]) <= line <= node.lineno:
                    return node
            elif isinstance(node, ast.Lambda) and name == "<lambda>" and node.lineno == line:
                return node
        return None


def remarks_on(file: File, start: ast.AST) -> Iterator[Remark]:
    """Say what in a function, and in what it uses of its file, differs from run to run."""
    allowed = allowed_lines(file.text)
    found = chain.from_iterable(_Look(file, node, is_start=node is start).found() for node in _reached(file, start))
    seen = set()
    for node, remark in sorted(found, key=lambda pair: (pair[1].line, pair[1].column)):
        key = (remark.rule, remark.line, remark.column)
        if key not in seen:
            seen.add(key)
            meant = is_allowed(allowed, remark.rule.name, remark.line, _last_line(node))
            yield replace(remark, is_allowed=meant)


def _last_line(node: ast.AST) -> int:
    return node.lineno if isinstance(node, ast.FunctionDef) else getattr(node, "end_lineno", 0) or 0


def _reached(file: File, start: ast.AST) -> list[ast.AST]:
    """Return a function, and whatever of its file it names: functions, classes and constants."""
    found, waiting = [start], [start]
    known = {**file.names.constants, **file.names.functions}
    while waiting:
        for name in _named_in(waiting.pop()):
            node = known.get(name)
            if node is not None and all(node is not one for one in found):
                found.append(node)
                waiting.append(node)
    return found


def _named_in(node: ast.AST) -> Iterator[str]:
    """Yield the names that something uses, its decorators left aside: those of a pipeline declare it."""
    decorators = getattr(node, "decorator_list", [])
    for child in ast.iter_child_nodes(node):
        if child not in decorators:
            yield from (one.id for one in ast.walk(child) if isinstance(one, ast.Name))


@dataclass
class _Look(ast.NodeVisitor):
    """A walk through one function or constant, in the order of its lines."""

    file: File
    node: ast.AST
    is_start: bool
    remarks: list[tuple[ast.AST, Remark]] = field(default_factory=list)
    frames: dict[str, str] = field(default_factory=dict)
    sets: set[str] = field(default_factory=set)
    values: dict[str, ast.expr] = field(default_factory=dict)
    parents: list[ast.AST] = field(default_factory=list)

    def found(self) -> list[tuple[ast.AST, Remark]]:
        """Return what is to be said, each with its expression."""
        self.values |= self.file.names.constants
        if self.is_start and isinstance(self.node, _Function):
            self.frames = {name: UNORDERED for name in _parameters(self.node) if name != "run"}
        self.own = _parameters(self.node) if isinstance(self.node, _Function) else frozenset()
        self.is_seeded = any(
            isinstance(one, ast.Call) and one.args and self.full(one.func) in _SEEDING for one in ast.walk(self.node)
        )
        self._visit_parts()
        if any(remark.rule in _INSIDE_UDF for _, remark in self.remarks) and self._is_unmarked_udf():
            self.say(self.node, UDF, f"{getattr(self.node, 'name', '')} is a UDF")
        return self.remarks

    def _visit_parts(self) -> None:
        self.parents.append(self.node)
        if isinstance(self.node, ast.expr) and not isinstance(self.node, ast.Lambda):
            self.visit(self.node)
            return
        decorators = getattr(self.node, "decorator_list", [])
        for child in ast.iter_child_nodes(self.node):
            if child not in decorators:
                self.visit(child)

    def _is_unmarked_udf(self) -> bool:
        if not isinstance(self.node, ast.FunctionDef):
            return False
        name = self.node.name
        declared = [one.func if isinstance(one, ast.Call) else one for one in self.node.decorator_list]
        made = [one for one in ast.walk(self.file.tree) if isinstance(one, ast.Call) and _mentions(one.args, name)]
        is_udf = any(self.full(one).endswith(("udf", "udtf")) for one in (*declared, *(one.func for one in made)))
        marks = (one for one in ast.walk(self.file.tree) if isinstance(one, ast.Attribute))
        return is_udf and not any(one.attr == "asNondeterministic" and _mentions([one.value], name) for one in marks)

    def full(self, node: ast.expr) -> str:
        """Return the full name of an expression."""
        return self.file.names.full(node, self.own)

    def say(
        self, node: ast.AST, rule: Rule, shown: str = "", why: str = "", instead: str = "", fills: str = ""
    ) -> None:
        """Note a remark on an expression."""
        text = shown or ast.unparse(node)
        short = text if len(text) <= _SHOWN_AT_MOST else text[: _SHOWN_AT_MOST - 3] + "..."
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", -1) + 1
        self._note(node, line, column, short, rule, why, instead, fills or self._filled_by(node))

    def say_of_method(self, node: ast.Call, func: ast.Attribute, rule: Rule, why: str = "", instead: str = "") -> None:
        """Note a remark on a method, at its own name: a chain of calls may go over many lines."""
        short = f"{func.attr}({', '.join(map(ast.unparse, [*node.args, *node.keywords]))})"
        line, end = func.end_lineno or func.lineno, func.end_col_offset or 0
        self._note(node, line, end - len(func.attr) + 1, short, rule, why, instead)

    def _note(
        self, node: ast.AST, line: int, column: int, short: str, rule: Rule, why: str, instead: str, fills: str = ""
    ) -> None:
        reason, remedy = why or rule.why, instead or rule.instead
        remark = Remark(rule, self.file.path, line, column, short, reason, remedy, fills=fills)
        self.remarks.append((node, remark))

    def _filled_by(self, node: ast.AST) -> str:
        """Return the column that an expression fills: withColumn("name", ...), ....alias("name"), {"name": ...}."""
        child = node
        for parent in reversed(self.parents):
            if isinstance(parent, ast.Dict):
                named = (key for key, value in zip(parent.keys, parent.values, strict=True) if value is child)
                return next((str(key.value) for key in named if isinstance(key, ast.Constant)), "")
            if isinstance(parent, ast.Call) and parent.args and isinstance(parent.args[0], ast.Constant):
                method = getattr(parent.func, "attr", "")
                if method == "alias" or (method == "withColumn" and child is not parent.func):
                    return str(parent.args[0].value)
            child = parent
        return ""

    # ---------------------------------------------------------------- the walk

    def generic_visit(self, node: ast.AST) -> None:
        """Walk on, and remember what is around."""
        self.parents.append(node)
        super().generic_visit(node)
        self.parents.pop()

    def visit_Assign(self, node: ast.Assign) -> None:
        """Note what a name stands for from here on."""
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.frames[target.id] = order_of(node.value, self.frames)
                self.values[target.id] = node.value
                (self.sets.add if self._is_set(node.value) else self.sets.discard)(target.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """Notice a read of the environment."""
        if self.full(node) == "os.environ":
            around = self.parents[-1]
            self.say(around if isinstance(around, ast.Subscript) else node, ENVIRONMENT)
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:
        """Notice rows that are made in the order of a set."""
        makes = any(
            isinstance(one, ast.Yield | ast.YieldFrom)
            or (isinstance(one, ast.Attribute) and one.attr in ("append", "extend", "insert"))
            for statement in node.body
            for one in ast.walk(statement)
        )
        if self._is_set(node.iter) and makes:
            self.say(node.iter, SET_ORDER)
        self.generic_visit(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        """Notice a list in the order of a set."""
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        """Notice values in the order of a set."""
        self._comprehension(node)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        if self._is_set(node.generators[0].iter) and not self._is_in_order_free_call():
            self.say(node.generators[0].iter, SET_ORDER)
        self.generic_visit(node)

    def visit_Starred(self, node: ast.Starred) -> None:
        """Notice arguments in the order of a set."""
        if self._is_set(node.value) and not self._is_in_order_free_call():
            self.say(node.value, SET_ORDER)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        """Notice what a call depends on."""
        name = self.full(node.func)
        method = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if method in _LOGGING and isinstance(self.parents[-1], ast.Expr):
            return
        if name:
            self._named_call(node, name)
        if isinstance(node.func, ast.Attribute) and not name.startswith((*_RANDOM_MODULES, FUNCTIONS)):
            self._method_call(node, node.func)
        if method in _SQL:
            self._sql(node)
        self.generic_visit(node)

    def _named_call(self, node: ast.Call, name: str) -> None:
        count = len(node.args)
        if name in _CLOCKS or count == _CLOCKS_WITHOUT_TIME.get(name, -1):
            self.say(node, CLOCK)
        elif name in _RANDOM or (name.startswith(_RANDOM_MODULES) and not self._is_seeded(node, name)):
            self.say(node, RANDOM)
        elif name in _ENVIRONMENT:
            self.say(node, ENVIRONMENT)
        elif name == "builtins.hash" and not _is_number(node.args):
            self.say(node, HASH)
        elif name in ("builtins.list", "builtins.tuple", "builtins.iter", "builtins.enumerate"):
            if node.args and self._is_set(node.args[0]) and not self._is_in_order_free_call():
                self.say(node, SET_ORDER)
        elif name.startswith(FUNCTIONS + "."):
            self._spark_function(node, name.rpartition(".")[2])

    def _is_seeded(self, node: ast.Call, name: str) -> bool:
        if name in _WITH_SEED:
            return bool(node.args or node.keywords)
        return name in _SEEDING or (self.is_seeded and not name.startswith("secrets."))

    def _spark_function(self, node: ast.Call, name: str) -> None:
        rule = of_function(name, arguments=bool(node.args or node.keywords))
        if rule:
            seeded = name in ("rand", "randn") and bool(node.args or node.keywords)
            self.say(node, rule, why=SEEDED if seeded else "")
        elif name in PICKING_FUNCTIONS | LISTING_FUNCTIONS:
            settled = self._is_windowed_in_order() or self._is_in_order_free_call() or self._is_ordered_later()
            if not settled:
                self.say(node, ORDER, instead=LIST_INSTEAD if name in LISTING_FUNCTIONS else PICK_INSTEAD)
        elif name in RANKING_FUNCTIONS and self._window_around() is not None and not self._is_windowed_in_order():
            self.say(node, ORDER, instead=WINDOW_INSTEAD)

    def _method_call(self, node: ast.Call, func: ast.Attribute) -> None:
        order = order_of(func.value, self.frames)
        given = {keyword.arg for keyword in node.keywords}
        if func.attr in _TAKING and order == UNORDERED and not _is_zero(node.args):
            self.say_of_method(node, func, ORDER, instead=LIMIT_INSTEAD)
        elif func.attr in ("dropDuplicates", "drop_duplicates"):
            spark = func.attr == "dropDuplicates" or order in (ORDERED, UNORDERED)
            if spark and (node.args or "subset" in given) and "keep" not in given:
                self.say_of_method(node, func, ORDER, instead=DISTINCT_INSTEAD)
        elif func.attr in ("sampleBy", "randomSplit") or (func.attr == "sample" and order != UNKNOWN):
            if "random_state" not in given:
                seeded = "seed" in given or len(node.args) > 1
                self.say_of_method(node, func, RANDOM, why=SEEDED if seeded else "", instead=SAMPLE_INSTEAD)
        elif func.attr in _NUMBERING:
            self.say_of_method(node, func, LAYOUT)
        elif func.attr == "join" and isinstance(func.value, ast.Constant) and node.args and self._is_set(node.args[0]):
            self.say(node, SET_ORDER)

    def _sql(self, node: ast.Call) -> None:
        for part in node.args:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                for remark in (one for one in sql_text.remarks_on(part.value) if not one.is_allowed):
                    self.say(part, remark.rule, remark.expression, remark.why, remark.instead, remark.fills)

    # ---------------------------------------------------------------- what is around

    def _is_set(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Set):
            return not all(isinstance(one, ast.Constant) and isinstance(one.value, int) for one in node.elts)
        if isinstance(node, ast.Name):
            return node.id in self.sets
        return isinstance(node, ast.SetComp) or (
            isinstance(node, ast.Call) and self.full(node.func) in _SETS and bool(node.args)
        )

    def _is_in_order_free_call(self) -> bool:
        """Tell whether the result goes straight into something for which its order does not matter."""
        for parent in reversed(self.parents):
            if isinstance(parent, ast.Call):
                name = self.full(parent.func)
                free = ORDER_FREE_FUNCTIONS if name.startswith(FUNCTIONS) else _ORDER_FREE
                return name.rpartition(".")[2] in free
            if not isinstance(parent, ast.Attribute | ast.Starred | ast.ListComp | ast.GeneratorExp):
                return False
        return False

    def _is_ordered_later(self) -> bool:
        """Tell whether the result gets a name, under which it is put in order elsewhere in the function."""
        name = ""
        if isinstance(self.parents[-1], ast.Assign):
            name = next((one.id for one in self.parents[-1].targets if isinstance(one, ast.Name)), "")
        around = self.parents[-2] if isinstance(self.parents[-1], ast.Attribute) else None
        if isinstance(around, ast.Call) and around.args and isinstance(around.args[0], ast.Constant):
            name = str(around.args[0].value)
        calls = [one for one in ast.walk(self.node) if isinstance(one, ast.Call)]
        free = (one for one in calls if self.full(one.func).removeprefix(FUNCTIONS + ".") in ORDER_FREE_FUNCTIONS)
        return bool(name) and any(_mentions(one.args, name) for one in free)

    def _window_around(self) -> ast.expr | None:
        """Return the window of `f(...).over(window)`, while the call of `f` is looked at."""
        around = [one for one in self.parents[-2:] if isinstance(one, ast.Attribute | ast.Call)]
        over = next((one for one in around if isinstance(one, ast.Attribute) and one.attr == "over"), None)
        call = around[0] if over and isinstance(around[0], ast.Call) and around[0].func is over else None
        return call.args[0] if call and call.args else None

    def _is_windowed_in_order(self) -> bool:
        """Tell whether a window puts the rows in order, or may do so out of sight."""
        window = self._window_around()
        return window is not None and is_window_ordered(window, self.values) is not False


def _parameters(node: _Function) -> frozenset[str]:
    given = node.args
    listed: Sequence[ast.arg] = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    return frozenset(one.arg for one in listed)


def _mentions(nodes: Sequence[ast.AST], name: str) -> bool:
    """Tell whether a name, or a column that a text names, is used somewhere."""
    inside = (one for node in nodes for one in ast.walk(node))
    return any(
        (isinstance(one, ast.Name) and one.id == name) or (isinstance(one, ast.Constant) and one.value == name)
        for one in inside
    )


def _is_zero(arguments: Sequence[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0


def _is_number(arguments: Sequence[ast.expr]) -> bool:
    return bool(arguments) and isinstance(arguments[0], ast.Constant) and isinstance(arguments[0].value, int | float)
