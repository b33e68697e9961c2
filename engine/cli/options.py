"""The options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["MARGIN_HELP", "PROBLEM_HELP", "AsJson", "Builders", "DatabaseUrl", "LockClocks", "Problems"]

PROBLEM_HELP = (
    "A problem, [BATCHx]MxNxK[:DTYPE[:LAYOUT[:OP]]][:dynamic_m=true], for example 2048x4096x4096:bf16:nt or "
    "16x4096x4096:bf16:nt:addmm. Repeat for more."
)
Problems = Annotated[list[str] | None, typer.Option("--problem", metavar="P", help=PROBLEM_HELP)]
MARGIN_HELP = "Lead over the vendor library that a row needs to ship anything else. [default: 0.02]"
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object for programs.")]
_DATABASE_HELP = "File, or URL of a PostgreSQL server. [default: OUT/measurements.db]"
DatabaseUrl = Annotated[str | None, typer.Option("--database", "--db", metavar="DB", help=_DATABASE_HELP)]
Builders = Annotated[int | None, typer.Option(min=1, help="Builder processes. [default: cores less one]")]
_LOCK_HELP = (
    "Lock the SM clock meanwhile, at one that every problem holds under the power limit. It changes a setting of the "
    "whole GPU: only for a machine that is yours."
)
LockClocks = Annotated[int | None, typer.Option("--lock-clocks", min=1, metavar="MHZ", help=_LOCK_HELP)]
