"""Serve the page of a campaign's folder or database to browsers of this machine."""

from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from socket import AddressFamily
from socketserver import TCPServer
from threading import Lock
from time import monotonic
from urllib.parse import urlsplit

from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.live.page import REPORT, live_html

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
_SHARE = 10  # making pages takes at most one second in so many: the campaign needs the cores


class LivePages(ThreadingHTTPServer):
    """Server of one page, which is made on request, and of the files beside it."""

    daemon_threads = True  # a browser that keeps its connection keeps no command from ending

    def __init__(self, address: str, page: Callable[[], str], files: dict[str, Path]) -> None:
        """Listen at an address of this machine.

        Args:
            address: `HOST:PORT`; port 0 stands for a free one.
            page: returns the page as it is now.
            files: HTML files by their name in the URL.

        Raises:
            UsageError: the address is not of this machine alone, is malformed, or is taken.
        """
        host, port = _loopback(address)
        self.address_family = AddressFamily.AF_INET6 if ":" in host else AddressFamily.AF_INET
        self._page, self._lock, self._made = page, Lock(), (0.0, "")
        self.files = files
        try:
            super().__init__((host, port), _Handler)
        except OSError as error:
            raise UsageError(f"cannot listen at {address}: {error.strerror}; port 0 takes a free one") from None
        self.names = {f"{name}:{self.server_port}" for name in ("localhost", "127.0.0.1", "[::1]", host)}

    def server_bind(self) -> None:
        """Bind, without asking a name server for the name of this machine."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    @property
    def url(self) -> str:
        """Address of the page."""
        host = f"[{self.server_name}]" if ":" in self.server_name else self.server_name
        return f"http://{host}:{self.server_port}/"

    def page(self) -> str:
        """Return the page as it is now; one that was slow to make is kept for a while, for all browsers."""
        with self._lock:
            if (began := monotonic()) >= self._made[0]:
                text = self._page()
                ended = monotonic()
                self._made = ended + (_SHARE - 1) * (ended - began), text
            return self._made[1]


class _Handler(BaseHTTPRequestHandler):
    """Handler that answers one request of a browser."""

    server: LivePages
    server_version, sys_version = "gemmtune", ""

    def do_GET(self) -> None:
        """Send the page, a file beside it, or the reason for sending neither."""
        name = urlsplit(self.path).path.removeprefix("/")
        if self.headers.get("Host") not in self.server.names:  # a page of elsewhere whose name leads here
            self.send_error(HTTPStatus.FORBIDDEN, "this page is for this machine")
        elif not name:
            self._send(self.server.page().encode())
        elif name in self.server.files and self.server.files[name].is_file():
            self._send(self.server.files[name].read_bytes())
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (name of the base class)
        """Print nothing: a page asks every two seconds."""

    def _send(self, content: bytes) -> None:
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", "text/html; charset=utf-8"),
            ("Content-Length", str(len(content))),
            ("Content-Security-Policy", _POLICY),
            ("Cache-Control", "no-store"),
            ("Referrer-Policy", "no-referrer"),
            ("X-Content-Type-Options", "nosniff"),
        ):
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _loopback(address: str) -> tuple[str, int]:
    """Return host and port of an address of this machine alone."""
    host, colon, port = address.rpartition(":")
    host = "127.0.0.1" if host == "localhost" else host.strip("[]")
    try:
        found = ip_address(host)
        number = int(port)
    except ValueError:
        raise UsageError(f"{address!r} is no address: write 127.0.0.1:PORT or [::1]:PORT") from None
    if not found.is_loopback:
        raise UsageError(
            f"{host} is seen from other machines, and the page asks nobody who he is: take 127.0.0.1, and "
            "ssh -L PORT:127.0.0.1:PORT to see it from elsewhere"
        )
    if not colon or not 0 <= number < 2**16:
        raise UsageError(f"{address!r} has no port from 0 to 65535")
    return host, number


def serve(source: str, address: str, begin: Callable[[str], None]) -> None:
    """Serve the page of a campaign at an address of this machine, until an exception ends it.

    Args:
        source: the campaign's folder, whose database may be yet to come, or its database.
        address: `HOST:PORT`; port 0 stands for a free one.
        begin: receives the page's URL when browsers can ask for it.

    Raises:
        StoreError: `source` names no database, and no folder.
        UsageError: the address is not of this machine alone, is malformed, or is taken.
    """
    given = Path(source)
    database = str(given / "measurements.db") if given.is_dir() else find(source, FileKind.DATABASE)
    folder = None if "://" in database else Path(database).parent

    def page() -> str:
        return live_html(database, folder, datetime.now(UTC))

    with LivePages(address, page, {} if folder is None else {REPORT: folder / REPORT}) as server:
        begin(server.url)
        server.serve_forever()
