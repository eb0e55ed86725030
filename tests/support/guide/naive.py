"""FedVARP in plain NumPy: its class goes into `support/naive/methods.py`, before `KINDS`."""

from support.naive.methods import Array, FedAvg


class FedVARP(FedAvg):
    weighting, server_state, client_state = "uniform", ("y",), ("y",)

    def leave(self, i: int, y: Array, rates: list[float]) -> Array:
        change = y - self.x - self.y_i[i]
        self.y_i[i] = y - self.x
        return change

    def server(self, mean: Array, up: Array) -> Array:
        update = self.y + up.mean(0)
        self.y = self.y + up.sum(0) / self.N
        return update
