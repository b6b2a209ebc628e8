"""What does the command `twice` understand?

Commands are loaded when they are called, so that `twice run` of a published slot answers before
a heavy library could be imported.
"""

from __future__ import annotations

import os
import sys
from contextlib import redirect_stderr, suppress
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from twice import __version__, interrupts
from twice.cli.completion import VARIABLE
from twice.cli.options import refuse_repeated
from twice.errors import TwiceError, suggestion
from twice.masks import mask

_COMMANDS = {
    "init": ("project", "Make a project that runs at once."),
    "demo": ("demo", "Watch a pipeline run, die, run again and be corrected."),
    "doctor": ("doctor", "See whether everything that a run needs is there."),
    "jars": ("project", "Fetch the JVM packages of the stores, or show where they are."),
    "list": ("look", "List the pipelines of the project."),
    "plan": ("run", "Say what a run would do, and change nothing."),
    "run": ("run", "Fill one slot, or all that are due."),
    "backfill": ("backfill", "Fill the slots of a stretch of time, in order."),
    "retry": ("retries", "Try again what is due: the periodic job."),
    "dead": ("retries", "List, show, requeue or drop runs that were set aside after their last try."),
    "files": ("files", "List, explain or forget files that an ingest has taken in."),
    "quarantine": ("quarantine", "List, show, read again or drop rows that were set aside."),
    "effects": ("effects", "List, deliver, confirm or forget calls in outside systems."),
    "status": ("status", "Show what is published, missing or no longer vouched for."),
    "metrics": ("metrics", "Print figures about the runs, for Prometheus."),
    "runs": ("look", "List attempts, newest first."),
    "show": ("look", "Show one run, one slot or one target in full."),
    "logs": ("look", "Print the traceback and the log of a run that did not end well."),
    "check": ("check", "Look for what is wrong, and change nothing."),
    "read": ("timeline", "Print rows of a table, as they are or as they were."),
    "versions": ("timeline", "List the versions of a table, or those that a view can point at."),
    "restore": ("timeline", "Make an older version of a table the newest."),
    "diff": ("timeline", "Tell how two versions of a table differ."),
    "point": ("views", "Point a view at one of its versions, back or forward."),
    "seal": ("views", "Let a view refuse every further publish, or allow them again."),
    "freeze": ("views", "Unite old periods in larger tables."),
    "evolve": ("views", "Add an optional column to the tables of old periods."),
    "roles": ("roles", "Print or carry out the SQL that says who may write and who may read a view."),
    "adopt": ("ledger", "Take over a target from another ledger, or a filled table."),
    "release": ("ledger", "Give a target back: no ledger owns it any more."),
    "tidy": ("ledger", "Remove leftovers of dead attempts and old versions."),
    "prove": ("prove", "Show that a pipeline can be run twice, or how it cannot."),
    "advise": ("advise", "Say which pattern fits, why, and what it costs."),
    "matrix": ("look", "Show which store carries which pattern."),
    "ledger": ("ledger", "Rebuild the ledger from the stores, or move it."),
    "config": ("look", "Show every setting and where it came from."),
    "completion": ("completion", "Print the script that completes names and times in your shell."),
}


class _Commands(click.Group):
    """A group that knows its commands by name and loads one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        found: click.Command = getattr(import_module(f"twice.cli.{_COMMANDS[name][0]}"), f"{name}_command")
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            raise click.UsageError(f"There is no command {args[0]!r}. {suggestion(args[0], _COMMANDS)}", ctx)
        found = super().resolve_command(ctx, args)
        if found[1] is not None and not ctx.resilient_parsing:
            refuse_repeated(found[1], found[2])
        return found

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(name, help=text) for name, (_, text) in _COMMANDS.items() if name.startswith(incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


EPILOG = """\b
Examples:
  twice init my-project           a project that runs at once
  twice plan visits --at 2024-10-07
  twice run visits --at 2024-10-07
  twice backfill visits --from 2024-10-01 --to 2024-10-08

\b
Exit codes:
  0  fine (a skip is fine)           3  outcome unknown: run again, it asks the store
  1  failed, rerun is safe           4  busy, fenced, or a stale plan
  2  usage or project error          5  a check or a proof found something wrong
  130, 143  interrupted by Ctrl-C or SIGTERM: it says what is true, and rerun is safe
"""


@click.command(cls=_Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="twice")
def cli() -> None:
    """Data pipelines that you can run twice."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    given = sys.argv[1:] if arguments is None else arguments
    try:
        with interrupts.first():
            result = cli.main(args=given, prog_name="twice", standalone_mode=False)
            interrupts.check()
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        _print_error(given, "Usage", error.format_message())
        error.show()
        return 2
    except (click.Abort, KeyboardInterrupt):
        return _report_interrupt(given)
    except TwiceError as error:
        return _report(error, given)
    except Exception as error:  # noqa: BLE001 - the last place where an error can become a sentence
        return _report_unforeseen(error, given)
    return result if isinstance(result, int) else 0


def _complete() -> int:
    """Answer a shell that completes a word; whatever goes wrong, nothing is printed into the prompt."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stderr(nowhere), suppress(Exception, SystemExit):
        cli.main(prog_name="twice", standalone_mode=False)
    return 0


def _wants_json(given: list[str]) -> bool:
    """Tell whether an error is to be printed as JSON; the options may not have been parsed."""
    for number, word in enumerate(given):
        if word == "--output" and given[number + 1 :]:
            return given[number + 1] == "json"
        if word.startswith("--output="):
            return word == "--output=json"
    return os.environ.get("TWICE_OUTPUT") == "json"


def _print_error(given: list[str], kind: str, what: str, why: str = "", fix: str = "") -> None:
    if _wants_json(given):
        from twice.cli.output import print_json

        print_json({"error": {"type": kind, "what": what, "why": why, "fix": fix}})


def _report(error: TwiceError, given: list[str]) -> int:
    if "--debug" in given:
        _traceback(error)
    _print_error(given, type(error).__name__, error.what, error.why, error.fix)
    print(f"{type(error).__name__}: {error}", file=sys.stderr)
    return error.exit_code


def _report_interrupt(given: list[str]) -> int:
    """Say what is true of the slots that were in hand; a question that was answered with no ends a command in the same way."""
    if not interrupts.asked():
        print("\nStopped. Running again is safe.", file=sys.stderr)
        return interrupts.exit_code()
    why = " ".join(interrupts.told()) or "No slot was in hand."
    fix = "What was published before stays published. Running the same command again is safe."
    _print_error(given, "Interrupted", "The command was interrupted.", why, fix)
    print(f"\nInterrupted. {why}\n  {fix}", file=sys.stderr)
    return interrupts.exit_code()


def _report_unforeseen(error: Exception, given: list[str]) -> int:
    from twice.explain import explain

    if "--debug" in given:
        _traceback(error)
    why = "What became of the slot is not known; the store is."
    fix = "Run again: it asks the store first. --debug shows the whole error."
    _print_error(given, "Unforeseen", explain(error), why, fix)
    print(f"Unforeseen: {explain(error)}\n  {why}\n  {fix}", file=sys.stderr)
    return 3


def _traceback(error: BaseException) -> None:
    import traceback

    print(mask("".join(traceback.format_exception(error))), file=sys.stderr, end="")


def entry() -> None:
    """Entry point of the console script: one command in a process of its own, so its signals are ours."""
    if VARIABLE in os.environ:
        sys.exit(_complete())
    with interrupts.handled():
        code = main()
    sys.exit(code)
