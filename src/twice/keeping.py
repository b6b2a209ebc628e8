"""How is something kept beside a table before the publish that names it?

Once, under a label that follows from its content: a second try of the same attempt may come to the same body.
"""

from __future__ import annotations

from typing import Any

from twice.errors import NotPublished
from twice.explain import explain


def keep_body(store: Any, table: str, label: str, body: bytes, what: str) -> None:
    """Keep a body, unless it is there already.

    Raises:
        NotPublished: It could not be kept.
    """
    try:
        if store.beside(table, label) != body:
            store.keep_beside(table, label, body)
    except Exception as error:
        raise NotPublished(
            f"{what} could not be kept beside the table: {explain(error)}",
            "A publish has all that its receipt names, so nothing was published.",
            "Correct the cause and run again.",
        ) from error
