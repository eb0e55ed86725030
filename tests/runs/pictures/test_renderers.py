"""Paper and page show what a picture says: its numbers are read back from both."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib import rc_context
from matplotlib.colors import to_hex

from fedsash.runs.pictures import Axis, Bars, Dots, Field, Line, Panel, Picture, Points, Rule, Spans, look
from fedsash.runs.pictures.layers import DASHES
from fedsash.runs.pictures.page import MAP, plotly
from fedsash.runs.pictures.paper import draw, drawn, figure
from fedsash.runs.pictures.scales import common
from fedsash.runs.pictures.styles import INK, of_bars, paired
from support.by_default import some

X = [1.0, 2.0, 4.0]


def panel(*layers: Any, **more: Any) -> Panel:
    return Panel("name", more.pop("x", Axis("time")), more.pop("y", Axis("height")), layers, **more)


def paper(*layers: Any, **more: Any) -> Any:
    """The axes of the only panel, as they are drawn."""
    made = figure(Picture("title", [panel(*layers, **more)]))
    made.canvas.draw()
    return made.axes[0]


def view(*layers: Any, **more: Any) -> Any:
    """The only view of the page, by way of JSON."""
    (found,) = json.loads(json.dumps(plotly(Picture("title", [panel(*layers, **more)])), allow_nan=False))["views"]
    return found


def boxes(collection: Any) -> list[tuple[float, ...]]:
    """Left, right, low and high of each box."""
    corners = [path.vertices[:4] for path in collection.get_paths()]
    return [(*c[[0, 1], 0].tolist(), *c[[0, 2], 1].tolist()) for c in corners]


def test_a_line_has_its_points_on_both_and_a_gap_where_nothing_is_known() -> None:
    line = Line("a", X, [5.0, None, float("nan")], look(1))
    (drawn,) = paper(line).get_lines()
    assert drawn.get_xdata().tolist() == X and drawn.get_ydata()[0] == 5 and np.isnan(drawn.get_ydata()[1:]).all()
    (trace,) = view(line)["data"]
    assert trace["x"] == X and trace["y"] == [5, None, None]
    assert to_hex(drawn.get_color()).upper() == trace["line"]["color"] == look(1).colour
    assert drawn.get_label() == trace["label"] == "a"


def test_a_file_of_matplotlibs_settings_that_lies_around_changes_no_picture(tmp_path: Path) -> None:
    picture = Picture("title", [panel(Line("a", X, X, look(0)))])
    draw(picture, tmp_path / "a.png")
    with rc_context({"text.usetex": True, "axes.facecolor": "red", "font.size": 30}):
        draw(picture, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()


def test_error_bars_are_as_long_on_both() -> None:
    line = Line("a", X, [5.0, 6.0, 7.0], look(0), errors=[1.0, 0.0, 2.0])
    (bars,) = paper(line).collections
    assert [segment[:, 1].tolist() for segment in bars.get_segments()] == [[4, 6], [6, 6], [5, 9]]
    assert view(line)["data"][0]["error_y"]["array"] == [1, 0, 2]


@pytest.mark.parametrize("steps, style, shape", [("after", "steps-post", "hv"), ("middle", "steps-mid", "hvh")])
def test_steps_are_the_same_on_both(steps: Any, style: str, shape: str) -> None:
    line = Line("a", X, X, look(0), steps=steps, filled=True)
    axes, (trace,) = paper(line), view(line)["data"]
    assert axes.get_lines()[0].get_drawstyle() == style and trace["line"]["shape"] == shape
    assert len(axes.collections) == 1 and trace["fill"] == "tozeroy"


def test_what_can_be_smoothed_is_on_the_page_once_and_raw_on_paper() -> None:
    line = Line("a", X, [1.0, 2.0, 3.0], look(0), smooth=[1.5, 2.0, 2.5])
    spec = plotly(Picture("", [panel(line), panel(line), panel(Line("b", X, X, look(1)))]))
    assert list(spec["series"].values()) == [{"x": X, "y": [1, 2, 3], "smooth": [1.5, 2, 2.5]}]
    assert [view["data"][0].get("series") for view in spec["views"]] == ["0", "0", None]
    assert paper(line).get_lines()[0].get_ydata().tolist() == [1, 2, 3]


def test_bars_stand_side_by_side_or_on_each_other() -> None:
    heights = [[1.0, 2.0], [3.0, None]]
    aside = Bars(["a", "b"], [0, 1], heights, ["red", "blue"])
    first, second = map(boxes, paper(aside).collections)
    assert [box[2:] for box in first] == [(0, 1), (0, 2)] and [box[2:] for box in second] == [(0, 3)]
    assert first[0][1] <= second[0][0] and first[0][0] == pytest.approx(-0.4)
    stacked = Bars(["a", "b"], [0, 1], heights, ["red", "blue"], stacked=True)
    first, second = map(boxes, paper(stacked).collections)
    assert second[0][2:] == (1, 4) and second[0][:2] == first[0][:2]
    for bars, mode in ((aside, "group"), (stacked, "stack")):
        found = view(bars)
        assert [(t["x"], t["y"], t["label"]) for t in found["data"]] == [
            ([0, 1], [1, 2], "a"),
            ([0, 1], [3, None], "b"),
        ]
        assert found["layout"]["barmode"] == mode


def test_spans_lie_in_their_rows_from_begin_to_end() -> None:
    spans = Spans("train", [0, 2], [1.0, 3.0], [2.0, 7.0], "#ff0000", 0.5)
    (drawn,) = paper(spans).collections
    assert boxes(drawn) == [(1, 2, -0.25, 0.25), (3, 7, 1.75, 2.25)]
    (trace,) = view(spans)["data"]
    assert trace["y"] == [0, 2] and trace["base"] == [1, 3] and trace["x"] == [1, 4] and trace["width"] == 0.5


def test_dots_have_areas_in_proportion_and_tell_their_counts() -> None:
    dots = Dots([[3, 0, 5], [1, 0, 5]], ["#ff0000", "#0000ff"])
    (drawn,) = paper(dots).collections
    (trace,) = view(dots)["data"]
    assert drawn.get_offsets().tolist() == [list(place) for place in zip(trace["x"], trace["y"], strict=True)]
    assert trace["customdata"] == [3, 5, 1, 5] and trace["marker"]["size"] == [0.75, 0.5, 0.25, 0.5]
    assert drawn.get_sizes() / drawn.get_sizes()[0] == pytest.approx([1, 2 / 3, 1 / 3, 2 / 3])
    assert [to_hex(colour) for colour in drawn.get_facecolors()] == trace["marker"]["color"]


def test_too_many_dots_are_a_map_on_the_page_and_none_are_nothing() -> None:
    rows = [[1] * 100 for _ in range(MAP // 100 + 1)]
    (trace,) = view(Dots(rows, ["red"] * len(rows)))["data"]
    assert trace["type"] == "heatmap" and trace["z"] == rows
    assert view(Dots([[0]], ["red"]))["data"][0]["x"] == [] and not paper(Dots([[0]], ["red"])).collections


FIELD = Field("loss", [0.0, 1.0, 2.0], [0.0, 3.0], [[1.0, 2.0, 9.0], [1.5, None, 3.0]])


def test_contours_have_one_scale_of_colours_on_both() -> None:
    (picture,) = common([Picture("", [panel(FIELD)])])
    levels = list(picture.panels[0].layers[0].levels)  # type: ignore[union-attr]
    made = figure(picture)
    filled = next(artist for artist in made.axes[0].collections if artist.get_array() is not None)
    assert filled.levels.tolist() == levels
    (trace,) = view(FIELD)["data"]
    assert (trace["x"], trace["y"], trace["z"]) == (FIELD.x, FIELD.y, FIELD.values)
    assert (trace["zmin"], trace["zmax"]) == (levels[0], levels[-1])
    places = np.linspace(0, 1, 7)
    stops, colours = zip(*trace["colorscale"], strict=True)
    for place in places:
        level = np.interp(place, np.linspace(0, 1, len(levels)), levels)
        scaled = (level - levels[0]) / (levels[-1] - levels[0])
        seen = [np.interp(scaled, stops, [int(c[i : i + 2], 16) for c in colours]) for i in (1, 3, 5)]
        drawn = [255 * part for part in filled.cmap(place)[:3]]
        assert seen == pytest.approx(drawn, abs=6)


def test_a_relief_has_its_heights_on_both() -> None:
    field = Field("loss", [0.0, 1.0], [0.0, 1.0], [[1.0, 2.0], [3.0, 4.0]], relief=True)
    axes = paper(field)
    assert axes.name == "3d"
    assert axes.zz_dataLim.intervalx.tolist() == [1, pytest.approx(3.7)], "what is above the scale is cut off"
    assert axes.get_zlim() == (1, pytest.approx(3.7))
    found = view(field)
    assert found["data"][0]["type"] == "surface" and found["data"][0]["z"] == field.values
    assert found["layout"]["scene"]["zaxis"]["range"] == [1, pytest.approx(3.7)]


def test_points_and_rules_stand_where_they_should_with_their_names() -> None:
    layers = [FIELD, Points(["a$_1", "<b>"], [0.0, 1.0], [0.0, 2.0]), Rule(1.5, "x", "here"), Rule(2.5, "y")]
    axes, found = paper(*layers), view(*layers)
    names = [text.get_text() for text in axes.texts]
    assert names == ["here", "", "a$_1", "<b>"] and axes.get_lines()[0].get_xydata().tolist() == [[0, 0], [1, 2]]
    assert axes.get_lines()[1].get_xdata() == [1.5, 1.5] and axes.get_lines()[2].get_ydata() == [2.5, 2.5]
    points = found["data"][1]
    assert points["text"] == ["a$_1", "&lt;b&gt;"] and (points["x"], points["y"]) == ([0, 1], [0, 2])
    across, along = found["layout"]["shapes"]
    assert (across["x0"], across["x1"], across["yref"]) == (1.5, 1.5, "paper")
    assert (along["y0"], along["y1"], along["xref"]) == (2.5, 2.5, "paper")
    notes = [(note["text"], note["x"]) for note in found["layout"]["annotations"]]
    assert notes == [("here", 1.5), ("a$_1", 0), ("&lt;b&gt;", 1)], "names are tags, which any colour leaves readable"
    (note,) = view(Rule(100, "x", "chosen"), x=Axis("size", log=True))["layout"]["annotations"]
    assert note["x"] == 2, "plotly wants the logarithm"


def test_names_of_points_stand_beside_them_on_logarithmic_axes_too() -> None:
    logarithmic = {"x": Axis("distance", log=True), "y": Axis("gap", log=True)}
    found = view(Points(["a", "", "b"], [0.01, 1, None], [100, 1, 2]), **logarithmic)
    (name,) = found["layout"]["annotations"]
    assert (name["text"], name["x"], name["y"]) == ("a", -2, 2) and found["data"][0]["x"] == [0.01, 1, None]


def test_the_names_of_points_stand_inside_their_panel() -> None:
    """That of the highest point is not written over the panel's title."""
    points = Points(["9", "61", "45"], [0.3, 0.4, 0.9], [0.015, 0.009, 0.0])
    axes = paper(points, y=Axis("height", low=0))
    inside = axes.get_window_extent()
    for text in axes.texts:
        here = text.get_window_extent()
        assert inside.x0 <= here.x0 and here.x1 <= inside.x1 and here.y1 <= inside.y1


