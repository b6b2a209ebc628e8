"""Which mistakes in retries, effects and steps must our own tools find?

Like `mutants`, of which these are part.
"""

import secrets

from mutants import mutant
from twice import effects as effects_of_runs
from twice import execute, retrying, steps
from twice.ledger import effects, retries
from twice.runs import Effect

CALL = "a call and a death at every point"


@mutant("a run that dies after its publish never makes its call", by=CALL, shows="calls per key")
def effect_without_an_intention(patch):
    patch.setattr(execute, "intend", lambda *_: None)


@mutant(
    "the service cannot tell a repeat from another call",
    by="a call registered by two attempts",
    shows="keys of the second attempt",
)
def effect_key_of_its_own_for_every_attempt(patch):
    def of(cls, slot, generation, name, form, call):
        return cls(secrets.token_hex(16), name, generation, form, call)

    patch.setattr(Effect, "of", classmethod(of))


@mutant("a call is made again although it was answered", by=CALL, shows="calls per key")
def effect_that_is_never_confirmed(patch):
    patch.setattr(effects, "ended", lambda *_: None)


@mutant("a call is made for rows that nobody ever saw", by="a call of an attempt that never published", shows="calls")
def every_intention_counts(patch):
    def mark(db, receipt):
        db.execute("UPDATE effects SET published=1 WHERE slot=?", (receipt.slot,))

    patch.setattr(effects, "_mark", mark)


@mutant("a retry publishes another edition", by="a retry of a forced run that landed", shows="the edition")
def retry_that_forces_blindly(patch):
    patch.setattr(retrying._Filling, "_asked_now", lambda self, job: self.asked)


@mutant("a forced run that was killed is forgotten", by="a forced run that is killed", shows="the edition")
def attempt_that_does_not_say_what_was_asked(patch):
    patch.setattr(execute, "plain", lambda _: "{}")


@mutant("a walk takes up a forced run as a plain one", by="a forced run that is killed", shows="the edition")
def walk_that_asks_for_nothing(patch):
    patch.setattr(retrying, "_due_row", lambda *_: None)


@mutant("a service is pressed that asked for time", by="a service that asks for time", shows="calls before the time")
def effect_called_as_soon_as_possible(patch):
    patch.setattr(effects_of_runs, "_leave_alone", lambda *_: None)


@mutant("a run that kills its process is tried for ever", by="a run that kills its process every time", shows="the run")
def try_that_is_counted_when_it_ends(patch):
    really = retries.take

    def take(ledger, row, now, per_hour):
        taken = really(ledger, row, now, per_hour)
        if taken:
            with ledger.transaction() as db:
                db.execute("UPDATE retries SET tries=tries-1 WHERE slot=?", (row.slot,))
        return taken

    patch.setattr(retries, "take", take)
    patch.setattr(retrying._Filling, "_check_last_try", lambda self: None)


@mutant(
    "rows of the old code are published",
    by="a step whose code is corrected between two attempts",
    shows="rows after the correction",
)
def step_named_without_its_code(patch):
    patch.setattr(steps, "code_digest", lambda _: "")


@mutant(
    "rows of other inputs are published",
    by="an input that changes during a step and changes back",
    shows="what was kept",
)
def step_kept_without_a_second_look(patch):
    really = steps.Kept.of_run
    patch.setattr(steps.Kept, "of_run", lambda self, run, f, code, _: really(self, run, f, code, lambda: None))


@mutant("a whole step is run again", by="a step that is killed and run again", shows="steps that were run")
def step_named_by_its_attempt(patch):
    really = steps.Kept.of_run

    def of_run(self, run, fingerprint, code, look_again):
        return really(self, run, fingerprint + run.attempt, code, look_again)

    patch.setattr(steps.Kept, "of_run", of_run)
