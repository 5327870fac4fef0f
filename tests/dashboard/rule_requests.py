"""Sends hostile rules to a dashboard in this process; prints the answers, and how far it grew."""

import json
import resource
import sys
from collections import Counter
from zoneinfo import available_timezones

from starlette.testclient import TestClient

from hostile_rules import COSTLY_TEXTS, RULE_TEXTS
from tickwork import Tickwork
from tickwork.dashboard import AccessToken, Role, asgi

READER = AccessToken(name="reader", secret="a-secret-of-the-reader", role=Role.READER)
FAR = "yearly(starting='{year}-02-28T09:00Z', interval=3).unless_between('1:00', '2:00')"


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(path: str, every: str) -> None:
    app = Tickwork(f"sqlite:///{path}")
    app.install()
    client = TestClient(
        asgi(app, tokens=[READER]),
        base_url="http://127.0.0.1:8737",
        client=("127.0.0.1", 50_000),
        headers={"Authorization": f"Bearer {READER.secret}"},
        raise_server_exceptions=False,
    )
    statuses: Counter[int] = Counter()

    def ask(rule: str, zone: str = "UTC", count: int = 100) -> None:
        query: dict[str, str | int] = {"rule": rule, "timezone": zone, "count": count}
        statuses[client.get("/api/v1/preview", params=query).status_code] += 1

    ask("* * * * *", "Europe/Berlin")
    ask("x")
    client.get("/schedules/preview", params={"rule": "x"})
    before = peak()
    for rule in RULE_TEXTS:
        if rule not in COSTLY_TEXTS.values():  # they have tests of their own
            ask(rule)
            ask(rule, "Europe/Berlin")
            client.get("/schedules/preview", params={"rule": rule})
    zones = sorted(available_timezones())[:: int(every)]
    for number, zone in enumerate(zones):  # in many years
        ask(FAR.format(year=1000 + 13 * number), zone)
        ask(f"every_second().max_firings({1000 + number}).starting('2020-01-01T00:00Z')", zone, 1)
    answers = {"statuses": statuses, "requests": statuses.total(), "grown": peak() - before}
    sys.stdout.write(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
