"""Claims: which driver evaluates a config, where several drivers share a database."""

import hashlib
import os
import secrets
import socket
import time
from collections.abc import Sequence, Set
from contextlib import suppress
from pathlib import Path

from sqlalchemy import ColumnElement, Connection, Double, delete, extract, func, select, true, tuple_, update
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gemmtune.engine.store import schema
from gemmtune.engine.store.connection import Transactions
from gemmtune.engine.store.shared.news import News

LEASE_SECONDS = 20.0
"""Seconds after which a claim that its driver has not renewed is anybody's: the driver is dead, or hangs."""
_RENEWALS_PER_LEASE = 4


class server_seconds(FunctionElement[float]):  # noqa: N801 (a function of SQL)
    """Time of the server in seconds, so that the clocks of drivers need not agree."""

    type = Double()
    inherit_cache = True


@compiles(server_seconds, "postgresql")
def _server_seconds(_element: server_seconds, _compiler: SQLCompiler, **_options: object) -> str:
    return "extract(epoch FROM clock_timestamp())::double precision"


@compiles(server_seconds, "sqlite")
def _file_seconds(_element: server_seconds, _compiler: SQLCompiler, **_options: object) -> str:
    return "(julianday('now') - 2440587.5) * 86400.0"


class Claims:
    """Claims of one driver on a server.

    A claim names the work, a digest within it and the driver, and lasts for a lease that `renew` extends. A driver
    evaluates what it has claimed, and waits for the results of what others have. A result is stored before its claim
    is released: who claims first and looks for the result then, does nothing twice.
    """

    def __init__(self, transactions: Transactions, lease_seconds: float = LEASE_SECONDS) -> None:
        """Claim nothing yet, in the name of a driver that nobody else is."""
        self.owner = f"{this_host()} process {os.getpid()} {secrets.token_hex(4)}"
        """Name of this driver: its host, process and a random number."""
        self._transactions = transactions
        self._lease_seconds = lease_seconds
        self._renewed = time.monotonic()
        self._dead: list[str] = []  # drivers of this host whose process is gone
        self._news = News(transactions.engine, self.owner)

    def take(self, work: str, digests: Sequence[str]) -> Set[str]:
        """Claim what nobody else holds, or what an ended lease has left; return the digests that are this driver's.

        Raises:
            StoreError: the database refused.
        """
        if not digests:
            return set()
        from sqlalchemy.dialects import postgresql  # takes a tenth of a second to import

        columns, until = schema.claims.c, server_seconds() + self._lease_seconds
        rows = [{"work": work, "digest": digest, "owner": self.owner, "until": until} for digest in digests]
        free = self._is_over | columns.owner.in_([self.owner, *self._dead])
        statement = postgresql.insert(schema.claims).values(rows)
        taking = statement.on_conflict_do_update(
            index_elements=[columns.work, columns.digest], set_={"owner": self.owner, "until": until}, where=free
        ).returning(columns.digest)
        return self._transactions.write(lambda c: set(c.execute(taking).scalars()), durable=False)

    def renew(self) -> None:
        """Extend the lease of every claim, if a quarter of it is over, and drop ended ones of others; call it often.

        Raises:
            StoreError: the database refused.
        """
        now = time.monotonic()
        if now - self._renewed >= self._lease_seconds / _RENEWALS_PER_LEASE:
            self._renewed = now
            longer = update(schema.claims).values(until=server_seconds() + self._lease_seconds)
            longer = longer.where(schema.claims.c.owner == self.owner)
            ended = delete(schema.claims).where(self._is_over)
            self._transactions.write(lambda c: (c.execute(longer), c.execute(ended)), durable=False)

    @property
    def _is_over(self) -> ColumnElement[bool]:
        """Whether a lease has ended; none does in the first seconds of a server that its drivers could not reach."""
        began = extract("epoch", func.pg_postmaster_start_time())
        return (schema.claims.c.until < server_seconds()) & (began < server_seconds() - self._lease_seconds)

    def release(self, claims: Sequence[tuple[str, str]]) -> None:
        """Give claims back, by work and digest; their results are stored; raises StoreError if the database refused."""
        if claims:
            self._release(tuple_(schema.claims.c.work, schema.claims.c.digest).in_(claims))

    def others(self) -> dict[str, int]:
        """Return how many claims each other driver holds, by its name; claims of this host's dead processes are free.

        Raises:
            StoreError: the database cannot be read.
        """
        columns = schema.claims.c
        others = select(columns.owner, func.count()).where(columns.owner != self.owner).group_by(columns.owner)
        found = dict(map(tuple, self._transactions.read(lambda connection: connection.execute(others).all())))
        self._dead = [each for each in found if is_dead((words := each.split())[0], int(words[2]))]
        return {owner: number for owner, number in found.items() if owner not in self._dead}

    def wait(self, seconds: float) -> bool:
        """Wait until another driver gives claims back, at most so long; return whether one did since the last call."""
        return self._news.wait(seconds)

    def release_all(self) -> None:
        """Give every claim back, so that others need not wait for the leases to end, and listen no longer.

        Raises:
            StoreError: the database refused.
        """
        self._news.close()
        self._release(true())

    def _release(self, those: ColumnElement[bool]) -> None:
        gone = delete(schema.claims).where(those, schema.claims.c.owner == self.owner)

        def write(connection: Connection) -> None:
            connection.execute(gone)
            self._news.send(connection)

        self._transactions.write(write, durable=False)


def work_of(*facts: object) -> str:
    """Return the name of work for claims: a digest of facts that tell it apart."""
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def this_host() -> str:
    """Return the name of this host, with a digest that tells its processes from those of another boot or container."""
    scope = ""
    with suppress(OSError):  # a system without /proc
        scope = Path("/proc/sys/kernel/random/boot_id").read_text() + os.readlink("/proc/self/ns/pid")
    return f"{socket.gethostname()}#{work_of(scope)[:8]}"


def is_dead(host: str, pid: int) -> bool:
    """Return whether a driver was a process that is gone, by the name of its host; False where nothing tells."""
    if host != this_host():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:  # it is another user's
        return False
    return False
