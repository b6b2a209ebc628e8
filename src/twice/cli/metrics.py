"""How does a person, or a collector, get the figures?"""

from __future__ import annotations

import click

from twice.cli.opening import opened
from twice.cli.output import debug_option, project_option, say
from twice.errors import Misuse
from twice.metrics import exposition


@click.command("metrics")
@click.option("--file", "file", type=click.Path(dir_okay=False), help="Write them to this file, whole or not at all.")
@project_option
@debug_option
def metrics_command(file: str | None, folder: str | None) -> None:
    """Print figures about the runs in the text form of Prometheus, from the ledger; no JVM is started.

    \b
    Examples:
      twice metrics
      twice metrics --file /var/lib/node_exporter/twice.prom
    """
    text = exposition(opened(folder, only_looking=True))
    if not file:
        print(text, end="")
        return
    from twice.cli.results import write_whole  # with all that runs need, of which figures need nothing

    try:
        write_whole(file, text)
    except OSError as error:
        raise Misuse(f"{file} cannot be written: {error.strerror or error}.", "The file is as it was.") from error
    say(f"wrote {file}")
