"""Pictures: margins in inches whatever the height, names that break before colons, colours of the page."""

from __future__ import annotations

import re

import pytest

from gemmtune.engine.report.html.drawing import (
    COLORS,
    SERIES,
    canvas,
    grid,
    height_of,
    plain_ticks,
    png,
    shortened,
    svg,
    wrapped,
)


@pytest.mark.parametrize(
    ("name", "width", "lines"),
    [
        ("16x32x64:bf16:nt", 26, ["16x32x64:bf16:nt"]),
        ("16x32x64:bf16:nt", 16, ["16x32x64:bf16:nt"]),
        ("16x32x64:bf16:nt", 15, ["16x32x64:bf16", ":nt"]),
        ("16x32x64:bf16:nt", 8, ["16x32x64", ":bf16:nt"]),
        ("16x32x64:epilogue=silu.mul(matrix)", 16, ["16x32x64", ":epilogue=silu", ".mul(matrix)"]),
        ("a_file_of_a_kernel.py:Softmax", 8, ["a_file_o", "f_a_kern", "el.py", ":Softmax"]),
        ("plain", 3, ["pla", "in"]),
    ],
)
def test_a_name_breaks_before_a_colon_where_the_line_is_full(name, width, lines):
    assert wrapped(name, width).split("\n") == lines


def test_a_picture_has_room_for_the_longest_name_on_each_of_its_lines():
    assert height_of(["a", "b"]) == pytest.approx(1.54)
    assert height_of(["a", "b\nc\nd"]) == pytest.approx(1.0 + 2 * 0.59)


@pytest.mark.parametrize(("number", "columns", "height", "shape"), [(1, 3, 2.65, (1, 3)), (4, 3, 4.35, (2, 3))])
def test_panels_have_fixed_margins_in_inches(number, columns, height, shape):
    with canvas(height, solved=False) as figure:
        panels = grid(figure, number, columns, height)
        assert len(panels) == number
        assert len(figure.axes) == shape[0] * shape[1]
        boxes = [axes.get_position() for axes in figure.axes]
        assert min(box.x0 for box in boxes) * 7.6 == pytest.approx(0.9)
        assert (1 - max(box.x1 for box in boxes)) * 7.6 == pytest.approx(0.28)
        assert min(box.y0 for box in boxes) * height == pytest.approx(0.5)
        assert (1 - max(box.y1 for box in boxes)) * height == pytest.approx(0.65)
        assert [axes.axison for axes in figure.axes] == [place < number for place in range(len(boxes))]
        if shape[0] > 1:  # a row of 1.7 inches has 0.62 for its title and ticks
            gap = (boxes[0].y0 - boxes[3].y1) / boxes[0].height
            assert gap == pytest.approx(0.62 / (1.7 - 0.62))


@pytest.mark.parametrize(
    ("columns", "name"), [(2, "quack_grouped"), (2, "sglang_moe_wna16_shipped"), (3, "aten_grouped")]
)
def test_panels_have_room_for_the_longest_name_on_their_left(columns, name):
    with canvas(3.0, solved=False) as figure:
        panels = grid(figure, columns, columns, 3.0, len(name))
        for axes in panels:
            axes.set_yticks([0.5], [name], fontsize=8)
        figure.draw_without_rendering()
        boxes = [axes.get_window_extent() for axes in panels]
        names = [axes.get_yticklabels()[0].get_window_extent() for axes in panels]
        ends = [0.0, *(box.x1 for box in boxes)]
        assert all(end <= box.x0 for end, box in zip(ends, names, strict=False))
        assert min(box.width for box in boxes) > 1.2 * figure.dpi


def test_a_short_name_has_no_digests():
    name = "triton:FlashAttention@3edf687070df:b=1,t=8192,h=2,hq=8,k=64~b45a8d3a"
    assert shortened(name) == "triton:FlashAttention\n:b=1,t=8192,h=2,hq=8,k=64"


def test_logarithmic_axes_have_plain_numbers():
    with canvas(2.0) as figure:
        axes = figure.subplots()
        axes.set(xscale="log", yscale="log", xlim=(1, 100), ylim=(0.1, 1))
        plain_ticks(axes)
        figure.draw_without_rendering()
        shown = [text.get_text() for text in axes.get_xticklabels() if 1 <= text.get_position()[0] <= 100]
        assert shown == ["1", "2", "5", "10", "20", "50", "100"]
        assert "0.5" in [text.get_text() for text in axes.get_yticklabels()]
        assert not any(text.get_text() for text in axes.get_xticklabels(minor=True))


def picture():
    with canvas(2.0) as figure:
        axes = figure.subplots()
        axes.plot([1, 2], [3, 4], color=COLORS["win"].light)
        axes.set_title("a < b")
        return str(svg(figure, 'speed "x" <y>')), png(figure)


def test_equal_figures_give_equal_bytes_in_the_pages_colours():
    (first, pixels), again = picture(), picture()
    assert (first, pixels) == again
    assert first.startswith('<svg class="picture" role="img" aria-label="speed &#34;x&#34; &lt;y&gt;" ')
    assert "\n" not in first
    assert "a &lt; b" in first
    assert "var(--win)" in first
    assert not any(color.light in first for color in COLORS.values())
    assert pixels.startswith(b"\x89PNG")


def test_panels_are_drawings_of_their_own_that_the_page_puts_side_by_side():
    with canvas(4.35, solved=False) as figure:
        panels = grid(figure, 4, 3, 4.35)
        for number, axes in enumerate(panels):
            axes.plot([1, 2], [3, 4], label="curve")
            axes.set_title(f"title {number}")
        panels[1].scatter([9], [9])
        panels[1].set(xlim=(1, 2), ylim=(3, 4))  # nothing of it is in sight
        figure.supxlabel("evaluations")
        figure.supylabel("µs")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left")
        drawn = str(svg(figure, "four <panels>"))
    assert re.findall(r"title \d", drawn) == [f"title {number}" for number in range(4)]
    of_each = re.findall(r'<svg class="panel" viewBox="([^"]*)".*?</svg>', drawn)
    widths, heights = zip(*([float(x) for x in box.split()[2:]] for box in of_each), strict=True)
    assert widths == pytest.approx([72 * (1.745 + 0.593 + 0.12)] * 4, abs=0.1)
    assert heights == pytest.approx([72 * (3.2 / (2 + 0.62 / 1.08) + 0.36 + 0.26)] * 4, abs=0.1)
    assert drawn.count("</svg>") == 6  # with the legend and what the panels share
    assert '<figcaption class="muted">µs over evaluations</figcaption>' in drawn
    assert 'role="img" aria-label="four &lt;panels&gt;"' in drawn
    [legend] = re.findall(r'<svg class="legend" viewBox="([^"]*)"', drawn)
    assert all(0 <= float(x) <= 72 * 4.35 for x in legend.split())


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("16x32x64:bf16:nt", ["16x32x64:bf16:nt"]),
        ("16x32x64:e4m3:nt:epilogue=mul(column[fp32]).silu.mul(matrix)", ["16x32x64:e4m3:nt", "…silu.mul(matrix)"]),
        ("a" * 100, ["a" * 20, "…" + "a" * 19]),
    ],
)
def test_a_longer_name_keeps_its_head_and_its_tail(name, lines):
    assert shortened(name, 20).split("\n") == lines


def test_no_two_colours_of_a_page_are_alike():
    assert len({color.light for color in COLORS.values()}) == len(COLORS)
    assert len(SERIES) == 5
