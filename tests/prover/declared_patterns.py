"""All patterns, as a user declares them on rows with an `id` and a `day`."""

PATTERNS = {
    "slice": 'twice.data_overwrite(slice="day")',
    "partitions": 'twice.data_overwrite(partitions=["day"])',
    "table": "twice.data_overwrite()",
    "merger": 'twice.merger(keys=["id"])',
    "stateful": 'twice.stateful_merger(keys=["id"])',
    "history": 'twice.stateful_merger(keys=["id"], form="history")',
    "dedup": 'twice.dedup_insert(keys=["id"])',
    "append": "twice.transactional_writer()",
    "lineage": 'twice.transactional_writer(lineage="slot")',
    "proxy": "twice.proxy(keep=2)",
    "cleaner": 'twice.fast_metadata_cleaner(period="week")',
    "keyed table": 'twice.keyed(table="{start:%Y%m%d}")',
    "keyed rows": 'twice.keyed(keys=["id"])',
}
