"""How does a person begin: a first project, and the packages it needs?"""

from __future__ import annotations

from pathlib import Path

import click

from twice.cli.output import debug_option, output_option, print_json, say
from twice.errors import Misuse, count

_TOML = """# A Twice project. `twice config` shows every setting and where it came from.

[project]
pipelines = "pipelines"

[ledger]
# One file beside the project, on a local disk.
url = "sqlite:///.twice/ledger.db"

[spark]
master = "local[*]"
"""

_PIPELINE = '''"""Visits of a web site, one CSV file a day, kept by day."""

import twice


@twice.pipeline(
    every="1 day",
    start="2024-10-07",
    end="2024-10-11",  # the example's files end here; without it the calendar goes on
    source=twice.files(
        "landing/visits/{execution_date}.csv",
        schema="visit_id string, page string, seconds int, day date",
    ),
    target="STORE:lake/visits",
    pattern=twice.data_overwrite(slice="day"),
)
def visits(rows, run):
    """Keep visits that lasted; each day replaces its own rows and no others."""
    return rows.where("seconds > 0")
'''

_IGNORED = ".twice/\n__pycache__/\nlake/\nspark-warehouse/\n"
_DAYS = ("2024-10-07", "2024-10-08", "2024-10-09", "2024-10-10")
_PAGES = ("/", "/prices", "/docs", "/blog")


def visits_csv(day: str, count: int = 6) -> str:
    """Return a day's visits, the same every time."""
    lines = [f"{day}-{n},{_PAGES[n % len(_PAGES)]},{(n * 7) % 90},{day}" for n in range(count)]
    return "\n".join(["visit_id,page,seconds,day", *lines]) + "\n"


def example_files(store: str) -> dict[str, str]:
    """Return the files of the example project, by their path."""
    return {
        "pipelines/visits.py": _PIPELINE.replace("STORE", store),
        ".gitignore": _IGNORED,
        **{f"landing/visits/{day}.csv": visits_csv(day) for day in _DAYS},
        "twice.toml": _TOML,  # last: it marks a project that is whole
    }


def write_example(folder: Path, store: str) -> list[str]:
    """Write what is not there yet, and return the paths that were made."""
    made = []
    for name, content in example_files(store).items():
        file = folder / name
        if file.exists():
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        made.append(name)
    return made


@click.command("init")
@click.argument("folder", type=click.Path(file_okay=False), default=".")
@click.option(
    "--store",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="Where the example writes.",
)
@output_option
@debug_option
def init_command(folder: str, store: str, output: str) -> None:
    """Make a project in FOLDER that runs at once. Run again, it changes nothing.

    \b
    Example:
      twice init my-project && cd my-project && twice run visits --at 2024-10-07
    """
    place = Path(folder)
    if (place / "twice.toml").exists():
        made: list[str] = []
    else:
        try:
            made = write_example(place, store)
        except OSError as error:
            raise Misuse(f"The project cannot be made in {folder}: {error.strerror or error}.") from error
    if output == "json":
        print_json({"made": made})
        return
    if not made:
        print("There is a project already; nothing was changed.")
    for name in made:
        print(f"made {name}")
    go = f"  cd {folder}\n" if folder != "." else ""
    print(f"Next:\n{go}  twice plan visits --at 2024-10-07\n  twice run visits --at 2024-10-07\n  twice status")


@click.group("jars")
def jars_command() -> None:
    """The JVM packages of the stores: pinned here, fetched once."""


@jars_command.command("fetch")
@click.argument("stores", nargs=-1)
@debug_option
def jars_fetch(stores: tuple[str, ...]) -> None:
    """Fetch the packages of STORES, by default of all, into the cache folder.

    \b
    Example:
      twice jars fetch delta
    """
    from twice import jars
    from twice.errors import suggestion

    known = jars.configurations()
    for store in stores:
        if store not in known:
            raise Misuse(f"No packages are pinned for {store!r}.", fix=suggestion(store, known))
    found = jars.ensure(list(stores) or known)
    say(f"{count(len(found), 'package')} in {jars.cache_folder()}")


@jars_command.command("list")
@output_option
def jars_list(output: str) -> None:
    """Show what is pinned and what has been fetched.

    \b
    Example:
      twice jars list
    """
    from twice import jars

    found = {
        conf: {"pinned": jars.pinned(conf), "fetched": [str(jar) for jar in jars.cached(conf)]}
        for conf in jars.configurations()
    }
    if output == "json":
        print_json({"folder": str(jars.cache_folder()), "packages": found})
        return
    print(f"folder {jars.cache_folder()}")
    for conf, facts in found.items():
        state = "fetched" if facts["fetched"] else "not fetched yet"
        print(f"{conf}: {', '.join(facts['pinned'])} ({state})")
