"""All averages by their names in experiment files, in the order in which they are listed."""

from __future__ import annotations

from ..settings.setting import in_order
from .base import Average
from .bema import BEMA
from .ema import EMA
from .power_ema import PowerEMA
from .swa import SWA
from .window import Window

AVERAGES = in_order(Average, EMA, SWA, BEMA, PowerEMA, Window)
