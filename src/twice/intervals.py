"""Which stretch of time does a run stand for?

An interval is half-open, `[start, end)`, and UTC inside. A zone exists only at the edges: where a
schedule is declared, where a person types a time, and where a date is printed into a path.
No function here asks the clock: whoever needs the present passes it in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from zoneinfo import ZoneInfo

from twice.errors import Misuse

Moment = str | date  # a datetime is a date, too
UNITS = ("minute", "hour", "day", "week", "month", "year")
_FIXED = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_SHORT_UNITS = {"minute": timedelta(minutes=1), "hour": timedelta(hours=1)}
_BY_LOT = re.compile(r"(?<![A-Za-z])[HRhr](?![A-Za-z])")
_EVERY = re.compile(r"(\d+)\s+([a-z]+?)s?")


@dataclass(frozen=True, slots=True, order=True)
class Interval:
    """Half-open stretch of time `[start, end)`, UTC inside.

    >>> Interval.of("2024-10-07T00:00Z", "2024-10-08T00:00Z").text
    '2024-10-07T00:00Z/2024-10-08T00:00Z'
    """

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        for moment in (self.start, self.end):
            if moment.utcoffset() is None:
                raise _naive(moment.isoformat())
        object.__setattr__(self, "start", self.start.astimezone(UTC))
        object.__setattr__(self, "end", self.end.astimezone(UTC))
        if self.end <= self.start:
            raise Misuse(f"The interval {self.text} ends at or before its start.")

    @classmethod
    def of(cls, start: str, end: str) -> Interval:
        """Make an interval of two moments that carry their offset."""
        return cls(parse_moment(start), parse_moment(end))

    @property
    def text(self) -> str:
        """The interval as it stands in a slot: both ends in UTC."""
        return f"{utc_text(self.start)}/{utc_text(self.end)}"

    def shown_in(self, zone: ZoneInfo) -> str:
        """The interval as the clocks of a zone show it."""
        return f"{local_text(self.start, zone)}/{local_text(self.end, zone)}"

    def overlaps(self, other: Interval) -> bool:
        """Tell whether any moment lies in both."""
        return self.start < other.end and other.start < self.end

    @property
    def length(self) -> timedelta:
        """How long the interval is."""
        return self.end - self.start


def utc_text(moment: datetime) -> str:
    """Write a moment in UTC, to the second only where seconds are needed."""
    moment = moment.astimezone(UTC)
    precise = moment.second or moment.microsecond
    text = moment.replace(tzinfo=None).isoformat(timespec="auto" if precise else "minutes")
    return text + "Z"


def local_text(moment: datetime, zone: ZoneInfo) -> str:
    """Write a moment as the clocks of a zone show it, with its offset; `parse_moment` reads it back.

    >>> local_text(datetime(2024, 10, 6, 22, tzinfo=UTC), zone_named("Europe/Warsaw"))
    '2024-10-07T00:00+02:00'
    """
    if zone.key == "UTC":
        return utc_text(moment)
    local = moment.astimezone(zone)
    return local.isoformat(timespec="auto" if local.second or local.microsecond else "minutes")


def parse_moment(text: str, zone: ZoneInfo | None = None) -> datetime:
    """Read a moment. A bare date means its midnight in `zone`; a time must carry its offset.

    Raises:
        Misuse: The text is no moment, or a time without an offset.
    """
    try:
        if len(text) == len("2024-10-07"):
            day = date.fromisoformat(text)
            return datetime.combine(day, time(), tzinfo=zone or UTC)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Misuse(
            f"{text!r} is not a moment.",
            fix="Write a date (2024-10-07) or a time with its offset (2024-10-07T06:00Z).",
        ) from None
    return aware(moment)


def moment_of(given: Moment, zone: ZoneInfo | None = None) -> datetime:
    """Return the moment that a program names: a text, a datetime with its offset, or a date, which means its midnight in `zone`.

    >>> moment_of(date(2024, 10, 7)).isoformat()
    '2024-10-07T00:00:00+00:00'
    """
    if isinstance(given, datetime):
        return aware(given)
    if not isinstance(given, str | date):
        raise Misuse(f"{given!r} is not a moment.", fix="Give a date, a datetime with its offset, or a text of either.")
    return parse_moment(str(given), zone)


def aware(moment: datetime) -> datetime:
    """Return the moment if it carries its offset from UTC, and refuse it otherwise."""
    if moment.utcoffset() is None:
        raise _naive(moment.isoformat())
    return moment


def _naive(text: str) -> Misuse:
    return Misuse(
        f"The time {text} carries no offset from UTC, so it names no moment.",
        fix=f"Write {text}Z, or {text}+02:00, or a bare date for midnight in the pipeline's zone.",
    )


def zone_named(name: str) -> ZoneInfo:
    """Return an IANA zone, or refuse the name.

    >>> zone_named("Europe/Warsaw").key
    'Europe/Warsaw'
    """
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Misuse(
            f"{name!r} is not a time zone.", fix="Use an IANA name such as 'Europe/Warsaw' or 'UTC'."
        ) from None


@dataclass(frozen=True)
class Schedule:
    """A pipeline's calendar: `every` ("1 day", "6 hours", a cron line), from `start`, in a zone.

    `end`, exclusive, is for pipelines that are over.

    >>> daily = Schedule("1 day", "2024-09-20")
    >>> daily.at("2024-09-21").text
    '2024-09-21T00:00Z/2024-09-22T00:00Z'
    """

    every: str
    start: str
    zone: str = "UTC"
    end: str | None = None

    def __post_init__(self) -> None:
        self._check_start()

    @cached_property
    def tz(self) -> ZoneInfo:
        """The zone in which days begin."""
        return zone_named(self.zone)

    def shown(self, moment: datetime) -> str:
        """Write a moment as the clocks of the calendar's zone show it."""
        return local_text(moment, self.tz)

    @cached_property
    def first(self) -> datetime:
        """The first moment of the calendar, UTC."""
        return parse_moment(self.start, self.tz).astimezone(UTC)

    @cached_property
    def last(self) -> datetime | None:
        """The moment at which the calendar ends, exclusive, if it does."""
        return parse_moment(self.end, self.tz).astimezone(UTC) if self.end else None

    @cached_property
    def _step(self) -> tuple[int, str]:
        """Count and unit of "N unit"; a cron line is (0, its text)."""
        match = _EVERY.fullmatch(self.every.strip().lower())
        if match and match[2] in UNITS and int(match[1]) > 0:
            return int(match[1]), match[2]
        if match:
            raise Misuse(f"every={self.every!r} is not a length of time.", fix=f"Units: {', '.join(UNITS)}.")
        return 0, self.every

    def _check_start(self) -> None:
        if self.last and self.last <= self.first:
            raise Misuse(f"The calendar ends at {self.end!r}, at or before its start {self.start!r}.")
        count, unit = self._step
        local = self.first.astimezone(self.tz)
        if count == 0:
            _cron(unit, local.replace(tzinfo=None))
            return
        if self._utc(floor(local, unit).replace(tzinfo=None)) != self.first:
            raise Misuse(
                f"start={self.start!r} is not the beginning of a {unit} in {self.zone}.",
                fix=f"The {unit} around it begins at {floor(local, unit).isoformat()}.",
            )

    def at(self, moment: Moment) -> Interval:
        """Return the interval that starts at this moment.

        Raises:
            Misuse: The moment is naive, before the calendar, or inside an interval.
        """
        found = moment_of(moment, self.tz).astimezone(UTC)
        if found < self.first:
            raise Misuse(
                f"{self.shown(found)} lies before the calendar, which starts at {self.shown(self.first)}.",
                fix="Move `start` of the pipeline back, or choose a later time.",
            )
        if self.last and found >= self.last:
            raise Misuse(
                f"{self.shown(found)} lies after the calendar, which ends at {self.shown(self.last)}, exclusive."
            )
        interval = self._around_or_refuse(found)
        if interval.start != found:
            raise Misuse(
                f"{self.shown(found)} is not the start of an interval of every={self.every!r} in {self.zone}.",
                fix=f"It lies inside {interval.shown_in(self.tz)}: use --at {self.shown(interval.start)}.",
            )
        return interval

    def _around_or_refuse(self, moment: datetime) -> Interval:
        try:
            return self.around(moment)
        except (OverflowError, ValueError):
            raise Misuse(
                f"The interval of every={self.every!r} around {self.shown(moment)} is not closed yet: it ends after the year 9999."
            ) from None

    def around(self, moment: datetime) -> Interval:
        """Return the interval that holds the moment, which must not lie before the calendar."""
        count, unit = self._step
        if count == 0:
            return self._cron_around(unit, moment)
        index = self._index(moment, count, unit)
        return Interval(self._boundary(index), self._boundary(index + 1))

    def _index(self, moment: datetime, count: int, unit: str) -> int:
        """Return the number of the interval that holds the moment."""
        index = self._guess(moment, count, unit)
        while self._boundary(index + 1) <= moment:
            index += 1
        while self._boundary(index) > moment:
            index -= 1
        return index

    def _guess(self, moment: datetime, count: int, unit: str) -> int:
        """Estimate an interval's number so that the search from it is short."""
        days = {"minute": 1 / 1440, "hour": 1 / 24, "day": 1.0, "week": 7.0, "month": 30.44, "year": 365.25}
        return max(0, int((moment - self.first) / timedelta(days=days[unit] * count)) - 1)

    def _boundary(self, index: int) -> datetime:
        count, unit = self._step
        if unit in _SHORT_UNITS:
            return self.first + index * count * _SHORT_UNITS[unit]
        wall = floor(self.first.astimezone(self.tz), unit).replace(tzinfo=None)
        return self._utc(step(wall, index * count, unit))

    def _cron_around(self, line: str, moment: datetime) -> Interval:
        """Find the ticks around a moment. Ticks are wall-clock times of the zone.

        A tick that the clock skips falls on the moment after the gap; an hour that the clock repeats
        belongs to one interval. So ticks grow strictly, whatever the zone does.
        """
        ahead = timedelta(hours=3) + self._change_of_clock_near(moment)
        backwards = _cron(line, moment.astimezone(self.tz).replace(tzinfo=None) + ahead)
        start = self._utc(_tick(backwards.get_prev, line))
        while start > moment:
            start = self._utc(_tick(backwards.get_prev, line))
        forwards = _cron(line, backwards.get_current(datetime))
        end = self._utc(_tick(forwards.get_next, line))
        while end <= moment:
            start, end = max(start, end), self._utc(_tick(forwards.get_next, line))
        return Interval(start, end)

    def _change_of_clock_near(self, moment: datetime) -> timedelta:
        """How far the zone's clock is set around a moment: mostly nothing or an hour, once in a while a day."""
        day = timedelta(hours=25)
        offsets = [(moment + shift).astimezone(self.tz).utcoffset() or timedelta() for shift in (-day, day)]
        return abs(offsets[1] - offsets[0])

    def _utc(self, wall: datetime) -> datetime:
        """Return the moment of a wall-clock time: the first of two, or the one after a gap."""
        late = wall.replace(tzinfo=self.tz).astimezone(UTC)
        if late.astimezone(self.tz).replace(tzinfo=None) == wall:
            return late
        early = wall.replace(tzinfo=self.tz, fold=1).astimezone(UTC)
        after = late.astimezone(self.tz).utcoffset()
        while late - early > timedelta(seconds=1):
            middle = early + (late - early) / 2
            early, late = (early, middle) if middle.astimezone(self.tz).utcoffset() == after else (middle, late)
        return (
            late.replace(microsecond=0) if late.microsecond == 0 else late.replace(microsecond=0) + timedelta(seconds=0)
        )

    def after(self, interval: Interval) -> Interval:
        """Return the interval that follows, also where it lies past the end of the calendar."""
        return self._around_or_refuse(interval.end)

    def from_to(self, start: datetime, end: datetime) -> Iterator[Interval]:
        """Yield the intervals that start in `[start, end)`, oldest first."""
        end = min(end, self.last) if self.last else end
        if end <= self.first:
            return
        for interval in self._walk(max(start, self.first)):
            if interval.start >= end:
                return
            if interval.start >= start:
                yield interval

    def _walk(self, moment: datetime) -> Iterator[Interval]:
        """Yield the interval that holds the moment, and all that follow; a step is one boundary, and no search."""
        count, unit = self._step
        if count == 0:
            interval = self.around(moment)
            while True:
                yield interval
                interval = self.around(interval.end)
        index = self._index(moment, count, unit)
        start = self._boundary(index)
        while True:
            index += 1
            end = self._boundary(index)
            if end > start:  # a day that the zone left out has none
                yield Interval(start, end)
            start = end

    def closed(self, now: datetime) -> Iterator[Interval]:
        """Yield all intervals that have ended by `now`, oldest first."""
        for interval in self.from_to(self.first, now):
            if interval.end <= now:
                yield interval

    def newest_closed(self, now: datetime) -> Interval | None:
        """Return the newest interval that has ended by `now`."""
        if now <= self.first:
            return None
        found = self.around(min(now, self.last - timedelta(microseconds=1)) if self.last else now)
        if found.end > now:
            if found.start <= self.first:
                return None
            found = self.around(found.start - timedelta(microseconds=1))
        return found if found.start >= self.first else None


