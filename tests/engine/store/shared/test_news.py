"""A driver that waits hears at once that another one gave claims back, and looks for itself where nobody tells."""

from __future__ import annotations

import threading
import time

import pytest

from gemmtune.engine.store.database import Database

pytestmark = pytest.mark.slow(1, together="waiting")


def test_who_waits_hears_of_claims_that_another_driver_gives_back(postgres_server):
    url = postgres_server.new_database()
    with Database.open(url) as here, Database.open(url) as there:
        waiting, other = here.claims(), there.claims()
        waiting.take("work", ["mine"])
        other.take("work", ["a", "b"])
        assert not waiting.wait(0.0)  # listens from now on
        waiting.release([("work", "mine")])
        assert not waiting.wait(0.0)  # its own are no news
        other.release([("work", "a")])
        assert waiting.wait(5.0)
        began = time.monotonic()
        thread = threading.Timer(0.3, lambda: other.release([("work", "b")]))
        thread.start()
        assert waiting.wait(60.0)
        assert time.monotonic() - began < 30
        thread.join()
        assert not waiting.wait(0.2)


def test_a_server_that_goes_away_wakes_who_waits_and_is_waited_for_without_news(postgres_server):
    url = postgres_server.new_database()
    with Database.open(url) as database:
        claims = database.claims()
        assert not claims.wait(0.0)
        postgres_server.drop_connections()
        assert claims.wait(5.0)  # what was told meanwhile is lost: the caller looks
        began = time.monotonic()
        assert not claims.wait(0.2)  # not yet listening again
        assert time.monotonic() - began >= 0.2
