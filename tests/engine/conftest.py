from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

TOYS = Path(__file__).parent


@pytest.fixture
def toy_priced(tmp_path_factory, monkeypatch):
    """The space of toy_priced.py, registered as any other distribution registers a space; its name."""
    site = tmp_path_factory.mktemp("site")
    metadata = site / "toy_priced-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-priced\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[gemmtune.spaces]\ntoy_priced = toy_priced:ToyPriced\n")
    (site / "toy_priced.py").write_text((TOYS / "toy_priced.py").read_text())
    monkeypatch.syspath_prepend(site)
    return "toy_priced"


class PostgresServer:
    """A PostgreSQL server of its own, on a loopback port."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.programs = programs
        self.data = folder / "data"
        # The server refuses to run as root: then it is nobody's but the user's that Debian's package made.
        self.user = "postgres" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name
        if os.geteuid() == 0:
            shutil.chown(folder, self.user, self.user)
        with closing(socket.create_server(("127.0.0.1", 0))) as free:
            self.port = free.getsockname()[1]
        self.databases = 0
        self._do("initdb", "--auth=trust", "--username=gemmtune", "--encoding=UTF8", "--locale=C", "--no-sync")
        # Without fsync what a process was told is stored still outlives the server, if not the machine.
        options = "\n".join(
            ("listen_addresses = '127.0.0.1'", f"port = {self.port}", "unix_socket_directories = ''", "fsync = off", "")
        )
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(options)

    def start(self) -> None:
        self._do("pg_ctl", "start", "--wait", "--log", str(self.data.parent / "log"))

    def stop(self, mode: str = "immediate") -> None:
        """`immediate` is how a server dies: it says nothing, and recovers from its log when it starts."""
        self._do("pg_ctl", "stop", "--wait", "--mode", mode)

    def url(self, database: str, port: int | None = None) -> str:
        return f"postgresql+psycopg://gemmtune@127.0.0.1:{port or self.port}/{database}"

    def new_database(self, encoding: str = "UTF8") -> str:
        """The URL of an empty database."""
        self.databases += 1
        name = f"test{self.databases}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING '{encoding}'")
        return self.url(name)

    def drop_connections(self) -> int:
        """End every other connection, as an administrator or a failover does; the number that were ended."""
        ended = self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        return len(ended)

    def execute(self, statement: str, url: str | None = None) -> list[tuple]:
        import psycopg

        with psycopg.connect((url or self.url("postgres")).replace("+psycopg", ""), autocommit=True) as connection:
            found = connection.execute(statement)
            return found.fetchall() if found.description else []

    def _do(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), "--pgdata", str(self.data), *arguments]
        as_user = {"user": self.user, "group": self.user, "extra_groups": []} if os.geteuid() == 0 else {}
        log = self.data.parent / f"{program}.log"  # a server that inherits a pipe would hold it open
        with log.open("wb") as out:
            done = subprocess.run(command, stdout=out, stderr=out, cwd="/", check=False, timeout=60, **as_user)
        assert done.returncode == 0, log.read_text()


@contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    """Run a server; experiments/chaos does, too. FileNotFoundError: there is none."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    found = shutil.which("initdb") or (installed[-1] if installed else None)
    if found is None:
        raise FileNotFoundError("there is no PostgreSQL server here: apt-get install postgresql")
    folder = Path(tempfile.mkdtemp(prefix="gemmtune-postgres-"))  # its user must be let in, as to tmp_path it is not
    server = PostgresServer(Path(found).parent, folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A running server; a test that stops it starts it again."""
    with ExitStack() as stack:
        try:
            server = stack.enter_context(running_postgres())
        except FileNotFoundError as error:
            pytest.skip(str(error))
        yield server