def _cron(line: str, moment: datetime) -> "croniter":  # type: ignore[name-defined]  # noqa: F821, UP037 - lazy
    """Open a cron line at a moment; the library is loaded only by pipelines that have one."""
    from croniter import croniter

    if not croniter.is_valid(line) or _BY_LOT.search(line):
        raise Misuse(
            f"every={line!r} is neither a length of time nor a cron line.",
            fix='Write "1 day", "6 hours", or five cron fields such as "0 6 * * mon".',
        )
    return croniter(line, moment)


def _tick(move: Callable[[type[datetime]], datetime], line: str) -> datetime:
    """Return the next or the previous tick of a cron line, which may have none."""
    from croniter import CroniterBadDateError

    try:
        return move(datetime)
    except CroniterBadDateError:
        raise Misuse(f"every={line!r} never comes.", fix="Check its day and month.") from None


def parse_length(text: str) -> timedelta:
    """Read a length of time of whole minutes, hours, days or weeks.

    >>> parse_length("7 days")
    datetime.timedelta(days=7)
    """
    match = _EVERY.fullmatch(text.strip().lower())
    if not match or match[2] not in _FIXED or int(match[1]) == 0:
        raise Misuse(f"{text!r} is not a length of time.", fix=f"Write a number and one of: {', '.join(_FIXED)}.")
    return int(match[1]) * _FIXED[match[2]]


