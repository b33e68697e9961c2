"""A field of a column of JSON, read by the database's own function."""

from __future__ import annotations

from sqlalchemy import JSON, ColumnElement, Connection, cast, func

__all__ = ["json_text"]


def json_text(connection: Connection, column: ColumnElement[str], *path: str) -> ColumnElement[str]:
    """The field at the path; NULL where there is none."""
    if connection.dialect.name == "postgresql":
        return func.json_extract_path_text(cast(column, JSON), *path)
    return func.json_extract(column, "$." + ".".join(path))
