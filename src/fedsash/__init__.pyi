# What users import, room by room. `__init__.py` reads this file: here is the only place where a name is added.

from . import (
    aggregation as aggregation,
    averages as averages,
    data as data,
    evaluation as evaluation,
    exchange as exchange,
    executors as executors,
    flower as flower,
    local as local,
    methods as methods,
    models as models,
    network as network,
    sampling as sampling,
    schedules as schedules,
    servers as servers,
    tasks as tasks,
    testing as testing,
)
from .aggregation import (
    Adaptive as Adaptive,
    Aggregation as Aggregation,
    FedGMA as FedGMA,
    FedNova as FedNova,
    Privacy as Privacy,
    Private as Private,
    WeightedMean as WeightedMean,
)
from .averages import (
    EMA as EMA,
    SWA as SWA,
    Average as Average,
    Tracker as Tracker,
    Window as Window,
)
from .settings.errors import (
    DataError as DataError,
    FedsashError as FedsashError,
    LibraryError as LibraryError,
    ModelError as ModelError,
    RunError as RunError,
    SettingError as SettingError,
    WorkerError as WorkerError,
)
from .basics.layout import (
    Layout as Layout,
)
from .basics.sharing import (
    Personal as Personal,
)
from .broadcast import (
    Broadcast as Broadcast,
)
from .data import (
    CIFAR10 as CIFAR10,
    CIFAR100 as CIFAR100,
    FEMNIST as FEMNIST,
    IID as IID,
    MNIST as MNIST,
    PACS as PACS,
    ClassPairs as ClassPairs,
    DigitFive as DigitFive,
    Digits as Digits,
    Dirichlet as Dirichlet,
    DirichletClasses as DirichletClasses,
    DirichletReuse as DirichletReuse,
    Domains as Domains,
    FashionMNIST as FashionMNIST,
    FederatedData as FederatedData,
    Flwr as Flwr,
    Images as Images,
    Inputs as Inputs,
    Landmarks as Landmarks,
    NpyFiles as NpyFiles,
    OwnTransform as OwnTransform,
    Pachinko as Pachinko,
    Quantity as Quantity,
    Samples as Samples,
    Shakespeare as Shakespeare,
    Shards as Shards,
    Source as Source,
    Table as Table,
    Texts as Texts,
    TinyImageNet as TinyImageNet,
    Transform as Transform,
    Users as Users,
    draws as draws,
    next_tokens as next_tokens,
    tokenise as tokenise,
)
from .evaluation import (
    Evaluation as Evaluation,
    FineTuning as FineTuning,
    History as History,
    Score as Score,
)
from .exchange import (
    Executor as Executor,
    Reply as Reply,
    Request as Request,
)
from .executors import (
    Engine as Engine,
    LocalEngine as LocalEngine,
    RayEngine as RayEngine,
)
from .executors.clients import (
    Clients as Clients,
)
from .federation import (
    Federation as Federation,
)
from .runs.callbacks import (
    EarlyStopping as EarlyStopping,
    ExportBest as ExportBest,
    MLflow as MLflow,
    TensorBoard as TensorBoard,
    WandB as WandB,
)
from .lab.config import (
    ConfigError as ConfigError,
    Experiment as Experiment,
    load as load,
    parse as parse,
)
from .runs import (
    BestRound as BestRound,
    Callback as Callback,
    Checkpoint as Checkpoint,
    Fork as Fork,
    LiveRun as LiveRun,
    ModelResult as ModelResult,
    Result as Result,
    RunningSums as RunningSums,
    UnknownModelError as UnknownModelError,
    plot_clients as plot_clients,
    resume as resume,
    run as run,
)
from .lab.studies.opened import (
    open_run as open_run,
)
from .local import (
    SGD as SGD,
    Adagrad as Adagrad,
    Adam as Adam,
    AdamW as AdamW,
    LocalTraining as LocalTraining,
    Optimiser as Optimiser,
    RMSprop as RMSprop,
)
from .methods import (
    EWC as EWC,
    AdaBest as AdaBest,
    FedACG as FedACG,
    FedASAM as FedASAM,
    FedAvg as FedAvg,
    FedCM as FedCM,
    FedDyn as FedDyn,
    FedFA as FedFA,
    FedLESAM as FedLESAM,
    FedMoSWA as FedMoSWA,
    FedProx as FedProx,
    FedSAM as FedSAM,
    FedSWA as FedSWA,
    LocalRun as LocalRun,
    Method as Method,
    Mime as Mime,
    MimeLite as MimeLite,
    MoFedSAM as MoFedSAM,
    RoundMean as RoundMean,
    Scaffold as Scaffold,
    Step as Step,
)
from .models import (
    group_norm as group_norm,
)
from .sampling import (
    FixedClients as FixedClients,
    Function as Function,
    Poisson as Poisson,
    Sampling as Sampling,
    Uniform as Uniform,
    Weighted as Weighted,
)
from .schedules import (
    Chained as Chained,
    Constant as Constant,
    Cosine as Cosine,
    Cyclic as Cyclic,
    Exponential as Exponential,
    Flat as Flat,
    LocalSchedule as LocalSchedule,
    Mild as Mild,
    SawTooth as SawTooth,
    Schedule as Schedule,
    StepDecay as StepDecay,
    Warmup as Warmup,
)
from .servers import (
    FedAdagrad as FedAdagrad,
    FedAdam as FedAdam,
    FedYogi as FedYogi,
    Server as Server,
    ServerSGD as ServerSGD,
)
from .state import (
    State as State,
)
from .tasks import (
    Classification as Classification,
    NextCharacter as NextCharacter,
)

__version__: str
