"""Fine-tuning with LoRA and AdamW: clients train adapters of a small GPT-2, on the roles of Shakespeare's plays.

    pip install "fedsash[vit]"
    python examples/tasks/lora.py data/shakespeare runs/lora
    python examples/tasks/lora.py data/shakespeare runs/lora --clients adamw --seeds 0
    python examples/tasks/lora.py data/shakespeare runs/lora --clients adamw --rounds 10 --rates 0.001 0.003 0.01

The roles with most text train the model at one place, and it is saved in runs/lora/pretrained. Other roles are the
clients. They train the adapters only, so these are all that is sent and averaged. Any causal model of transformers fits
in: put its folder in the place of runs/lora/pretrained, and token ids of its tokenizer in the place of characters.

With `--rates` it compares learning rates instead, on a tenth of each client's samples, on which no client then trains.
"""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev

import peft
import torch
import transformers
from torch import nn
from torch.nn import functional as F

import fedsash as fs

PRETRAINING = 20
"""So many roles, those with most text, train the model at one place."""

SMALLEST = 10
"""A client has at least so many sequences of 80 characters."""

CLIENTS = {
    "sgd": fs.LocalTraining(lr=0.3, batch=8, steps=4),
    "adamw": fs.LocalTraining(lr=0.01, batch=8, steps=4, optimiser=fs.optimisers.AdamW()),
    "adamw_kept": fs.LocalTraining(lr=0.01, batch=8, steps=4, optimiser=fs.optimisers.AdamW(), keep_moments=True),
}

AVERAGES = {"window5": fs.Window(5), "window20": fs.Window(20), "ema": fs.EMA(0.9)}


def roles(path: Path) -> tuple[fs.Samples, fs.FederatedData]:
    """The samples of the roles with most text, and those of others as a federation, each role a client."""
    source = fs.data.Shakespeare(str(path)).load()
    train = source.train
    test = source.test
    assert test is not None and train.user is not None and test.user is not None  # Shakespeare's plays have both
    counts = train.user.bincount()
    first = torch.zeros(len(counts), dtype=torch.bool)
    first[counts.argsort(descending=True)[:PRETRAINING]] = True
    others = ~first & (counts >= SMALLEST)
    own = others[train.user]
    scored = others[test.user]
    task = fs.tasks.NextToken(padding=0)
    tested = (test.x[scored], test.y[scored])
    data = fs.FederatedData.from_arrays(
        train.x[own], train.y[own], users=train.user[own], test=tested, task=task, classes=source.classes
    )
    return train[first[train.user]], data


def pretrain(train: fs.Samples, tokens: int, folder: Path, epochs: int = 6) -> None:
    """Train a small GPT-2 with PyTorch, and save it as transformers does."""
    torch.manual_seed(0)
    sizes = {"vocab_size": tokens, "n_positions": 80, "n_embd": 64, "n_layer": 2, "n_head": 4}
    plain = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **plain, use_cache=False))
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.003)
    loss = torch.zeros(())
    for epoch in range(epochs):
        for rows in torch.randperm(len(train)).split(32):
            loss = F.cross_entropy(model(train.x[rows]).logits.movedim(-1, 1), train.y[rows], ignore_index=0)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        print(f"pre-training: epoch {epoch + 1} of {epochs}, loss {loss.item():.3f}")
    model.save_pretrained(folder)


def adapted(folder: Path, seed: int) -> nn.Module:
    """The saved model, frozen, with adapters `B A` of rank 4 beside every linear layer of its blocks."""
    torch.manual_seed(seed)
    model = transformers.GPT2LMHeadModel.from_pretrained(folder)
    layers = ["c_attn", "c_proj", "c_fc"]
    return peft.get_peft_model(model, peft.LoraConfig(r=4, lora_alpha=8, target_modules=layers, fan_in_fan_out=True))


def federation(data: fs.FederatedData, folder: Path, clients: str, seed: int) -> fs.Federation:
    return fs.Federation(
        adapted(folder, seed),
        data,
        local=CLIENTS[clients],
        averages=AVERAGES,
        evaluation=fs.Evaluation(every=60, last=5),
        seed=seed,
    )


def compare(f: fs.Federation, rates: Sequence[float], rounds: int) -> str:
    """Accuracies in per cent after so many rounds with each learning rate, on held-out samples of the clients."""
    lines = []
    for rate in rates:
        evaluation = fs.Evaluation(every=rounds, last=1, held_out=0.1)
        result = fs.run(replace(f, local=replace(f.local, lr=rate), evaluation=evaluation), rounds)
        found = {score.model: score["accuracy"] for score in result.history.scores("held_out")}
        lines.append(f"lr = {rate:<8g}{100 * found['model']:.2f} %")
    return "\n".join(lines)


def table(clients: str, runs: list[dict[str, float]]) -> str:
    """Accuracies in per cent: mean over the seeds, and the deviation if there are several."""
    lines = []
    for model in runs[0]:
        values = [100 * run[model] for run in runs]
        spread = f" ± {stdev(values):.2f}" if len(values) > 1 else ""
        lines.append(f"{clients:<12}{model:<12}{mean(values):.2f} %{spread}")
    return "\n".join(lines)


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--rates", nargs="+", type=float)
    a = parser.parse_args(given)
    train, data = roles(a.data)
    if not (a.out / "pretrained").exists():
        pretrain(train, data.classes, a.out / "pretrained")
    if a.rates:
        print(compare(federation(data, a.out / "pretrained", a.clients[0], a.seeds[0]), a.rates, a.rounds))
        return
    for clients in a.clients:
        found = []
        for seed in a.seeds:
            f = federation(data, a.out / "pretrained", clients, seed)
            start = {"pretrained": f.evaluate(f.start())[0]["accuracy"]}
            result = fs.run(f, a.rounds, out=a.out / f"{clients}-{seed}")
            means = {name: result[name].last_mean for name in ("model", *AVERAGES)}
            found.append(start | {name: value for name, value in means.items() if value is not None})
        print(table(clients, found))


if __name__ == "__main__":
    main()
