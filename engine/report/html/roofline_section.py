"""Section on the roofline: each row's speed over its arithmetic intensity, beneath the roofs of its GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.workload import baseline_words
from gemmtune.engine.report.campaign_record import CampaignRecord, row_id
from gemmtune.engine.report.html.drawing import COLORS, Picture, dots, plain_ticks
from gemmtune.engine.report.html.page import Section, Sheet
from gemmtune.engine.report.why import kind_meanings, why
from gemmtune.engine.tables.roofline import Speed, roofline, speeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DASHES = ("-", "--", ":", "-.")


def roofs(record: CampaignRecord) -> Section | None:
    """Draw each row's speed, the bandwidth's roof and a roof per peak rate; None where no row has known operations."""
    table, device = record.table, record.table.device
    known = zip(table.rows, speeds(table), map(row_id, range(len(table.rows))), strict=True)
    rows = [(row, each, anchor) for row, each, anchor in known if each and each.tflop_s]
    if not rows:
        return None
    found = roofline(device, [each for _, each, _ in rows])
    kinds = [why(row, table.margin).kind for row, *_ in rows]
    meanings = kind_meanings(baseline_words(row.problem for row, *_ in rows))
    if Evidence.ESTIMATED in record.evidence:
        meanings["win"] = "estimated, not timed"

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlabel="flop per byte (each operand moved once)", ylabel="TFLOP/s")
        plain_ticks(axes)
        for number, roof in enumerate(found.roofs):
            dashes = _DASHES[number % len(_DASHES)]
            xs, ys = zip(*roof.ends, strict=True)
            label = f"{roof.name}, {roof.limit:,g} {'GB/s' if roof.name == 'memory' else 'TFLOP/s'}"
            axes.plot(xs, ys, color=COLORS["ink"].light, linestyle=dashes, lw=1.4, label=label)
        for kind, meaning in meanings.items():
            of = [(each, anchor) for (_, each, anchor), its in zip(rows, kinds, strict=True) if its == kind]
            if of:
                at, heights = [each.intensity for each, _ in of], [each.tflop_s or 0.0 for each, _ in of]
                dots(axes, at, heights, [anchor for _, anchor in of], kind, 30, meaning)
        axes.set(xlim=found.x, ylim=found.y)
        figure.legend(loc="outside upper left", ncols=2)

    picture = Picture(f"Speed over arithmetic intensity of {len(rows)} rows", 3.8, draw)
    headers = ["problem", "type", "flop/byte", "TFLOP/s", "GB/s", "bound by", "% of peak"]
    cells = [[row.problem.name, *_cells(each)] for row, each, _ in rows]
    text = (
        f"The lines are the data sheet's limits for {device.name}: its bandwidth, and the dense peak rate of each "
        "type at the boost clock. A row near its line cannot become much faster. Flops and bytes count each operand "
        "once: above the memory's line, operands stayed in the L2 cache."
    )
    if found.unknown:
        text += f" No peak known for {', '.join(name or 'kernels of unnamed type' for name in found.unknown)}."
    return Section("Roofline", text, [picture], Sheet(headers, cells, ("problem", "type", "bound by")))


def _cells(each: Speed) -> Sequence[str]:
    of_peak = each.fraction_of_peak
    share = "no peak known" if of_peak is None else f"{of_peak:.0%}"
    kind = each.compute_type or "-"
    return kind, f"{each.intensity:.1f}", f"{each.tflop_s:.1f}", f"{each.gb_s:.0f}", each.bound or "-", share
