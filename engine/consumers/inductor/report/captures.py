"""Report of a capture: the products of a model and what no table can serve."""

from dataclasses import asdict

from gemmtune.engine.consumers.inductor.capture.captured import Captured, CapturedProduct
from gemmtune.engine.report.layout import Grid, Report


def capture_report(captured: Captured, written: str) -> Report:
    """Return the report of a capture that was written to a campaign file."""
    variants = [variant for product in captured.products for variant in product.variants]
    products = [
        (each.problem.series_name if each.m else each.problem.name, f"{each.count:g}", _sizes(each), _chains(each))
        for each in variants
    ]
    width = 4 if any(chains for *_, chains in products) else 3
    sections: list[str | Grid] = [captured.source]
    if len(captured.calls) > 1:
        calls = [(each.name, f"{each.weight:g}", str(each.products), f"{each.runs:g}") for each in captured.calls]
        sections.append(Grid.of_rows(("call", "weight", "products", "runs"), calls, ("call",)))
    if products:
        headers = ("product", "runs", variants[0].problem.range_size, "epilogue without a text")[:width]
        sections.append(Grid.of_rows(headers, [row[:width] for row in products], ("product", headers[-1])[: width - 2]))
    else:
        sections.append("It runs no product that a table can serve.")
    if captured.unseen:
        rows = [(each.operation, f"{each.count:g}", each.reason) for each in captured.unseen]
        sections.append(Grid.of_rows(("not to be tuned", "runs", "reason"), rows, ("not to be tuned", "reason")))
    if products:
        sections.append(f"written: {written}\nto tune: gemmtune tune {written} --out out")
    record = {
        "source": captured.source,
        "torch": captured.torch or None,
        "calls": [asdict(each) for each in captured.calls],
        "products": [
            {
                "problem": each.problem.name,
                "count": each.count,
                "compiled": captured.compiled.get(each.problem.name),
                "m": list(each.sizes),
                "m_expression": each.m or None,
                "first": each.first or None,
                "last": each.last,
                "epilogues": [{"epilogue": chain, "count": count} for chain, count in each.epilogues],
            }
            for each in variants
        ],
        "not_tuned": [{"operation": u.operation, "reason": u.reason, "count": u.count} for u in captured.unseen],
        "written": written,
    }
    return Report(record, sections)


def _sizes(product: CapturedProduct) -> str:
    if not product.m:
        return str(product.problem.size)
    return f"{product.first} to {'any' if product.last is None else product.last}"


def _chains(product: CapturedProduct) -> str:
    return ", ".join(f"{chain} ({count:g})" for chain, count in product.epilogues)
