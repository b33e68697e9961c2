"""Write the tables of docs/campaign-keys.md from the keys that gemmtune reads."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from gemmtune.engine.campaign.plan_keys import KEYS, PROBLEM_KEYS, TABLE_KEYS, Key

PAGE = Path(__file__).parents[1] / "campaign-keys.md"
TABLE = re.compile(r"^\|(?:.*\n\|)*.*\n", re.MULTILINE)
PROBLEMS = (
    Key("problems", "list of texts", "[]", "problems in their short form", "the recorded problems"),
    Key("problem", "list of tables", "[]", "problems in the long form, `[[problem]]`, with a weight", "none"),
)


def table(keys: Iterable[Key]) -> str:
    """Return the keys as a table of Markdown."""
    rows = (f"| `{key.name}` | {key.kind} | {key.without or f'`{key.value}`'} | {key.meaning} |\n" for key in keys)
    return f"| key | type | default | meaning |\n|---|---|---|---|\n{''.join(rows)}"


def current(page: str) -> str:
    """Return the page with its three tables as the keys are now."""
    tables = iter((table((*PROBLEMS, *KEYS)), table(TABLE_KEYS), table(PROBLEM_KEYS)))
    return TABLE.sub(lambda _: next(tables), page)


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
