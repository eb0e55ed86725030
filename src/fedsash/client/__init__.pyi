from .evaluator import (
    ClientEvaluator as ClientEvaluator,
)
from .evaluator import fine_tuned as fine_tuned
from .memory import (
    ClientMemory as ClientMemory,
)
from .optimisers import (
    Adagrad as Adagrad,
    Adam as Adam,
    AdamW as AdamW,
    OPTIMISERS as OPTIMISERS,
    Optimiser as Optimiser,
    RMSprop as RMSprop,
    SGD as SGD,
)
from .plan import (
    RoundPlan as RoundPlan,
    RoundPlans as RoundPlans,
)
from .settings import (
    LocalTraining as LocalTraining,
)
from .steps import (
    Batch as Batch,
    Draws as Draws,
    Gradient as Gradient,
    StepInputs as StepInputs,
)
from .trainer import (
    Trainer as Trainer,
)
