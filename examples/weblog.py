"""Lines of a web server's log in combined log format: what one looks like, and a generator for who has none.

python examples/weblog.py --lines 20000 --seed 7 | odradek produce --topic access-log

Made up, but as logs are: a few pages have most of the views, some lines come up to two hours late (a front end was cut
off), a few come days late (somebody found a forgotten file), and some are no log lines at all.
"""

import argparse
import random
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from typing import NamedTuple

PATTERN = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "([A-Z]+) ([^" ]+)[^"]*" (\d{3}) (\d+|-)'
"""host, user, time, method, path, status, bytes; Java and Python understand it alike."""

BEGIN = datetime(2026, 1, 5, tzinfo=UTC)
SPAN = timedelta(days=4)
LATE_AT_MOST = timedelta(hours=2)


class View(NamedTuple):
    """What a line says. The user is who logged in, else the host."""

    user: str
    at: datetime
    page: str
    status: int


def parse(line: str) -> View | None:
    """None for what is no log line."""
    found = re.match(PATTERN, line)
    if found is None:
        return None
    host, user, time, _, path, status, _ = found.groups()
    at = datetime.strptime(time, "%d/%b/%Y:%H:%M:%S %z")
    return View(host if user == "-" else user, at, path.split("?", 1)[0], int(status))


def lines(count: int, seed: int) -> Iterator[str]:
    """The same lines for the same seed. Time advances over `SPAN`, however many there are."""
    chance = random.Random(seed)
    pages = ["/", "/login", *(f"/articles/{n}" for n in range(1, 29))]
    weights = [1 / (rank + 1) for rank in range(len(pages))]
    zones = [timezone(timedelta(hours=hours)) for hours in (-5, 0, 2)]
    for number in range(count):
        now = BEGIN + SPAN * (number / count)
        kind = chance.random()
        if kind < 0.008 and number > count * 2 / 3:
            at = BEGIN + SPAN * (0.1 * chance.random())  # days too late
        elif kind < 0.06:
            at = max(BEGIN, now - LATE_AT_MOST * chance.random())
        elif kind < 0.065:
            yield "\\x16\\x03\\x01 is not HTTP"
            continue
        else:
            at = now
        page = chance.choices(pages, weights)[0] + chance.choice(["", "", "?from=mail"])
        host = f"192.0.2.{chance.randrange(1, 40)}"
        user = chance.choice(["-", "-", f"user{chance.randrange(12)}"])
        status = chance.choices([200, 304, 404], [90, 8, 2])[0]
        size = "-" if status == 304 else chance.randrange(200, 90_000)
        time = at.astimezone(chance.choice(zones)).strftime("%d/%b/%Y:%H:%M:%S %z")
        yield f'{host} - {user} [{time}] "GET {page} HTTP/1.1" {status} {size} "-" "Mozilla/5.0"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    for line in lines(given.lines, given.seed):
        sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main()