def test_axes_have_their_labels_ranges_and_ticks_on_both() -> None:
    x, y = Axis("size", 1, 100, log=True), Axis("class", 2.7, -0.7, {0: "cat", 1: "dog"})
    axes, layout = paper(Line("", X, X, look(0)), x=x, y=y), view(Line("", X, X, look(0)), x=x, y=y)["layout"]
    assert axes.get_xlabel() == layout["xaxis"]["title"]["text"] == "size"
    assert axes.get_xlim() == (1, 100) and layout["xaxis"]["range"] == [0, 2] and layout["xaxis"]["type"] == "log"
    assert axes.get_ylim() == (2.7, -0.7) and layout["yaxis"]["range"] == [2.7, -0.7]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == layout["yaxis"]["ticktext"] == ["cat", "dog"]


@pytest.mark.parametrize("values", [(2.1, 8.9), (0.21, 0.9), (0.5, 50.0), (1.0, 1e6)])
def test_a_logarithmic_axis_has_numbers_on_it_wherever_the_data_lie(values: tuple[float, float]) -> None:
    axes = paper(Line("a", [0, 1], values, look(0)), y=Axis("height", log=True))
    axis, (low, high) = axes.yaxis, axes.get_ylim()
    labels = [*axis.get_majorticklabels(), *axis.get_minorticklabels()]
    assert sum(bool(label.get_text()) and low <= label.get_position()[1] <= high for label in labels) >= 2


