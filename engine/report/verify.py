"""Report of `gemmtune verify`: every row, and whether it holds."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.campaign.verify import Check, Verified
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, json_fields, microseconds, table_text
from gemmtune.engine.report.ranges import range_text
from gemmtune.engine.tables.ranges import of_one_gemm

__all__ = ["VerifyReport"]

_HEADERS = ("problem", "runs", "µs said", "µs now", "loss", "holds", "config")
_LEFT = ("problem", "runs", "holds", "config")


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """A table after it was measured again."""

    found: Verified
    """Checks of rows and ranges, and the mended table."""

    def to_text(self, width: int | None = None) -> str:
        """Return a line per row, the ranges that do not hold, and what was mended."""
        found = self.found
        lines = [self._line(check, check.problem.name) for check in found.rows]
        lines += [
            self._line(check, f"{range_text(its.row)} at {check.problem.m}")
            for its in found.ranges
            for check in its.checks
            if not check.holds
        ]
        holding = f"{count(sum(check.holds for check in found.rows), 'row')} of {len(found.rows)} hold"
        if found.ranges:
            holding += f", {count(sum(its.holds for its in found.ranges), 'range')} of {len(found.ranges)}"
        return f"{table_text(_HEADERS, lines, _LEFT, width)}\n\n{'; '.join([holding, *self._mended()])}"

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        return {
            "holds": self.found.holds,
            "rows": [_check(check) for check in self.found.rows],
            "ranges": [
                json_fields(its.row, "problem", "first", "last")
                | {"holds": its.holds, "sizes": [_check(check) for check in its.checks]}
                for its in self.found.ranges
            ],
        }

    def _mended(self) -> list[str]:
        """Return what was replaced, rebuilt and dropped; nothing for a table that holds."""
        failed = {check.problem for check in self.found.rows if not check.holds}
        replaced = len(failed & {row.problem for row in self.found.repaired.rows})
        ranged = {of_one_gemm(row.problem) for row in self.found.repaired.ranges}
        broken = [its.row for its in self.found.ranges if not its.holds]
        probed = {of_one_gemm(its.row.problem) for its in self.found.ranges if its.row.probed}
        rebuilt = {of_one_gemm(row.problem) for row in broken} & probed & ranged
        dropped = sum(of_one_gemm(row.problem) not in rebuilt for row in broken)
        mended = {
            f"{count(replaced, 'row')} replaced by {'its' if replaced == 1 else 'their'} best contender": replaced,
            f"{count(len(failed) - replaced, 'row')} dropped (no contender works)": len(failed) - replaced,
            f"ranges of {count(len(rebuilt), 'GEMM')} rebuilt": len(rebuilt),
            f"{count(dropped, 'range')} dropped (no probes: tune again)": dropped,
        }
        return [text for text, number in mended.items() if number]

    def _line(self, check: Check, name: str) -> list[str]:
        choice = check.choice
        return [
            name,
            choice.space,
            microseconds(choice.time_ns),
            microseconds(check.time_ns),
            "-" if check.loss is None else f"{check.loss:.1%}",
            "yes" if check.holds else "no" if check.loss is not None else "does not work",
            config_text(Task(check.problem, self.found.repaired.device, choice.space), choice.config),
        ]


def _check(check: Check) -> dict[str, object]:
    choice = json_fields(check.choice, "space", "config")
    return {
        "problem": check.problem.name,
        **choice,
        "said_ns": check.choice.time_ns,
        **json_fields(check, "time_ns", "loss", "holds"),
    }
