"""How does a person, or a monitor, learn that something is not as it should be?"""

from __future__ import annotations

from collections.abc import Sequence

import click

from twice.checks import Asked, Report, look_over
from twice.cli.completion import pipelines
from twice.cli.opening import opened, pipelines_chosen, selection_options
from twice.cli.output import debug_option, output_option, print_json, project_option
from twice.errors import NotIdempotent, count
from twice.findings import Finding


@click.command("check")
@click.argument("names", metavar="[PIPELINE]...", nargs=-1, shell_complete=pipelines)
@click.option("--quick", is_flag=True, help="Only what can be seen without starting a JVM.")
@click.option("--plan", is_flag=True, help="Call the transforms, and lint Spark's plans for their rows too.")
@click.option("--strict", is_flag=True, help="Take what the lint finds for wrong, not only for worth knowing.")
@selection_options
@project_option
@output_option
@debug_option
def check_command(
    names: tuple[str, ...],
    quick: bool,
    plan: bool,
    strict: bool,
    select: tuple[str, ...],
    exclude: tuple[str, ...],
    folder: str | None,
    output: str,
) -> int:
    """Look for what is wrong with pipelines and their targets, and change nothing.

    Exit 5 if something is wrong. What is only worth knowing is printed, and ends with 0.

    \b
    Examples:
      twice check
      twice check visits orders --quick
      twice check --select tag:nightly
      twice check --output json
    """
    asked = Asked(quick, plan, strict)
    project = opened(folder, only_looking=True)
    chosen = pipelines_chosen(project, names, select, exclude)
    report = look_over(project, chosen, asked)
    if output == "json":
        print_json(_as_json(report))
    else:
        _print(report)
    return NotIdempotent.exit_code if report.wrong else 0


def _as_json(report: Report) -> dict[str, object]:
    return {
        "wrong": report.wrong,
        "notices": report.notices,
        "pipelines": report.pipelines,
        "findings": [finding.to_json() for finding in report.findings],
        "left_out": report.left_out,
    }


def _print(report: Report) -> None:
    for name in report.pipelines:
        own = [finding for finding in report.findings if finding.pipeline == name]
        if own:
            _print_pipeline(name, own)
    for what in report.left_out:
        print(f"Not looked at: {what}.")
    looked = count(len(report.pipelines), "pipeline")
    if not report.findings:
        print(f"{looked}: nothing found.")
        return
    print(f"{looked}: {report.wrong} wrong, {count(report.notices, 'notice')}.")


def _print_pipeline(name: str, findings: Sequence[Finding]) -> None:
    print(f"{name} ({findings[0].target})")
    for finding in sorted(findings, key=lambda one: not one.is_wrong):
        print(f"  {finding.severity:<6}  {finding.check}: {finding.what}")
        if finding.remedy:
            print(f"          {finding.remedy}")
    print()
