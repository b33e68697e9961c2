"""Report of any file that gemmtune writes."""

from gemmtune.engine.consumers.cute.table_report import cute_report
from gemmtune.engine.consumers.inductor.report.bench_file import read_bench
from gemmtune.engine.consumers.inductor.report.benches import bench_report
from gemmtune.engine.consumers.inductor.report.table_report import inductor_report, lookup_report
from gemmtune.engine.io.paths import FileKind
from gemmtune.engine.report import files
from gemmtune.engine.report.layout import Report


def file_report(source: str) -> Report:
    """Report a table, an exported table, a run, a comparison, a bench, landscapes, a campaign's folder or a database.

    Raises:
        LandscapeError: the file of landscapes is malformed.
        StoreError: the database cannot be read.
        TableError: the table is damaged.
        UsageError: the path names nothing that can be shown.
    """
    return files.file_report(source, _OF_CONSUMERS)


_OF_CONSUMERS = {
    FileKind.BENCH: lambda path, _: bench_report(read_bench(path)),
    FileKind.CUTE: cute_report,
    FileKind.INDUCTOR: inductor_report,
    FileKind.LOOKUP: lookup_report,
}
