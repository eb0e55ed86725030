"""The pictures of analyses, from their JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .collect import Analysis
from .figures import BLUE, Figure, axis, line, points, view
from .landscapes import Content, Made, plane, profile, surfaces

SIDE_BY_SIDE = ("plane", "surface")

PARTS = {
    "parts of the squared error": (
        *("squared_error", "bias", "train_bias", "heterogeneous_bias"),
        *("variance", "covariance"),
    ),
    "distance of the clients from their mean": ("locality_max", "locality_mean"),
    "similarity of the clients (CKA)": ("cka",),
}


def figures(analyses: Sequence[Analysis]) -> tuple[list[tuple[Analysis, Figure]], list[str]]:
    """Each analysis with its picture, those of a kind together, and notes on what cannot be drawn.

    All surfaces have the same scales.
    """
    kinds = KINDS | {"surface": surfaces([a.content for a in analyses if a.content.get("kind") == "surface"])}
    order = list(kinds)
    found, wrong = [], []
    for analysis in sorted(analyses, key=lambda a: order.index(a.kind) if a.kind in order else len(order)):
        try:
            found.append((analysis, _figure(analysis, kinds)))
        except KeyError as error:
            wrong.append(f"left out: {analysis.file} has no {error}")
        except (ValueError, TypeError, AttributeError, IndexError) as error:
            wrong.append(f"left out: {analysis.file}: {error}")
    return found, wrong


def _figure(analysis: Analysis, kinds: dict[str, Callable[[Content], Made]]) -> Figure:
    if analysis.kind not in kinds:
        raise ValueError(f"its kind {analysis.kind!r} is none of {', '.join(kinds)}")
    caption, views, height = kinds[analysis.kind](analysis.content)
    half, command = analysis.kind in SIDE_BY_SIDE, str(analysis.content.get("command") or "")
    return Figure(analysis.title, caption, views, height=height, half=half, command=command)


def decomposition(content: Content) -> Made:
    """The parts of the expected error by round, then locality and similarity."""
    views = []
    for label, keys in PARTS.items():
        known = [key for key in keys if any(value is not None for value in content.get(key) or [])]
        lines = [
            line(key.replace("_", " "), keys.index(key), **points(content["rounds"], content[key])) for key in known
        ]
        if lines:
            views.append(view(label, lines, xaxis=axis("round"), yaxis=axis(label)))
    if not views:
        raise ValueError("it holds no numbers")
    caption = "What the error of the clients' mean model is made of, by round. What one seed cannot tell is left out."
    return caption, views, 400


def flatness(content: Content) -> Made:
    """The Hessian's largest eigenvalues, and the loss's rise in the worst direction."""
    eigen, sharp, tops = [], [], []
    for place, (name, model) in enumerate(content["models"].items()):
        values, rises = model["eigenvalues"], model.get("sharpness") or {}
        radii = sorted(rises, key=float)
        eigen.append(line(name, place, **points(range(1, len(values) + 1), values)))
        sharp.append(line(name, place, **points(map(float, radii), [rises[radius] for radius in radii])))
        tops += [f"{name}: largest eigenvalue {values[0]:.4g}"] if values else []
    order, rise = axis("number of the eigenvalue", dtick=1), axis("rise of the loss", rangemode="tozero")
    views = [view("largest eigenvalues", eigen, xaxis=order, yaxis=axis("eigenvalue", rangemode="tozero"))]
    if any(trace["x"] for trace in sharp):
        views.append(view("sharpness", sharp, xaxis=axis("radius of the neighbourhood"), yaxis=rise))
    return f"How sharply the loss bends around each model; smaller is flatter. {'; '.join(tops)}.", views, 380


def window(content: Content) -> Made:
    """What a window holds: weights of rounds and of clients, and the distances of its models."""
    weight, bars = axis("weight in the mean", rangemode="tozero"), {"type": "bar", "marker": {"color": BLUE}}
    of_rounds = line("weight", 0, **points(content["rounds"], content["weights"]))
    views = [view("weight of each round's update", [of_rounds], xaxis=axis("round"), yaxis=weight)]
    if clients := content.get("clients"):
        of_clients = bars | points(range(len(clients)), clients)
        views.append(view("weight of each client", [of_clients], xaxis=axis("client"), yaxis=weight))
    if distances := content.get("distances"):
        away = line("distance", 0, **points(content["distance_rounds"], distances))
        y = axis("distance from the mean", rangemode="tozero")
        views.append(view("distance of each model from the mean", [away], xaxis=axis("round"), yaxis=y))
    return f"What the average {content['average']} holds after round {content['round']}.", views, 380


def averages(content: Content) -> Made:
    """Windows and EMAs of one run, by the number of models that they average."""
    sizes, windows, emas = content["sizes"], content["windows"], content["emas"]
    views = []
    for label, key, scale in (("accuracy", "accuracy", 100.0), ("loss", "loss", 1.0)):
        lines = [_of_sizes("window", 0, sizes, windows[key], scale), _of_sizes("EMA", 1, sizes, emas[key], scale)]
        if key == "accuracy" and content.get("chosen") is not None:
            lines.append(_of_sizes("window, on held-out data", 2, sizes, windows["held_out"], scale))
        y = axis(f"{label} ({content['split']}{', %' if scale > 1 else ''})")
        views.append(view(label, lines, xaxis=axis("number of models", type="log"), yaxis=y))
    chosen = content.get("chosen")
    choice = f" Held-out data choose the window of {chosen}." if chosen else ""
    what = "by the number of models W; an EMA's is (1 + decay) / (1 - decay)"
    return f"Averages after round {content['round']}, {what}.{choice}", views, 400


def _of_sizes(label: str, place: int, sizes: Sequence[int], values: Sequence[float | None], scale: float) -> Content:
    return line(label, place, **points(sizes, (None if value is None else scale * value for value in values)))


KINDS: dict[str, Callable[[Content], Made]] = {
    "line": profile,
    "plane": plane,
    "surface": profile,
    "decomposition": decomposition,
    "flatness": flatness,
    "window": window,
    "averages": averages,
}
"""In the order of the page; how surfaces are drawn depends on them all."""
