"""Hooks only: which deaths `make test` tries on the stores of files; `make prove` tries all of them."""

TELLING = {
    "test_81_death_in_a_first_run": ("slice", "merger by partition", "proxy"),
    "test_81_death_while_a_corrected_slot_replaces_its_rows": (
        "slice",
        "partitions",
        "table",
        "merger",
        "append with lineage",
        "proxy",
        "cleaner",
    ),
}


def pytest_collection_modifyitems(config, items):
    if config.getoption("--every-kill"):
        return
    left_out = [item for item in items if _is_left_out(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def _is_left_out(item):
    telling = TELLING.get(getattr(item, "originalname", ""))
    given = getattr(item, "callspec", None)
    if not telling or given is None or given.params["kind"] == "memory":
        return False
    return given.params["shape"] not in telling
