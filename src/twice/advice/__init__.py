"""Which pattern fits, why, at what cost, and what does it not protect against?

A tree of questions leads to one advice. Whether this version of Twice carries a pattern, and whether a store does, is
asked of the public names and of the matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from twice.advice.ends import ADVICE, Advice, Way
from twice.advice.questions import NO, QUESTIONS, TREE, YES, Fork, Question
from twice.errors import Misuse, Unsupported, suggestion

__all__ = [
    "ADVICE",
    "NO",
    "QUESTIONS",
    "TREE",
    "YES",
    "Advice",
    "Answers",
    "Fork",
    "Question",
    "Way",
    "advise",
    "carried",
    "command",
    "led_there",
    "next_question",
    "open_questions",
    "refusal",
    "usable",
]

Answers = Mapping[str, str]

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