def test_only_whole_numbers_are_marked_on_a_whole_axis() -> None:
    line, whole = Line("", [0.8, 3.2], [1, 2], look(0)), Axis("round", whole=True)
    assert view(line, x=whole)["layout"]["xaxis"]["tickvals"] == [1, 2, 3]
    assert all(tick == round(tick) for tick in paper(line, x=whole).get_xticks())
    assert "tickvals" not in view(Line("", [0, 500], [1, 2], look(0)), x=whole)["layout"]["xaxis"]


def test_every_panel_is_a_view_and_panels_are_named_where_there_are_several() -> None:
    panels = [Panel(name, Axis("x"), Axis("y"), [Line("", X, X, look(0))]) for name in ("one", "two", "three")]
    picture = Picture("title", panels, columns=2)
    made = figure(picture)
    assert [axes.get_title("left") for axes in made.axes] == ["one", "two", "three"]
    assert [view["label"] for view in plotly(picture)["views"]] == ["one", "two", "three"]
    assert made.get_suptitle() == "title" and paper(Line("", X, X, look(0))).get_title("left") == ""


def test_names_stand_at_the_ends_of_lines_or_in_a_legend() -> None:
    lines = [Line("$a_1", X, [1, 2, 3], look(0)), Line("b", X, [1, 2, None], look(1))]
    named = {text.get_text(): text.xy for text in paper(*lines, ends=True).texts}
    assert named == {"$a_1": (4, 3), "b": (2, 2)}  # where they end
    legend = paper(*lines).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["$a_1", "b"]
    assert paper(lines[0]).get_legend() is None


