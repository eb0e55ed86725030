"""What a node does: it trains the model that it receives on its own samples, and evaluates one."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart import task

app = ClientApp()


def received(message: Message, context: Context):
    net = task.model()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    return net, *task.shard(context.node_config["partition-id"], context.node_config["num-partitions"])


@app.train()
def train(message: Message, context: Context) -> Message:
    net, x, y = received(message, context)
    metrics = MetricRecord({"train-loss": task.train(net, x, y), "num-examples": len(y)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    net, x, y = received(message, context)
    metrics = MetricRecord({"accuracy": task.accuracy(net, x, y), "num-examples": len(y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
