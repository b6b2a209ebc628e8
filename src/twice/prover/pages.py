"""How does a proof look, drawn on one page that needs no network?

The run is a line of points in the order in which it passes them, green where every death was survived
and red where one was not. Each opens to what was tried there and what was seen. No script is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from twice.prover.trials import REPEAT, Proof, Tried

_STYLE = """
:root { --good: #1a7f4b; --bad: #c0262d; --idle: #8a94a0; --ink: #1c2430; --paper: #ffffff; --line: #d9dee5; }
@media (prefers-color-scheme: dark) {
  :root { --good: #3fb97a; --bad: #ff6b6b; --idle: #7d8894; --ink: #e6eaf0; --paper: #14181e; --line: #2e3742; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 2rem 1.25rem 4rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.1rem; margin: 2.2rem 0 .8rem; }
.verdict { font-weight: 600; } .good { color: var(--good); } .bad { color: var(--bad); } .idle { color: var(--idle); }
.facts { margin: .2rem 0; color: var(--idle); }
.strip { display: flex; margin: 1.2rem 0 0; padding: 0 .5rem; align-items: center; }
.strip a { flex: none; width: 1.1rem; height: 1.1rem; border-radius: 50%; background: var(--good); }
.strip a.bad { background: var(--bad); } .strip a.idle { background: var(--idle); }
.strip i { flex: 1 1 auto; height: 3px; min-width: 4px; background: var(--line); }
ol.run { list-style: none; margin: 0; padding: 0 0 0 1.1rem; border-left: 3px solid var(--line); }
ol.run > li { position: relative; margin: .15rem 0; }
ol.run > li::before { content: ""; position: absolute; left: -1.62rem; top: .55rem; width: .9rem; height: .9rem;
  border-radius: 50%; background: var(--good); border: 2px solid var(--paper); }
ol.run > li.bad::before { background: var(--bad); } ol.run > li.idle::before { background: var(--idle); }
summary { cursor: pointer; padding: .3rem .4rem; border-radius: .4rem; }
summary:focus-visible, a:focus-visible { outline: 2px solid var(--ink); outline-offset: 2px; }
summary code { font-weight: 600; }
table { border-collapse: collapse; width: 100%; color: var(--ink); margin: .2rem 0 1rem; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .35rem .5rem; border-top: 1px solid var(--line);
  overflow-wrap: anywhere; }
td:first-child, td.brief, th { white-space: nowrap; }
code { font-family: ui-monospace, monospace; font-size: .92em; }
pre { overflow-x: auto; padding: .6rem .8rem; border: 1px solid var(--line); border-radius: .4rem; margin: .3rem 0 0; }
"""


def page(proof: Proof) -> str:
    """Return the page of a proof."""
    title = f"{proof.pipeline} {proof.slot}"
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Proof of {escape(title)}: {escape(proof.told)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(title)} <span class="verdict {_colour(proof.tried)}">{escape(proof.told)}</span></h1>
<p class="facts">{_facts(proof)}</p>
{_strip(proof)}
{_counterexamples(proof)}
{_run(proof)}
{_repeats(proof)}
{_left_out(proof)}
</body>
</html>
"""


def _run(proof: Proof) -> str:
    """Draw the points one below the other; a run that was not made passed none."""
    points = "".join(_point(proof, number, point) for number, point in enumerate(_points(proof)))
    if not points:
        return ""
    told = (
        "A run passes these points from top to bottom, above from left to right. At each of them it was made to die, "
        "and run again."
    )
    return f'<h2>The run, point by point</h2>\n<p class="facts">{told}</p>\n<ol class="run">\n{points}</ol>'


def _points(proof: Proof) -> list[str]:
    """Return all points, those of pairs last; those at which nothing was tried are drawn too."""
    return list(dict.fromkeys([*proof.points, *(point for point in proof.by_point() if point != REPEAT)]))


def _colour(tried: Sequence[Tried]) -> str:
    if not tried:
        return "idle"
    return "good" if all(one.survived for one in tried) else "bad"


def _facts(proof: Proof) -> str:
    bad = len(proof.counterexamples)
    told = [
        f"Store {proof.store}",
        f"{len(proof.tried) - bad} of {len(proof.tried)} trials survived",
        f"{len(proof.left_out)} left out",
        f"{proof.seconds:.0f} s",
    ]
    return escape(" · ".join(told) + "".join(f" · {note}" for note in proof.notes))


def _counterexamples(proof: Proof) -> str:
    if proof.survived:
        return ""
    shown = "".join(
        f"<p><strong class='bad'>{escape(one.trial.name)}: {escape(one.verdict)}</strong><br>"
        f"It {escape(one.trial.does)}. Seen: {escape(one.seen.removesuffix('.'))}.</p><pre>{escape(one.replay)}</pre>{_alike(others)}"
        for one, others in proof.alike()
    )
    return f"<h2>Counterexamples</h2>{shown}"


def _alike(names: Sequence[str]) -> str:
    listed = ", ".join(f"<code>{escape(name)}</code>" for name in names)
    return f"<p class='facts'>The same was seen after {listed}.</p>" if names else ""


def _strip(proof: Proof) -> str:
    found = proof.by_point()
    dots = [
        f'<a class="{_colour(found.get(point, []))}" href="#point{number}" title="{escape(point)}"'
        f' aria-label="{escape(point)}: {_words(found.get(point, []))}"></a>'
        for number, point in enumerate(proof.points)
    ]
    return f'<div class="strip">{"<i></i>".join(dots)}</div>'


def _words(tried: Sequence[Tried]) -> str:
    bad = sum(not one.survived for one in tried)
    if not tried:
        return "nothing tried"
    return f"{len(tried)} survived" if not bad else f"{bad} of {len(tried)} did not survive"


def _point(proof: Proof, number: int, point: str) -> str:
    tried = proof.by_point().get(point, [])
    colour = _colour(tried)
    opened = " open" if colour == "bad" else ""
    return (
        f'<li id="point{number}" class="{colour}"><details{opened}><summary><code>{escape(point)}</code> '
        f'<span class="{colour}">{_words(tried)}</span></summary>{_table(tried)}</details></li>\n'
    )


def _repeats(proof: Proof) -> str:
    tried = proof.by_point().get(REPEAT, [])
    return f"<h2>Repeats</h2>{_table(tried)}" if tried else ""


def _table(tried: Sequence[Tried]) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(one.trial.way)}</code></td><td>It {escape(one.trial.does)}.</td>"
        f'<td class="brief {_colour([one])}">{escape(one.verdict)}</td><td>{escape(one.seen)}</td>'
        f'<td class="brief">{one.seconds:.1f} s</td></tr>'
        for one in tried
    )
    head = "<tr><th>way</th><th>what was done</th><th>verdict</th><th>what was seen</th><th>took</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _left_out(proof: Proof) -> str:
    rows = "".join(
        f"<tr><td>{escape(why)}</td><td>{', '.join(f'<code>{escape(name)}</code>' for name in names)}</td></tr>"
        for why, names in proof.left_out_by_reason().items()
    )
    if not rows:
        return ""
    whole = f"<p>The whole would take about {(proof.seconds + proof.seconds_left_out) / 60:.0f} minutes.</p>"
    return f"<h2>Left out</h2><table><tr><th>why</th><th>trials</th></tr>{rows}</table>{whole}"