def test_the_handle_of_a_dashed_line_in_a_legend_has_more_than_two_dashes() -> None:
    """A shorter one looks solid, since the mark in its middle covers the only gap."""
    legend = paper(Line("a", X, X, look(0)), Line("b", X, X, replace(look(0), dash="dash"))).get_legend()
    width = legend.handlelength * legend.get_texts()[1].get_fontsize()
    dash, gap = DASHES["dash"][1]
    assert width > 2 * (dash + gap) * legend.get_lines()[1].get_linewidth()


def test_many_lines_have_their_names_at_their_ends_and_many_bars_a_legend() -> None:
    names = [f"model {i}" for i in range(9)]
    axes = paper(*(Line(name, X, [i, i, i], look(i)) for i, name in enumerate(names)))
    assert [text.get_text() for text in axes.texts] == names
    legend = paper(Bars(names, [0], [[1]] * 9, of_bars(9))).get_legend()
    assert [text.get_text() for text in legend.get_texts()] == names


def test_of_pairs_each_has_its_own_colour_and_those_with_something_more_other_dashes() -> None:
    names = [f"{method}{more}" for method in "ABCDEFGH" for more in ("", " + x", " + y")]
    styles = paired(names)
    assert len({(style.colour, style.dash) for style in styles.values()}) == len(names)
    assert all(styles[name].colour == styles[name[0]].colour for name in names)
    assert {styles[method].dash for method in "ABCDEFGH"} == {"solid"}


def test_on_a_logarithmic_axis_names_stand_beside_their_ends() -> None:
    lines = [Line(f"{end:g}", X, [1, 2, end], look(i)) for i, end in enumerate((0.001, 0.1, 10))]
    drawn = figure(Picture("", [Panel("", Axis("x"), Axis("y", log=True), lines, ends=True)])).axes[0]
    places = {text.get_text(): text.get_position()[1] for text in drawn.texts}
    assert all(place == pytest.approx(float(end)) for end, place in places.items()) and len(places) == 3


def test_the_same_picture_is_the_same_file_and_one_that_fails_leaves_the_old_one(tmp_path: Path) -> None:
    picture = Picture("$5", [panel(Line("a", X, X, look(0)))])
    for name in ("a.png", "b.png"):
        draw(picture, tmp_path / name)
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    (tmp_path / "c.nonsense").write_text("old")
    with pytest.raises(ValueError, match="nonsense"):
        draw(picture, tmp_path / "c.nonsense")
    assert (tmp_path / "c.nonsense").read_text() == "old" and len(list(tmp_path.iterdir())) == 3


