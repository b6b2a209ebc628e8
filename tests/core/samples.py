"""Slots, receipts and times that the core's tests have in common."""

from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo, available_timezones

from twice.intervals import Interval, Schedule, parse_moment
from twice.runs import Receipt, Slot, Target

ZONES = sorted(name for name in available_timezones() if "/" in name and not name.startswith(("Etc", "posix", "right")))
ATTEMPT = "0123abcd-1-89abcdef"


def moment(text):
    return parse_moment(text).astimezone(UTC)


def interval(day="2024-09-20", every="1 day", zone="UTC"):
    return Schedule(every, day, zone).at(day)


def slot_of(part, *, pipeline="out", target="memory:lake/out"):
    return Slot(pipeline, Target.parse(target), interval(part) if part[:2] == "20" else part)


def receipt_of(slot, generation=1, **changes):
    values = {"attempt": ATTEMPT, "fingerprint": "inputs", "code": "code", "owner": "me", "rows": 3, **changes}
    return Receipt(slot if isinstance(slot, str) else slot.text, generation, **values)


@cache
def changes_of_clock(zone, year):
    """Return the moments of a year at which the zone's offset from UTC changes."""
    tz, day = ZoneInfo(zone), timedelta(days=1)
    days = [datetime(year, 1, 1, tzinfo=UTC) + number * day for number in range(366)]
    return [_change(tz, low, low + day) for low in days if _offset(tz, low) != _offset(tz, low + day)]


def _change(tz, low, high):
    before = _offset(tz, low)
    while high - low > timedelta(seconds=1):
        middle = low + (high - low) // 2
        low, high = (middle, high) if _offset(tz, middle) == before else (low, middle)
    return high.replace(microsecond=0)


def _offset(tz, when):
    return when.astimezone(tz).utcoffset()


def follow_each_other(intervals):
    """Tell whether each interval begins where the one before it ends."""
    return all(before.end == after.start for before, after in pairwise(intervals))


def span(start, end):
    return Interval(moment(start), moment(end))
