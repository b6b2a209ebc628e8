"""Run the command line with `python -m twice`."""

from twice.cli import entry

entry()
