"""What the server does. Without the lines that name `fs` this is a plain Flower app."""

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

import fedsash as fs
from quickstart import task

app = ServerApp()


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    net = task.model()
    net.load_state_dict(arrays.to_torch_state_dict())
    return MetricRecord({"accuracy": task.accuracy(net, *task.samples(slice(1400, None)))})


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=0.2, fraction_evaluate=0.0)
    strategy = fs.flower.Averaged(strategy, {"wima": fs.Window(10), "ema": fs.EMA(0.8)})
    initial = ArrayRecord(task.model().state_dict())
    strategy.start(grid, initial, num_rounds=context.run_config["num-server-rounds"], evaluate_fn=evaluate)
