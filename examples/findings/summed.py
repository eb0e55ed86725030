"""The method of summed.toml: SCAFFOLD whose server adds its clients' variates up, and does not average them."""

from dataclasses import dataclass

from torch import Tensor

from fedsash.methods import Scaffold
from fedsash.methods.base import RoundMean
from fedsash.vector.arrays import Vectors


@dataclass(frozen=True)
class SummedScaffold(Scaffold):
    """SCAFFOLD with c <- c + sum over the round's clients of (c_i+ - c_i), without the paper's factor 1/N.

    So c is N times the mean of all c_i. A step then goes by eta along g_i - c_i, and by N * eta along the mean of all
    clients' last gradients.
    """

    def server_update(self, received: RoundMean) -> tuple[Tensor, Vectors]:
        return received.update, {"c": received.server_state["c"] + received.clients * received.mean["c"]}
