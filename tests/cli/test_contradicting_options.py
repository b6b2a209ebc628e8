"""Is every option that is given either followed or refused?"""

import pytest

DAY = "2024-10-07"
TARGET = "parquet:lake/visits"
CONTRADICTIONS = [
    (f"run visits --at {DAY} --due", "--due and --at contradict each other"),
    (f"run --due --at {DAY}", "--due and --at contradict each other"),
    ("run visits --key a --due", "--due and --key contradict each other"),
    ("run visits --due --force --accept", "--force and --accept contradict each other"),
    (f"plan visits --at {DAY} --force --accept", "--force and --accept contradict each other"),
    ("check --quick --plan", "Spark's plans need a JVM"),
    ("prove visits --only publish.after/kill --full", "--only and --full contradict each other"),
    ("prove visits --only publish.after/kill --pairs", "--only and --pairs contradict each other"),
    ("prove visits --only publish.after/kill --budget 1m", "--only and --budget contradict each other"),
    ("prove visits --full --budget 1m", "--full and --budget contradict each other"),
    (f"plan visits --at {DAY} --due", "--due and --at contradict each other"),
    ("plan --due --key a", "--due and --key contradict each other"),
    ("run visits --select visits --due", "visits and --select contradict each other"),
    ("plan visits --exclude orders --due", "visits and --exclude contradict each other"),
    ("run --select visits --key a", "--key and --select contradict each other"),
    ("plan --exclude orders --key a", "--key and --exclude contradict each other"),
    (f"backfill visits -s visits --from {DAY} --to 2024-10-08", "visits and --select contradict each other"),
    ("check visits --select visits", "visits and --select contradict each other"),
    ("prove visits --select visits", "visits and --select contradict each other"),
    (f"prove --select visits --at {DAY}", "--select and --at contradict each other"),
    ("prove --exclude orders --only publish.after/kill", "--exclude and --only contradict each other"),
    ("prove --select visits --junit proof.xml", "--select and --junit contradict each other"),
    (f"read {TARGET} --version 1 --as-of {DAY}", "by its number or by a slot, not by both"),
    (f"seal {TARGET} --undo --why x", "--undo and --why contradict each other"),
    (f"show visits --at {DAY} --row-source visit_id=1", "--row-source and --at contradict each other"),
    (f"show visits --at {DAY} --files", "visits and --files contradict each other"),
    (f"show {TARGET} --at {DAY}", f"{TARGET} and --at contradict each other"),
    (f"show {TARGET} --row-source visit_id=1", f"{TARGET} and --row-source contradict each other"),
    # of an option that is there twice, only the last would count
    (f"run visits --at {DAY} --at 2024-10-08", "--at is given 2 times"),
    (f"backfill visits --from {DAY} --to 2024-10-08 --to 2024-10-09", "--to is given 2 times"),
    ("files list visits --state taken --state forgotten", "--state is given 2 times"),
    ("advise --keys --no-keys", "--keys is given 2 times"),
    ("tidy --keep-days 1 --keep-days 2", "--keep-days is given 2 times"),
    # a slot has a time or a key
    (f"run visits --at {DAY} --key a", "so its slots have no key"),
    (f"plan visits --at {DAY} --key a", "so its slots have no key"),
    (f"show visits --at {DAY} --key a", "so its slots have no key"),
    (f"prove visits --at {DAY} --key a", "so its slots have no key"),
    (f"dead drop visits --at {DAY} --key a", "so its slots have no key"),
    (f"quarantine show visits --at {DAY} --key a", "so its slots have no key"),
]


@pytest.mark.parametrize(("words", "told"), CONTRADICTIONS, ids=[words for words, _ in CONTRADICTIONS])
def test_contradicting_options_are_refused_before_anything_is_done(twice, home, words, told):
    said = twice(*words.split())
    assert (said.code, said.out) == (2, "")
    assert told in said.err
    assert not (home.folder / "lake").exists()


def test_a_flag_that_is_said_twice_says_the_same(twice, home):
    assert twice("check", "--quick", "--quick").code == 0
    assert twice("show", TARGET, "--files", "--files").code == 0


def test_an_attempt_has_no_other_slot_than_its_own(twice, home):
    (home.folder / f"landing/visits/{DAY}.csv").unlink()
    assert twice("run", "visits", "--at", DAY).code == 1
    attempt = twice("runs", "--output", "json").json["attempts"][0]["attempt"]
    assert twice("show", attempt).code == 0
    said = twice("show", attempt, "--at", "2024-10-08")
    assert said.code == 2
    assert f"{attempt} and --at contradict each other" in said.err
