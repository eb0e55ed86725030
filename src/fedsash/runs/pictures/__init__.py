"""Pictures. Each is described once, as plain numbers, and drawn for papers and on the HTML page."""

from .picture import Axis, Bars, Dots, Field, Line, Panel, Picture, Points, Rule, Spans
from .styles import Style, look

__all__ = ["Axis", "Bars", "Dots", "Field", "Line", "Panel", "Picture", "Points", "Rule", "Spans", "Style", "look"]
