"""The example of a federation: its commands, word for word, over real processes."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("flwr")

from safetensors.torch import load_file

from fedsash.lab.config import load
from fedsash.runs import run
from support.loopback import Loopback, free_port, loopback
from support.places import ROOT

EXAMPLE = ROOT / "examples" / "flower" / "digits"
SHORTER = ["rounds=2"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = Path(shutil.copytree(EXAMPLE, tmp_path / "digits"))
    monkeypatch.chdir(copy)
    return copy


@pytest.fixture
def flower(tmp_path: Path) -> Iterator[Loopback]:
    with loopback(tmp_path / "home") as found:
        yield found


class Reader:
    """Somebody who gives the commands of a section of the page, on ports that are free."""

    def __init__(self, flower: Loopback, folder: Path, heading: str) -> None:
        page = (folder / "README.md").read_text()
        section = page.split(f"## {heading}\n")[1].split("\n## ")[0]
        self.commands = "".join(re.findall("```sh\n(.*?)```", section, re.S)).splitlines()
        self.flower, self.folder = flower, folder
        lines = (folder / "superlinks.toml").read_text().replace(":8000", f":{flower.control}")
        (flower.home / "flwr" / "config.toml").write_text(lines.replace("keys/", f"{folder / 'keys'}/"))

    def starts(self, command: str, name: str) -> subprocess.Popen[bytes]:
        """Give a command as it is, but for its ports, and what is different in an older Flower."""
        command = command.replace(":8000", f":{self.flower.fleet}")
        command = re.sub("--port 810.", f"--port {free_port()}", command)
        if name == "superlink" and self.flower.one_port:
            command += f" --port {self.flower.fleet}"
        if not self.flower.one_port:
            command = command.replace(" --disable-runtime-dependency-installation", "")
            command = command.replace("--port ", "--clientappio-api-address 127.0.0.1:")
            if name == "superlink":
                ports = {"fleet": self.flower.fleet, "control": self.flower.control, "serverappio": self.flower.app}
                command += "".join(f" --{api}-api-address 127.0.0.1:{port}" for api, port in ports.items())
            else:
                command = re.sub(r" --ssl-(ca-)?(cert|key)file [\w./]+", "", command)
        return self.flower.start(name, *shlex.split(command), folder=self.folder)

    def finds(self, beginning: str) -> list[str]:
        """The commands of the section that begin so."""
        return [command for command in self.commands if command.startswith(beginning)]

    def federates(self) -> None:
        """Start the server, register keys, start the nodes."""
        (superlink,) = self.finds("flower-superlink")
        self.starts(superlink, "superlink")
        self.flower.wait_for(self.flower.control)
        for number, command in enumerate(self.finds("flwr supernode register")):
            assert self.starts(command, f"register{number}").wait(60) == 0, self.flower.logs()
        for number, command in enumerate(self.finds("fedsash flower node")):
            self.starts(command, f"node{number}")

    def serves(self) -> Path:
        """Train for two rounds; returns the run's folder."""
        (command,) = self.finds("fedsash flower serve")
        serve = self.starts(f"{command} --set {SHORTER[0]}", "serve")
        assert serve.wait(240) == 0, self.flower.logs()
        return self.folder / shlex.split(command)[5]


def assert_simulated(folder: Path, served: Path) -> None:
    experiment = load(folder / "experiment.toml", SHORTER)
    driver = experiment.driver()
    run(driver, experiment.rounds, out=folder / "here", progress=False, **experiment.settings(driver))
    assert rows(served) == rows(folder / "here")
    for model in ("model", "wima"):
        one, other = (load_file(place / "models" / f"{model}.safetensors") for place in (served, folder / "here"))
        assert all(one[name].equal(value) for name, value in other.items())


def rows(folder: Path) -> list[object]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_an_experiment_that_is_served_to_nodes_gives_the_numbers_of_its_simulation(
    flower: Loopback, folder: Path
) -> None:
    reader = Reader(flower, folder, "Without encryption")
    reader.federates()
    assert_simulated(folder, reader.serves())
    assert re.search(r"round 2/2 .*model .*wima", (flower.home / "serve.log").read_text())


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_replay_of_the_example_in_real_time_gives_its_bytes(flower: Loopback, folder: Path) -> None:
    Reader(flower, folder, "Without encryption").federates()
    reader = Reader(flower, folder, "Without rounds")
    served = reader.serves()
    replay, compare = reader.finds("python replay.py")[0], reader.finds("cmp")[0]
    assert reader.starts(replay.replace("python", sys.executable), "replay").wait(120) == 0, flower.logs()
    subprocess.run(shlex.split(compare), cwd=folder, check=True)
    for model in ("model", "wima"):
        one, other = (place / "models" / f"{model}.safetensors" for place in (served, folder / "runs" / "replayed"))
        assert one.read_bytes() == other.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_over_tls_only_registered_nodes_are_asked(flower: Loopback, folder: Path) -> None:
    reader = Reader(flower, folder, "With TLS and node keys")
    keys = subprocess.run(["./keys.sh"], cwd=folder, capture_output=True, text=True, check=False)
    if keys.returncode:
        pytest.skip(f"OpenSSL 3 or OpenSSH is missing: {keys.stderr[-200:]}")
    reader.federates()
    subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", "keys/stranger"], check=True)
    node = reader.finds("fedsash flower node")[0].replace("--port", "--max-retries 2 --port")
    strangers = [
        reader.starts(node.replace("keys/node0", "keys/stranger"), "stranger"),
        reader.starts(re.sub("--supernode=.*", "--supernode='--insecure --max-retries 2 --port 8100'", node), "plain"),
    ]
    assert_simulated(folder, reader.serves())
    assert all(stranger.wait(30) != 0 for stranger in strangers), flower.logs()
