# The names of daily use; the others are in the modules. `__init__.py` reads this file: a name is added here, once.
from . import (
    averages as averages,
    data as data,
    engines as engines,
    errors as errors,
    evaluation as evaluation,
    extend as extend,
    flower as flower,
    methods as methods,
    models as models,
    network as network,
    optimisers as optimisers,
    partitions as partitions,
    runs as runs,
    sampling as sampling,
    schedules as schedules,
    tasks as tasks,
    testing as testing,
)
from .averages import (
    EMA as EMA,
    SWA as SWA,
    Tracker as Tracker,
    Window as Window,
)
from .averages.average_map import (
    average_map as average_map,
)
from .averages.checkpoints import (
    merge_checkpoints as merge_checkpoints,
)
from .client import (
    LocalTraining as LocalTraining,
    SGD as SGD,
)
from .data import (
    FederatedData as FederatedData,
    Samples as Samples,
    Dirichlet as Dirichlet,
    IID as IID,
)
from .engines import (
    LocalEngine as LocalEngine,
    RayEngine as RayEngine,
)
from .evaluation import (
    Evaluation as Evaluation,
    History as History,
    Score as Score,
)
from .lab.config import (
    Experiment as Experiment,
    load as load,
    parse as parse,
)
from .lab.studies.opened import (
    open_run as open_run,
)
from .methods import (
    FedAvg as FedAvg,
    FedDyn as FedDyn,
    FedMoSWA as FedMoSWA,
    FedProx as FedProx,
    FedSWA as FedSWA,
    Privacy as Privacy,
    Private as Private,
    Scaffold as Scaffold,
)
from .methods.sampling import (
    Uniform as Uniform,
)
from .methods.server_optimisers import (
    FedAdam as FedAdam,
    ServerSGD as ServerSGD,
)
from .runs import (
    Callback as Callback,
    Checkpoint as Checkpoint,
    Fork as Fork,
    Result as Result,
    plot_clients as plot_clients,
    resume as resume,
    run as run,
)
from .runs.callbacks import (
    EarlyStopping as EarlyStopping,
    ExportBest as ExportBest,
)
from .server import (
    Broadcast as Broadcast,
    Federation as Federation,
)
from .settings.errors import (
    FedsashError as FedsashError,
    RunError as RunError,
    SettingError as SettingError,
)
from .tasks import (
    Classification as Classification,
)
from .vector.sharing import (
    Personal as Personal,
)

__version__: str
