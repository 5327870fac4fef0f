"""A client in a loop is slowed down, and no other one."""

from dashboard.conftest import API
from tickwork.dashboard import Role
from tickwork.dashboard.request_limit import USERS_MAX, RequestLimit


class TestRequestLimit:
    def test_a_burst_and_then_the_rate(self):
        limit = RequestLimit(60)

        assert [limit.take("ann", now=0) for _ in range(10)] == [0.0] * 10
        assert limit.take("ann", now=0) == 1.0
        assert limit.take("ann", now=1) == 0.0
        assert limit.take("ann", now=1) == 1.0

    def test_each_user_has_an_own_limit(self):
        limit = RequestLimit(1)

        assert limit.take("ann", now=0) == 0
        assert limit.take("ann", now=0) > 0
        assert limit.take("bob", now=0) == 0

    def test_no_limit(self):
        limit = RequestLimit(0)

        assert [limit.take("ann", now=0) for _ in range(1_000)] == [0.0] * 1_000

    def test_it_forgets_those_who_were_not_there_for_long(self):
        limit = RequestLimit(60)
        for number in range(USERS_MAX + 10):
            limit.take(str(number), now=0)

        assert len(limit._by_user) == USERS_MAX


def test_too_many_requests_are_refused_with_the_time_to_wait(client_of):
    client = client_of(Role.READER, requests_per_minute=6)

    first, second = (client.get(f"{API}/workers") for _ in range(2))

    assert first.status_code == 200
    assert (second.status_code, second.json()["code"]) == (429, "request-limit")
    assert second.headers["Retry-After"] == "10"
    assert client.get("/workers").status_code == 200  # pages are not counted
