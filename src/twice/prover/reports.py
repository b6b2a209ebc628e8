"""How is a proof told to people, and to a build server?"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree as ET

from twice.prover.trials import Proof, Tried


def told(one: Tried, others: Sequence[str] = ()) -> str:
    """Tell a counterexample: what was done, what was seen, and how to see it again."""
    text = f"{one.trial.name}: {one.verdict}\n  It {one.trial.does}.\n  Seen: {one.seen}\n  Again: {one.replay}"
    return text + (f"\n  The same was seen after {', '.join(others)}" if others else "")


def junit_xml(proof: Proof) -> str:
    """Write a proof as JUnit XML: one test case for each trial, and those that were left out as skipped."""
    suite = ET.Element(
        "testsuite",
        name=f"twice prove {proof.pipeline} {proof.slot}",
        tests=str(len(proof.tried) + len(proof.left_out)),
        failures=str(len(proof.counterexamples)),
        errors="0",
        skipped=str(len(proof.left_out)),
        time=f"{proof.seconds:.1f}",
    )
    for one in proof.tried:
        case = _case(suite, proof, one.trial.name, one.seconds)
        if not one.survived:
            failure = ET.SubElement(case, "failure", type=one.verdict, message=_printable(one.seen))
            failure.text = _printable(told(one))
    for left in proof.left_out:
        ET.SubElement(_case(suite, proof, left.name, 0), "skipped", message=_printable(left.why))
    ET.indent(suite)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suite, encoding="unicode") + "\n"


def _case(suite: ET.Element, proof: Proof, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=f"prove.{proof.pipeline}", name=name, time=f"{seconds:.2f}")


def _printable(text: str) -> str:
    """XML has no way to write most control characters, not even escaped."""
    return "".join(one if one.isprintable() or one in "\n\t" else "\N{REPLACEMENT CHARACTER}" for one in text)
