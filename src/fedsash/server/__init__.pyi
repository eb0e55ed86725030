from .broadcast import (
    Broadcast as Broadcast,
)
from .evaluator import (
    Ask as Ask,
    Evaluator as Evaluator,
)
from .federation import (
    Federation as Federation,
)
from .state import (
    State as State,
)