def step(local: datetime, count: int, unit: str) -> datetime:
    """Move a local time by whole calendar units, keeping the wall clock."""
    if unit == "day":
        return local + timedelta(days=count)
    if unit == "week":
        return local + timedelta(weeks=count)
    months = count * (12 if unit == "year" else 1)
    year, month = divmod(local.year * 12 + local.month - 1 + months, 12)
    return local.replace(year=year, month=month + 1)


def floor(local: datetime, unit: str) -> datetime:
    """Return the beginning of the unit around a local time; weeks are ISO weeks.

    >>> floor(datetime(2024, 12, 31, 5, tzinfo=UTC), "week").isoformat()
    '2024-12-30T00:00:00+00:00'
    """
    if unit == "minute":
        return local.replace(second=0, microsecond=0)
    if unit == "hour":
        return local.replace(minute=0, second=0, microsecond=0)
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit == "week":
        return midnight - timedelta(days=midnight.weekday())
    if unit == "month":
        return midnight.replace(day=1)
    if unit == "year":
        return midnight.replace(month=1, day=1)
    return midnight


def period(moment: datetime, unit: str, zone: ZoneInfo) -> tuple[str, Interval]:
    """Name the hour, day, ISO week, month or year around a moment, with its interval.

    A week carries its ISO year: 2024-12-30 and 2024-01-01 are not in the same one.

    >>> period(datetime(2024, 12, 30, tzinfo=UTC), "week", zone_named("UTC"))[0]
    '2025_w01'
    """
    if unit == "hour":
        # Hours are told apart in UTC: a clock that is set back repeats one.
        start = floor(moment.astimezone(UTC), "hour")
        return f"{start:%Y%m%d_%H}", Interval(start, start + timedelta(hours=1))
    monday = "1969-12-29"
    interval = Schedule(f"1 {unit}", monday if unit == "week" else "1970-01-01", zone.key).around(moment)
    local = interval.start.astimezone(zone)
    iso = local.isocalendar()
    labels = {
        "day": f"{local:%Y%m%d}",
        "week": f"{iso.year}_w{iso.week:02}",
        "month": f"{local:%Y_%m}",
        "year": f"{local:%Y}",
    }
    return labels[unit], interval
