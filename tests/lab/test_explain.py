"""`fedsash explain` says of one's own round what this round then does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedsash.client.messages import Reply
from fedsash.lab.cli import main
from fedsash.lab.config import ConfigError, Experiment, parse
from fedsash.lab.explain import WIDTH, Explanation, Item, explain
from fedsash.network.messages import lengths
from support.by_default import some
from support.places import ROOT

SMALL: dict[str, Any] = {
    "rounds": 8,
    "partition": {"name": "dirichlet", "clients": 12, "alpha": 0.5},
    "model": {"name": "mlp", "hidden": [6]},
    "local": {"lr": 0.1, "batch": 8, "epochs": 2},
    "sampling": {"name": "uniform", "count": 4},
    "engine": {"kind": "sequential", "workers": 1, "threads": 1, "compile": False},
    "device": "cpu",
}
WINDOW = {"w3": {"name": "window", "size": 3}}
CASES: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "scaffold and a window": {"method": {"name": "scaffold"}, "averages": WINDOW},
    "ima": {
        "averages": WINDOW,
        "broadcast": {"average": "w3", "start": 5},
        "local": SMALL["local"] | {"schedule": {"name": "mild", "start": 4, "decay": 1.0}},
        "server": {"name": "adam"},
    },
    "private": {
        "method": {"name": "fedavg", "weighting": "uniform"},
        "aggregation": {"name": "private", "clip": 0.5, "noise": 0.0, "adaptive": {}},
        "sampling": {"name": "poisson", "rate": 0.4},
    },
    "personal": {
        "personal": {"part": "classifier", "alone": 1},
        "evaluation": {"held_out": 0.2},
        "local": SMALL["local"] | {"optimiser": {"momentum": 0.5}, "keep_moments": True},
        "averages": {"ema": {"name": "ema", "decay": 0.5}},
    },
    "a probe": {"method": {"name": "mime"}},
    "fednova": {"aggregation": {"name": "fednova"}, "server": {"momentum": 0.5}},
    "fedgma of the code": {"aggregation": {"name": "fedgma", "mask": "code"}},
}


def experiment(case: str) -> Experiment:
    return parse(SMALL | CASES[case])


def items(found: Explanation, title: str, act: str, at: str) -> dict[str, Item]:
    """The vectors of a step, by their names."""
    (step,) = [step for step in found.steps if step.title == title]
    return {item.name: item for item in step.items if item.act == act and item.at.startswith(at)}


def shapes(vectors: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in vectors.items()}


def of_one(vectors: Any) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape[1:]) for name, value in vectors.items()}


@pytest.mark.parametrize("case", some(CASES, "ima"))
def test_a_round_sends_and_keeps_what_was_said_of_it(case: str) -> None:
    found = explain(experiment(case))
    with experiment(case).federation() as f:
        state = f.start()
        request = f.ask(state)
        sent = request.server_state
        if request.job == "probe":
            probed = f.collect(request)
            request = f.ask(state, probed=probed)
            sent = request.server_state
        replies = [reply for reply in f.executor.work(request) if isinstance(reply, Reply)]
        after, report = f.round(f.start())

    down = items(found, "Send", "sent", "to each client")
    assert shapes(down) == {"model": (f.layout.size - f.sharing.own_size,)} | shapes(sent)
    assert {item.copies for item in down.values()} == {len(request.ids)}
    assert shapes(items(found, "Upload", "sent", "from each client")) == of_one(replies[0].upload)
    assert shapes(items(found, "Client state", "kept", "of each client")) == of_one(replies[0].client_state)
    remembered = "by the server, from round to round"
    assert shapes(items(found, "Method", "kept", remembered)) == shapes(after.server_state)
    assert shapes(items(found, "Server optimiser", "kept", remembered)) == shapes(after.optimiser)
    assert shapes(items(found, "Rule", "kept", remembered)) == shapes(after.aggregation)
    assert shapes(items(found, "Server optimiser", "kept", "by the server: the new model")) == {"model": after.w.shape}

    text = " ".join(found.text().split())
    steps = [int(step) for reply in replies for step in reply.effort.steps]
    span = f"{min(steps)}" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)}"
    assert f"takes {span} step{'s' * (max(steps) > 1)}, on batches of up to 8 samples" in text
    assert f"{len(report.clients)} of 12 clients" in text
    for client in request.ids:
        assert f" {client}" in text.partition("They hold")[0]


@pytest.mark.parametrize("case", some(CASES, "scaffold and a window", "a probe", "fedgma of the code"))
def test_the_bytes_are_those_of_the_messages_on_a_simulated_network(case: str) -> None:
    found = explain(experiment(case))
    messages = lengths(experiment(case).federation().training(), None)
    down = messages.train.down + (messages.probe.down if messages.probe else 0)
    up = messages.train.up + (messages.probe.up if messages.probe else 0)
    sent = [item for step in found.steps for item in step.items if item.act == "sent"]
    assert sum(item.bytes for item in sent if item.at.startswith("to each client")) == down
    assert sum(item.bytes for item in sent if item.at.startswith("from each client")) == up


@pytest.mark.parametrize("case", some(CASES, "ima", "personal", "a probe"))
def test_the_text_has_ten_steps_in_lines_of_at_most_100_letters(case: str) -> None:
    lines = explain(experiment(case)).text().splitlines()
    assert [line.split()[0] for line in lines if line[:2].strip().isdigit()] == [str(i) for i in range(1, 11)]
    assert max(map(len, lines)) <= WIDTH == 100
    assert sum(line.startswith("   decided by: ") for line in lines) == 10


def test_it_follows_imas_feedback_from_round_to_round() -> None:
    ima = experiment("ima")
    said = {number: " ".join(explain(ima, number).text().split()) for number in (5, 6)}
    assert "Clients receive the model after round 4; from round 6 on, the average w3 in its place." in said[5]
    assert "Clients receive the average w3 in place of the model, since 5 rounds are over." in said[6]
    assert "In this round the learning rate is 0.1." in said[5]
    assert "In this round the learning rate is 0.097." in said[6]
    assert "w3 is fed back to the clients" in said[6]


def test_it_says_where_a_window_takes_part_and_how_much_it_keeps() -> None:
    late = parse(SMALL | {"averages": {"w3": {"name": "window", "size": 3, "start": 4, "part": "classifier"}}})
    found = explain(late, 3)
    assert "w3, of the kind window, does not take the part classifier of the model after round 3." in found.text()
    assert items(found, "Averages", "kept", "by the server, at most")["w3: models"].shape == (3, 70)
    assert "takes the part classifier of the model after round 4." in explain(late, 4).text()


def test_a_personal_part_is_neither_sent_nor_uploaded() -> None:
    found = explain(experiment("personal"))
    text = " ".join(found.text().split())
    assert "Another 70 numbers of the model stay with each client." in text
    assert "First the part that stays with a client trains alone" in text
    assert items(found, "Client state", "kept", "of each client")["own"].copies == 12


def test_the_keys_that_decide_have_the_values_of_the_file() -> None:
    keys = {step["title"]: step["keys"] for step in explain(experiment("ima")).record()}
    assert keys["Send"]["broadcast"] == {"average": "w3", "start": 5, "order": "after", "patience": 3}
    assert keys["Choose clients"]["sampling"] == {"name": "uniform", "count": 4, "dropout": 0.0, "trace": ""}
    assert keys["Choose clients"]["partition_seed"] is None
    assert keys["Server optimiser"]["server"]["lr"] == 0.01  # a default
    assert keys["Train"]["local"]["schedule"] == {"name": "mild", "start": 4, "decay": 1.0}
    assert keys["Averages"]["averages"] == {"w3": {"name": "window", "size": 3}}


def test_a_round_without_clients_is_explained_by_all_of_them() -> None:
    nobody = parse(SMALL | {"sampling": {"name": "fixed", "rounds": [[], [1]]}})
    text = " ".join(explain(nobody).text().split())
    assert "In this round none of 12 clients; what follows holds for any of them." in text
    assert "Down to clients go 0 B, and 0 B come up." in text


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"network": {}, "scheduler": {"name": "fedbuff"}}, "scheduler: fedbuff moves the server without rounds"),
        (
            {"network": {"learning": False, "bytes": 9, "clients": {"count": 3}}},
            "network.learning = false: nobody trains",
        ),
    ],
)
def test_what_has_no_rounds_is_refused(changes: dict[str, Any], line: str) -> None:
    without = {key: value for key, value in SMALL.items() if key not in ("sampling", "engine")}
    with pytest.raises(ConfigError, match=line):
        explain(parse(without | changes))


def test_the_command_prints_text_or_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = [str(ROOT / "examples" / "digits.toml"), "--set", "method.name=scaffold"]
    assert main(["explain", *file, "--round", "2", "--set", "sampling.count=3"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("Round 2 of 300, with 3 of 100 clients.")
    assert main(["explain", *file, "--json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    assert [step["title"] for step in steps][:3] == ["Choose clients", "Send", "Train"]
    assert [item["name"] for item in steps[3]["items"]] == ["delta", "c"]
    assert main(["explain", *file, "--round", "301"]) == 2
    assert "--round = 301: must be at least 1 and at most rounds = 300" in capsys.readouterr().err


def test_a_federation_of_ones_own_is_decided_by_the_function_that_makes_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(["explain", "examples/own/federation.toml", "--own-code"]) == 0
    assert 'decided by: built_by = "' in capsys.readouterr().out
