"""What the pages say of one's own data runs as it stands there."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Subset, TensorDataset

import fedsash as fs
from fedsash.data import FederatedData, Transform
from fedsash.evaluation import Score
from fedsash.lab.cli import main
from fedsash.lab.config import parse
from support.forms import pixels
from support.places import HOW_TO

pd = pytest.importorskip("pandas", reason="fedsash[data] is not installed")
pillow = pytest.importorskip("PIL.Image", reason="fedsash[data] is not installed")
pytestmark = pytest.mark.usefixtures("cache")

PAGE = (HOW_TO / "data.md").read_text()
LINES = re.findall(r"^\|[^|]*\| `(.*)` \|$", PAGE, re.MULTILINE)
IN_PYTHON = [line for line in LINES if line.startswith("fs.")]
IN_FILES = [line for line in LINES if line.startswith("data =")]
CODE = re.findall(r"```python\n(.*?)```", (HOW_TO / "augmentation.md").read_text(), re.DOTALL)
N = 40
OWNERS = [f"owner {i % 4}" for i in range(N)]
REVIEWS = pd.DataFrame({"text": ["a good film", "a bad film"] * 20, "stars": [5, 1] * 20, "owner": OWNERS})
HOUSES = pd.DataFrame({"size": np.linspace(0, 1, N), "price": np.linspace(1, 2, N), "owner": OWNERS})


def of_texts(language: str) -> list[str]:
    """The blocks of the page on texts."""
    return re.findall(rf"```{language}\n(.*?)```", (HOW_TO / "texts.md").read_text(), re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with the files that the page names."""
    monkeypatch.chdir(tmp_path)
    HOUSES.to_csv("houses.csv", index=False)
    REVIEWS.to_csv("reviews.csv", index=False)
    Path("book.txt").write_text("to be or not to be, " * 40)
    Path("arrays").mkdir()
    for name, array in {"x": np.ones((N, 3)), "y": np.arange(N) % 2}.items():
        np.save(f"arrays/{name}.npy", array)
    for i, image in enumerate(pixels(20, 40, 40)):
        file = Path("photos", "ab"[i % 2], f"{i}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        pillow.fromarray(image).save(file)


def held() -> dict[str, Any]:
    x = np.random.default_rng(0).random((N, 3))
    y = np.arange(N) % 2
    dataset = TensorDataset(torch.tensor(x), torch.tensor(y))
    return {
        **{"fs": fs, "x": x, "y": y, "users": OWNERS, "clients": [range(20), range(20, N)]},
        **{"x_test": x, "y_test": y, "ids": np.ones((N, 4), int), "mask": np.ones((N, 4), bool)},
        **{"dataset": dataset, "test_dataset": dataset, "frame": HOUSES, "reviews": REVIEWS},
        **{"subsets": [Subset(dataset, range(10)), Subset(dataset, range(10, N))]},
        **{"texts": REVIEWS["text"].tolist(), "tokenizer": lambda text: [ord(c) for c in text]},
    }


def test_there_are_lines_to_run() -> None:
    assert (len(IN_PYTHON), len(IN_FILES), len(CODE)) == (9, 5, 2)


@pytest.mark.parametrize("line", IN_PYTHON)
@pytest.mark.usefixtures("here")
def test_a_line_in_python_makes_federated_data(line: str) -> None:
    assert isinstance(eval(line, held()), FederatedData)


@pytest.mark.parametrize("line", IN_FILES)
@pytest.mark.usefixtures("here")
def test_a_line_of_a_file_makes_federated_data(line: str) -> None:
    table = {**tomllib.loads(line), "partition": {"name": "iid", "clients": 2}}
    assert isinstance(parse(table).federated_data(), FederatedData)


def finished(table: dict[str, Any]) -> Score:
    """The test metrics of an experiment after twenty rounds."""
    engine = {"kind": "sequential", "workers": 1, "threads": 1}
    with parse({**table, "engine": engine}, own_code=True).federation() as federation:
        state = federation.start()
        for _ in range(20):
            state, _ = federation.round(state)
        return federation.evaluate(state)[0]


@pytest.mark.usefixtures("here")
def test_the_model_for_texts_learns_the_reviews_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    code, file = (of_texts(kind)[0] for kind in ("python", "toml"))
    monkeypatch.setitem(sys.modules, "mine", mine := ModuleType("mine"))
    exec(code, vars(mine))
    assert finished(tomllib.loads(file))["accuracy"] == 1.0


@pytest.mark.full
@pytest.mark.usefixtures("here")
def test_next_tokens_are_learned_with_the_model_that_the_page_names() -> None:
    table = tomllib.loads(of_texts("toml")[1])
    assert table["model"]["name"] == "shakespeare_lstm"
    partition = {"name": "iid", "clients": 2}
    assert finished({**table, "partition": partition, "local": {"lr": 1.0}})["perplexity"] < 60  # of 257 bytes


@pytest.mark.parametrize("code", CODE)
def test_the_transforms_of_the_page_fit_their_data(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", mine := ModuleType("mine"))
    exec(code, names := vars(mine))
    transform: Transform = names.get("transform") or names["Noise"]()
    images = torch.from_numpy(pixels(20)) if "transform" in names else torch.rand(20, 3)
    transform.fits(images, torch.zeros(20))
    transform.try_out(images)


def test_a_model_is_used_on_new_rows_without_the_data_of_its_training(
    here: None, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of the training set itself, in another order of the columns: what the model says of them in the run."""
    rng = np.random.default_rng(0)
    ill = np.arange(N) % 2
    table = pd.DataFrame({"age": 50 + 20 * ill + rng.normal(size=N), "sex": rng.integers(0, 2, N), "hospital": OWNERS})
    table.assign(disease=np.where(ill, "flu", "none")).to_csv("patients.csv", index=False)
    table[["hospital", "sex", "age"]].to_csv("new.csv", index=False)
    data = 'name = "table", path = "patients.csv", label = "disease", user = "hospital", standardise = true, test = 0.0'
    window = '{ name = "window", size = 20 }'
    users = 'partition.name = "users"\nsampling.fraction = 1.0\n'
    Path("e.toml").write_text(f"rounds = 5\ndata = {{ {data} }}\naverages.window20 = {window}\n{users}")
    assert main(["run", "e.toml", "--out", "runs/patients", "--no-progress"]) == 0
    (code,) = re.findall(r"```python\n(.*?)```", (HOW_TO / "predict.md").read_text(), re.DOTALL)
    capsys.readouterr()
    Path("patients.csv").rename("elsewhere.csv")
    exec(code, {})
    said = capsys.readouterr().out
    Path("elsewhere.csv").rename("patients.csv")
    run = fs.open_run("runs/patients")
    samples = run.samples("train")
    with torch.no_grad():
        answers = run.module("window20")(samples.x).argmax(1).tolist()
    names = run.federation.clients.problem.label_names
    assert said == f"{[names[i] for i in answers]}\n" and set(answers) == {0, 1}
