"""Which tests that take long are tried by `make test` on Parquet and Delta? On memory all are, and `make prove` tries all."""

import re

TELLING = {
    "test_no_false_alarm_on_any_pattern": ("slice", "stateful", "append"),
    "test_81_death_while_the_first_files_are_taken_in": ("append",),
    "test_81_death_in_a_first_run": (
        "postgres slice",
        "postgres merger by partition",
        "postgres proxy",
        "parquet slice",
        "parquet proxy",
        "delta slice",
        "delta merger by partition",
    ),
    "test_81_death_while_a_corrected_slot_replaces_its_rows": (
        "postgres slice",
        "postgres table",
        "postgres merger",
        "postgres stateful by history",
        "postgres proxy",
        "parquet slice",
        "parquet table",
        "parquet merger",
        "parquet stateful",
        "delta slice",
        "delta merger",
        "delta proxy",
    ),
    "test_81_death_in_a_replay_of_an_older_slot": ("parquet result", "parquet each", "delta result"),
    "test_81_death_while_rows_are_adopted": ("postgres",),
    "test_81_death_while_change_rows_are_removed": ("postgres",),
    "test_a_reader_sees_all_of_the_old_rows_or_all_of_the_new_ones": (
        "postgres slice",
        "postgres merger",
        "postgres proxy",
        "postgres cleaner",
        "parquet slice",
        "parquet cleaner",
        "delta merger",
        "delta proxy",
    ),
    "test_a_first_pass_and_a_correction_side_by_side": ("slice", "append", "table by name"),
    "test_a_death_among_neighbours": ("slice",),
    "test_a_story_on_a_real_store_ends_in_the_table_that_its_slots_make": ("versions",),
    "test_four_hundred_slots_are_done_again_in_one_publish": ("memory",),
    "test_rows_that_break_a_test_are_not_published": ("postgres", "slice", "merger", "stateful"),
    "test_a_new_column_is_added_if_declared": ("slice", "merger", "append"),
    "test_a_new_column_is_refused_and_the_way_out_is_named": ("slice", "merger"),
    "test_every_type_is_a_value_of_a_row_that_is_found_by_its_key": ("merger", "postgres history"),
    "test_every_type_that_can_be_compared_is_a_key": ("merger", "parquet history", "delta versions", "postgres dedup"),
    "test_every_type_is_a_value_of_a_row_that_is_replaced_with_its_slot": ("slice", "postgres proxy"),
    "test_a_key_is_the_same_whatever_blanks_the_table_adds_or_cuts": ("merger", "delta history", "postgres dedup"),
    "test_a_type_that_grows": ("slice", "delta history"),
    "test_stores_do_what_memory_does": (
        "merger-delete",
        "merger-order-partitions",
        "dedup-order-window",
        "writer-lineage",
        "proxy-keep",
        "cleaner-week",
        "keyed-table",
    ),
}

# What these try is decided before any store is asked, or by code that all stores share.
ALIKE_ON_ALL = {
    "test_checks": ("complained_about[parquet-stateful", "complained_about[delta-stateful", "-proxy]", "quick_look"),
    "test_cleaner": (
        "periods_that_do_not_hold",
        "column_that_the_view_adds",
        "inputs_are_gone",
        "limit_to_the_tables",
        "another_pipeline",
    ),
    "test_data_overwrite": ("needs_force",),
    "test_dedup_insert": ("null_key",),
    "test_freeze": ("takes_no_new_edition", "still_open", "periods_are_frozen[delta"),
    "test_merger": ("insert_only",),
    "test_protocol": ("waited", "stale_ledger"),
    "test_proxy": ("does_not_become", "unasked", "sealed"),
    "test_replay_attacks": ("dates_are", "policy_for_columns", "never_applied"),
    "test_stateful_merger": (
        "ends_at_the_first_slot",
        "inputs",
        "left_out_and_filled_later",
        "no_version",
        "older_edition",
        "versions_tell",
        "without_a_calendar",
    ),
    "test_taking": ("planned_take]", "values1-", "values2-", "values4-", "values5-"),
    "test_transactional_writer": ("does_not_take", "declared_later", "second_edition"),
}

# Of these modules, the tests that tell most of a store; what the others try is decided before any store is asked.
TELLING_OF = {
    "test_ingest_attacks": ("restore", "replaced"),
    "test_ingests": (
        "takes_the_place_of_the_old_rows",
        "restore",
        "forgotten_file_is_taken_in_anew",
        "test_a_tidy",
        "brought_in_by_key",
        "row_tells_which_file",
        "changed_by_hand",
        "bad_file_alone",
        "test_new_files",
        "left_for_later",
    ),
    "test_deaths_of_ingests": ("first_files", "changed_file"),
    "test_kept_changes": ("test_a_correction_of_the_first_slot", "test_81_a_telling_death", "no_receipt_names[parquet"),
}


# A test that bears the number of a scenario is tried on every store. Only of 81, death at every point of every shape, some are left.
_SCENARIO = re.compile(r"test_(?!81_)\d+_")


def _is_told_elsewhere(item):
    if _SCENARIO.match(item.name):
        return False
    module = item.module.__name__.rpartition(".")[2]
    telling, alike = TELLING_OF.get(module), ALIKE_ON_ALL.get(module, ())
    return any(word in item.name for word in alike) or bool(telling and not any(word in item.name for word in telling))


def is_left_to_prove(item):
    """Tell whether a collected test is one that only `make prove` tries."""
    if item.get_closest_marker("prove"):
        return True
    if item.get_closest_marker("spark") and _is_told_elsewhere(item):
        return True
    telling = TELLING.get(getattr(item, "originalname", ""))
    given = getattr(item, "callspec", None)
    if not telling or given is None or given.params.get("kind") == "memory":
        return False
    kind = given.params.get("kind")
    return not any(value in telling or f"{kind} {value}" in telling for value in given.params.values())
