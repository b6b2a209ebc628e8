"""Who may write and who may read a view on a server?"""

from __future__ import annotations

import click

from twice.abilities import GrantsRoles
from twice.cli.completion import targets
from twice.cli.opening import opened
from twice.cli.output import confirm, debug_option, output_option, print_json, project_option
from twice.errors import Misuse


@click.command("roles")
@click.argument("target", shell_complete=targets)
@click.option("--owner", default="", help="Role that owns everything and cannot log in.  [default: VIEW_owner]")
@click.option("--writer", default="", help="Role that fills the open version and publishes.  [default: VIEW_writer]")
@click.option("--reader", default="", help="Role that sees the view alone.  [default: VIEW_reader]")
@click.option("--apply", "carry_out", is_flag=True, help="Carry the statements out, in one transaction.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@project_option
@output_option
@debug_option
def roles_command(
    target: str,
    owner: str,
    writer: str,
    reader: str,
    carry_out: bool,
    yes: bool,
    folder: str | None,
    output: str,
) -> None:
    """Print the SQL that gives the view TARGET an owner, a writer and a reader.

    Given again, the statements change nothing. Passwords are not set: ALTER ROLE does that, where one is wanted.

    \b
    Examples:
      twice roles postgres:devices.current
      twice roles postgres:devices.current --writer etl --reader dashboards --apply
    """
    project = opened(folder, only_looking=not carry_out)
    where = project.target(target)
    target = where.text
    store = project.store(where.store)
    if not isinstance(store, GrantsRoles):
        raise Misuse(f"The store {where.store!r} has no roles.", fix="They are for views on PostgreSQL.")
    if carry_out:
        confirm(f"Make the roles of {target}, and hand over to its owner what is there?", yes=yes)
    statements = store.roles(where.name, owner, writer, reader, apply=carry_out)
    if output == "json":
        print_json({"target": target, "applied": carry_out, "statements": statements})
    elif carry_out:
        print(f"The roles of {target} are made: {len(statements)} statements were carried out.")
    else:
        print("begin;", *(f"{statement};" for statement in statements), "commit;", sep="\n")
