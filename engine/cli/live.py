"""Serve the page of a running campaign until Ctrl-C."""

from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.io.printing import print_text
from gemmtune.engine.records.errors import Stopped


def show_live(source: str, address: str) -> None:
    """Serve the page of a campaign's folder or database at an address of this machine; return after Ctrl-C.

    Raises:
        StoreError: `source` names no database, and no folder.
        UsageError: the address is not of this machine alone, is malformed, or is taken.
        ToolchainMissing: the packages of a report are not installed.
    """
    from gemmtune.engine.report.live.page import REPORT, live_html
    from gemmtune.engine.report.live.server import LivePages

    given = Path(source)
    database = str(given / "measurements.db") if given.is_dir() else find(source, FileKind.DATABASE)
    folder = None if "://" in database else Path(database).parent

    def page() -> str:
        return live_html(database, folder, datetime.now(UTC))

    with LivePages(address, page, {} if folder is None else {REPORT: folder / REPORT}) as server:
        print_text(f"{server.url} shows {source} until Ctrl-C")
        try:
            server.serve_forever()
        except Stopped:
            return  # asked to end
