"""What would readers see after a clean run, and is what a run says of it true?"""

from model.state import STRANGER, Bounds, Row, Table, rows_of


def is_clean(bounds: Bounds, table: Table, slot: int) -> bool:
    """Tell whether readers see the rows of a clean run on the inputs of the slot's newest receipt."""
    receipt = table.receipts[slot]
    if receipt is None:
        return False
    if not bounds.in_order:
        return rows_of(table, slot) == (Row(slot, receipt.value, receipt.generation),)
    there = [(one, found) for one, found in enumerate(table.receipts[: slot + 1]) if found and table.holds[one]]
    wanted = [Row(one, found.value, found.generation) for one, found in there]
    return [row for row in table.rows if STRANGER < row.slot <= slot] == wanted


def honest(bounds: Bounds, table: Table, slot: int, value: int, generation: int = 0, code: int = 0) -> str:
    """I6: what a run says of a slot must be true of the table that it has seen."""
    found = table.receipts[slot]
    if found is None or found.generation < generation:
        return "I6 success or a skip was said, and the store has no such receipt"
    if generation and found.generation > generation:
        return ""
    if found.code < code:
        return "I6 success or a skip was said for new code, and the rows are of older code"
    if found.value != value:
        return "I6 success or a skip was said for inputs that are not those of the rows"
    return (
        ""
        if is_clean(bounds, table, slot)
        else "I6 success or a skip was said, and the rows are not those of a clean run"
    )