def test_a_panel_without_layers_says_so_and_a_picture_without_panels_is_refused() -> None:
    assert [text.get_text() for text in paper().texts] == ["nothing is known"]
    with pytest.raises(ValueError, match="it holds no numbers"):
        plotly(Picture("", []))


def test_names_of_near_points_stand_apart_in_ink_and_none_is_where_no_room_is() -> None:
    near = Points(["56", "29", "14", "10", "88"], [0.0] * 5, [0.0] * 5)
    one_far = Points(["32"], [1.0], [1.0])
    axes = paper(near, one_far)
    names = [text.get_text() for text in axes.texts]
    assert names == ["56", "29", "14", "10", "32"], "there is room on four sides of marks upon each other"
    axes = paper(Points(["56", "29", "32"], [0.5, 0.5, 1.0], [0.0, 0.02, 1.0]))
    extents = [text.get_window_extent() for text in axes.texts]
    assert len(extents) == 3 and not extents[0].overlaps(extents[1])
    assert {to_hex(text.get_color()) for text in axes.texts} == {INK} and not axes.texts[0].get_path_effects()


def test_names_of_models_that_lie_together_on_colour_all_stand_beside_each_other() -> None:
    axes = paper(FIELD, Points(["a", "b", "c"], [1.0] * 3, [1.0] * 3), Points(["d", "e"], [1.0] * 2, [1.0] * 2))
    extents = [text.get_window_extent() for text in axes.texts]
    assert [text.get_text() for text in axes.texts] == ["a", "b", "c", "d", "e"]
    assert not any(one.overlaps(other) for i, one in enumerate(extents) for other in extents[:i])
    tags = view(FIELD, Points(["a", "b", "c"], [1.0] * 3, [1.0] * 3))["layout"]["annotations"]
    assert [tag["yshift"] for tag in tags] == [18, -18, 36]


@pytest.mark.parametrize("ratio", some([0.7, 0.8], 0.8))
def test_no_label_below_a_square_panel_is_cut(ratio: float) -> None:
    """The panels become lower than the layout has planned, and the labels below them hang over its edge."""
    field = replace(FIELD, y=[ratio * y / 3 for y in FIELD.y], x=[x / 2 for x in FIELD.x])
    distance = Axis("distance in parameter space")
    square = Panel("loss", distance, distance, [field], width=5.2, height=4.2 * ratio, square=True)
    content = drawn(Picture("planes", [square, square], columns=2), "svg").decode()
    made = figure(Picture("planes", [square, square], columns=2))
    made.draw_without_rendering()
    needed = made.get_tightbbox()
    height = re.search(r'height="([\d.]+)pt"', content)
    assert height is not None and float(height[1]) >= 72 * (made.bbox_inches.y1 - needed.y0)


@pytest.mark.parametrize("at, side", [(1.0, "left"), (3.9, "right")])
def test_the_note_of_a_line_stands_on_the_side_with_more_room(at: float, side: str) -> None:
    axes = paper(Line("a", X, X, look(0)), Rule(at, "x", "forked at round 3"))
    assert axes.texts[0].get_ha() == side
    assert view(Line("a", X, X, look(0)), Rule(at, "x", "here"))["layout"]["annotations"][0]["xanchor"] == side


def test_a_line_that_is_not_shown_is_in_the_legend_of_the_page_alone() -> None:
    hidden = replace(Line("b", X, X, look(1)), shown=False)
    assert len(paper(Line("a", X, X, look(0)), hidden).get_lines()) == 1
    assert [trace.get("unticked", False) for trace in view(Line("a", X, X, look(0)), hidden)["data"]] == [False, True]


def test_marks_at_the_end_of_an_axis_are_whole_and_lines_that_leave_it_are_cut() -> None:
    inside = Line("a", X, [0.0, 50.0, 100.0], look(0))
    beyond = Line("b", X, [-20.0, 50.0, 100.0], look(1))
    one, other = paper(inside, beyond, y=Axis("share", low=0, high=100)).get_lines()
    assert not one.get_clip_on() and other.get_clip_on()
