"""Serve the page of a campaign's folder or database."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.report.live.page import REPORT, live_html
from gemmtune.engine.report.live.server import LivePages


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
