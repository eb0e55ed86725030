from .callback import (
    Callback as Callback,
    LiveRun as LiveRun,
)
from .callbacks import (
    EarlyStopping as EarlyStopping,
    ExportBest as ExportBest,
    MLflow as MLflow,
    TensorBoard as TensorBoard,
    Trackio as Trackio,
    WandB as WandB,
)
from .drawn import (
    plot_clients as plot_clients,
)
from .driver import (
    Driver as Driver,
)
from .forks import (
    Fork as Fork,
)
from .models import (
    UnknownModelError as UnknownModelError,
)
from .result import (
    BestRound as BestRound,
    ModelResult as ModelResult,
    Result as Result,
)
from .running_sums import (
    RunningSums as RunningSums,
)
from .settings import (
    Checkpoint as Checkpoint,
)
from .start import (
    resume as resume,
    run as run,
)
