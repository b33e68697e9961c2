"""Parts of the report of `gemmtune campaigns`: who runs what, how far it is, and what it takes; orders given."""

from collections.abc import Sequence

from gemmtune.engine.report.layout import Grid, Report, count, json_fields, tally
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.store.shared.campaigns import ADDED, PRESENT, Added, Listed, State, Wish

_MOST_ENDED = 20  # campaigns that are over, in a text
_EFFECTS = {
    "pause": "what is in work ends, and nothing is submitted until `resume`",
    "resume": "it goes on",
    "cancel": "what is in work ends, and its table is written of what is done; its command goes on later",
    "priority": "campaigns of a lower one at its host or cluster wait",
    "add": "they are searched when its own problems are done",
}


def shown_of(campaigns: Sequence[Listed]) -> list[Listed]:
    """Return the campaigns that run, and the last ones that are over."""
    over = [each for each in campaigns if not each.is_live][:_MOST_ENDED]
    return [each for each in campaigns if each.is_live or each in over]


def campaigns_grid(campaigns: Sequence[Listed]) -> Grid:
    """Return a table of campaigns; columns in which none has a value are left out."""
    columns = {
        "campaign": [each.name for each in campaigns],
        "owner": [each.owner for each in campaigns],
        "host": [f"{each.host}:{each.pid}" for each in campaigns],
        "state": [_state(each) for each in campaigns],
        "priority": [str(each.priority) if each.priority else "" for each in campaigns],
        "evals": [f"{each.done}/{each.total}" for each in campaigns],
        "for": [duration(each.seconds) for each in campaigns],
        "GPU-s held": [f"{each.gpu_seconds_held:.0f}" if each.gpu_seconds_held else "" for each in campaigns],
        "busy": [f"{each.gpu_seconds_busy:.0f}" if each.gpu_seconds_held else "" for each in campaigns],
        "core-s": [f"{each.core_seconds:.0f}" if each.core_seconds else "" for each in campaigns],
        "gain": [f"{each.gain:.2%} of {each.gain_problems}" if each.gain_problems else "" for each in campaigns],
        "per hour": ["" if each.gain_per_hour is None else f"{each.gain_per_hour:.2%}" for each in campaigns],
        "cost": ["" if each.cost is None else f"{each.cost:.2f}" for each in campaigns],
    }
    kept = {name: [cell or "-" for cell in cells] for name, cells in columns.items() if any(cells)}
    return Grid(kept, ("campaign", "owner", "host", "state"))


def campaign_json(campaign: Listed) -> dict[str, object]:
    """Return the fields of a campaign for programs."""
    names = [name for name in Listed.__dataclass_fields__ if name not in ("id", "wanted")]
    return json_fields(campaign, *names)


def order_report(order: str, name: str, told: int | Added) -> Report:
    """Report an order that a number of drivers will obey within two seconds, and its effect, or what they answered."""
    drivers = told if isinstance(told, int) else told.drivers
    record: dict[str, object] = {"order": order, "campaign": name, "drivers": drivers}
    text = f"{order}: {name}, {count(drivers, 'driver')}; {_EFFECTS[order]}"
    if isinstance(told, int):
        return Report(record, [text])
    of = {kind: [name for name, said in told.answers.items() if said == kind] for kind in (ADDED, PRESENT)}
    unknown = {name: why for name, why in told.answers.items() if why not in (ADDED, PRESENT, "")}
    unanswered = [name for name, why in told.answers.items() if not why]
    numbers = {**{kind: len(names) for kind, names in of.items()}, "unknown": len(unknown)}
    numbers |= {"not answered in time": len(unanswered)} if unanswered else {}
    text += f"\n{tally(numbers)}"
    lines = [f"{name} is not added: {why}" for name, why in unknown.items()]
    return Report(record | of | {"unknown": unknown, "unanswered": unanswered}, ["\n".join([text, *lines])])


def _state(campaign: Listed) -> str:
    due = {Wish.PAUSE: State.PAUSED, Wish.CANCEL: State.CANCELLED}.get(Wish(campaign.wanted))
    if campaign.is_live and due is not None and campaign.state != due:
        return f"{campaign.state}, to be {due}"
    return campaign.state
