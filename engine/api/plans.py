"""Plans from files: campaigns, and what programs recorded."""

from pathlib import Path

from gemmtune.engine.campaign import plan_file
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.consumers.inductor.capture.recorded import RECORD_SUFFIXES, recorded_plan


def read_plan(path: Path) -> Plan:
    """Read a campaign file, or the products that a program recorded.

    Raises:
        UsageError: the file is missing or malformed, has an unknown key, or a value of the wrong kind or out of bounds.
    """
    return plan_file.read_plan(path, dict.fromkeys(RECORD_SUFFIXES, recorded_plan))
