from ..vector.arrays import (
    Vectors as Vectors,
)
from ..vector.pieces import (
    Pieces as Pieces,
)
from .average_map import (
    AverageMap as AverageMap,
    WindowValue as WindowValue,
)
from .base import (
    Average as Average,
    Retention as Retention,
    check_names as check_names,
)
from .bema import (
    BEMA as BEMA,
)
from .ema import (
    EMA as EMA,
)
from .observers import (
    AverageStates as AverageStates,
    Observer as Observer,
    Observers as Observers,
)
from .power_ema import (
    PowerEMA as PowerEMA,
)
from .registry import (
    AVERAGES as AVERAGES,
)
from .swa import (
    SWA as SWA,
)
from .tracker import (
    Tracker as Tracker,
)
from .window import (
    Window as Window,
)
