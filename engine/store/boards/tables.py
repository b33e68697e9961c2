"""Define the tables of boards and of withdrawn rows."""

from collections.abc import Iterator

from sqlalchemy import Column, Integer, Table, Text, UniqueConstraint

from gemmtune.engine.store import schema

boards = Table(
    "boards",
    schema.METADATA,
    Column("id", Integer, primary_key=True),  # grows with insertion
    Column("board", Text, nullable=False),  # UUID of the GPU
    Column("worker", Text, nullable=False),
    Column("trust", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("since", Text, nullable=False),
    Column("at", Text, nullable=False),
    UniqueConstraint("board", "worker", "trust", "at"),
)
"""One row per verdict on a board; the last one of a board holds, and all together tell which workers measured on it."""


def _withdrawn(table: Table) -> Table:
    """Return the table of rows that were taken out of another one, with why and when (UTC)."""
    columns: Iterator[Column[object]] = (Column(each.name, each.type) for each in table.c)
    why = Column("why", Text, nullable=False), Column("withdrawn_at", Text, nullable=False)
    return Table(f"withdrawn_{table.name}", schema.METADATA, *columns, *why)


WITHDRAWN = {table: _withdrawn(table) for table in (schema.measurements, schema.finals)}
"""Tables of withdrawn rows by the table that they were in: whole, and not used."""

TABLES = (boards, *WITHDRAWN.values())
"""Tables that older databases lack."""
