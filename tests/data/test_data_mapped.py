"""Arrays in files that are mapped into memory: the bytes of a run on the same arrays in memory, and no copy of them."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsash import Evaluation, FederatedData, Federation, LocalTraining, Scaffold, SettingError, run
from fedsash.data import IID, NpyFiles, OwnTransform, Transform, Users
from fedsash.data.inputs import Inputs
from fedsash.data.mapped import MappedTensor
from fedsash.engines import Engine
from fedsash.errors import DataError
from fedsash.lab.config import ConfigError, load, parse
from fedsash.methods.sampling import Uniform
from fedsash.tasks import MultiLabel, Segmentation, Task
from support.by_default import by_default
from support.choices import chequered
from support.worlds import ENGINES, SEQUENTIAL, VECTORISED, WORKERS, after, identical

N = 60
KINDS = {
    "images": np.random.default_rng(0).integers(0, 256, (N, 6, 6, 3), dtype=np.uint8),
    "grey images": np.random.default_rng(0).integers(0, 256, (N, 6, 6), dtype=np.uint8),
    "float64": np.random.default_rng(0).standard_normal((N, 12)),
    "float32": np.random.default_rng(0).standard_normal((N, 12), dtype=np.float32),
    "float16": np.random.default_rng(0).standard_normal((N, 12)).astype(np.float16),
}
Y = np.random.default_rng(1).integers(0, 3, N)


def in_file(folder: Path, x: np.ndarray) -> Any:
    np.save(folder / "x.npy", x)
    return np.load(folder / "x.npy", mmap_mode="r")


def data_of(x: Any, y: Any = Y, **settings: Any) -> FederatedData:
    return FederatedData.from_arrays(x, y, partition={"name": "iid", "clients": 5}, test=(x[:7], y[:7]), **settings)


def federation(data: FederatedData, engine: Engine) -> Federation:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.LazyLinear(3))
    model(data.transform.inputs(data.train.x[:2], torch.float32))
    settings: dict[str, Any] = {"local": LocalTraining(lr=0.1, batch=3, epochs=2), "sampling": Uniform(3)}
    evaluation = Evaluation(held_out=0.2, clients=True)
    return Federation(model, data, Scaffold(), engine=engine, evaluation=evaluation, device="cpu", **settings)


# It stays in its file.


def stays(x: object) -> bool:
    return isinstance(x, MappedTensor)


@pytest.mark.parametrize("kind", KINDS)
def test_an_array_that_numpy_has_mapped_stays_in_its_file_until_a_worker_or_an_actor_has_it(
    tmp_path: Path, kind: str
) -> None:
    data = data_of(in_file(tmp_path, KINDS[kind]))
    with federation(data, SEQUENTIAL) as world:
        train = world.training_data.train
        test = world.training_data.test
        assert test is not None and stays(train.x) and stays(test.x)
        sent = pickle.dumps(train.x)
        assert len(sent) < 1000
        again = pickle.loads(sent)
        assert stays(again) and torch.equal(again, train.x)


def test_what_was_changed_in_memory_alone_is_kept(tmp_path: Path) -> None:
    """An array in the mode "c" never writes to its file, which has other numbers then."""
    in_file(tmp_path, KINDS["float32"])
    x = np.load(tmp_path / "x.npy", mmap_mode="c")
    x += 1
    for part in (x, x[3:40]):
        train = data_of(part, Y[: len(part)]).train.x
        assert isinstance(train, Tensor) and torch.equal(train, torch.from_numpy(np.array(part)))


def test_a_file_without_a_name_is_read_into_memory(tmp_path: Path) -> None:
    x = in_file(tmp_path, KINDS["float32"])
    (tmp_path / "x.npy").unlink()
    train = data_of(x).train.x
    assert type(train) is Tensor and torch.equal(train, torch.from_numpy(KINDS["float32"]))


def test_a_deep_copy_is_mapped_too(tmp_path: Path) -> None:
    data = data_of(in_file(tmp_path, KINDS["float32"]))
    again = copy.deepcopy(data).train.x
    assert stays(again) and torch.equal(again, data.train.x)  # type: ignore[arg-type]


def test_what_is_made_of_it_is_a_plain_tensor(tmp_path: Path) -> None:
    x = data_of(in_file(tmp_path, KINDS["float32"])).train.x
    assert isinstance(x, Tensor)
    for made in (x[:3], x[torch.tensor([1, 2])], x.index_select(0, torch.tensor([1])), 2 * x, x.double()):
        assert type(made) is Tensor


@pytest.mark.parametrize("part", [slice(None), slice(10, None), slice(20, 30)], ids=str)
def test_a_part_of_a_mapped_array_is_that_part(tmp_path: Path, part: slice) -> None:
    whole = KINDS["float64"]
    x = FederatedData.from_arrays(in_file(tmp_path, whole)[part], Y[part], [[0]]).train.x
    assert stays(x) and np.array_equal(pickle.loads(pickle.dumps(x)), whole[part])


def test_what_is_written_to_it_does_not_reach_the_file(tmp_path: Path) -> None:
    x = data_of(in_file(tmp_path, KINDS["float32"])).train.x
    assert isinstance(x, Tensor)
    x[:5].zero_()
    assert np.array_equal(np.load(tmp_path / "x.npy"), KINDS["float32"])


@pytest.mark.parametrize(
    "array", [np.ones((N, 4), dtype=np.int32), np.ones((4, N), dtype=np.float32).T], ids=["another type", "columns"]
)
def test_what_does_not_fit_is_read_into_memory(tmp_path: Path, array: np.ndarray) -> None:
    x = data_of(in_file(tmp_path, array)).train.x
    assert isinstance(x, Tensor) and type(x) is Tensor and np.array_equal(x, array)


def test_a_number_that_is_not_finite_is_found_wherever_it_is(tmp_path: Path) -> None:
    for row, value in ((0, np.nan), (7, np.inf), (N - 1, -np.inf)):
        x = KINDS["float32"].copy()
        x[row, 3] = value
        with pytest.raises(SettingError, match=rf"^FederatedData.train.x\[{row}\] = 'nan or infinite'"):
            data_of(in_file(tmp_path, x))


# The same runs.


@pytest.mark.parametrize(
    "kind, engine", by_default(chequered(KINDS, ENGINES, of=3), lambda *one: one != ("float16", "workers"))
)
def test_a_run_has_the_bytes_of_one_on_arrays_in_memory(tmp_path: Path, kind: str, engine: str) -> None:
    x = KINDS[kind]
    transform = Transform(crop=1, flip=True) if "images" in kind else Transform()
    states = []
    metrics = []
    for features in (x, in_file(tmp_path, x)):
        with federation(data_of(features, transform=transform), ENGINES[engine]) as world:
            states.append(after(world, 2))
            metrics.append([metric.row() for metric in world.evaluate(states[-1])])
    assert identical(*states)
    assert metrics[0] == metrics[1]


@pytest.mark.slow
@pytest.mark.parametrize("engine", [replace(WORKERS, start="spawn"), replace(VECTORISED, compile=True)], ids=str)
def test_so_has_one_in_spawned_workers_and_one_with_compiled_steps(tmp_path: Path, engine: Any) -> None:
    x = KINDS["float32"]
    states = [after(federation(data_of(features), engine), 2) for features in (x, in_file(tmp_path, x))]
    assert identical(*states)


def test_a_transform_of_ones_own_may_write_to_its_batch(tmp_path: Path) -> None:
    x = KINDS["float32"]
    transform = OwnTransform(batch=lambda batch: batch.mul_(1.0))
    states = [
        after(federation(data_of(features, transform=transform), SEQUENTIAL), 1)
        for features in (x, in_file(tmp_path, x))
    ]
    assert identical(*states)


def test_several_inputs_stay_in_their_files(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(0, 9, (N, 4))
    x = FederatedData.from_arrays({"input": in_file(tmp_path, ids)}, Y, [[0]]).train.x
    assert isinstance(x, Inputs) and stays(x.tensors["input"])


# Another machine.


def test_a_file_that_another_machine_does_not_have_is_named(tmp_path: Path) -> None:
    sent = pickle.dumps(data_of(in_file(tmp_path, KINDS["float32"])).train.x)
    (tmp_path / "x.npy").write_bytes(b"short")
    with pytest.raises(DataError, match=rf"^{tmp_path}/x.npy can't be mapped on .*: every machine must have it at"):
        pickle.loads(sent)
    (tmp_path / "x.npy").unlink()
    with pytest.raises(DataError, match=rf"^{tmp_path}/x.npy can't be mapped on .*No such file"):
        pickle.loads(sent)


def test_a_run_in_a_folder_goes_on_with_them(tmp_path: Path) -> None:
    x = KINDS["float32"]
    ends = []
    for name, features in (("a", x), ("b", in_file(tmp_path, x))):
        ends.append(run(federation(data_of(features), SEQUENTIAL), 2, out=tmp_path / name, progress=False))
    assert torch.equal(ends[0].state.w, ends[1].state.w)
    assert ends[0].federation.fingerprint == ends[1].federation.fingerprint


# A folder of files.


def write(folder: Path, kind: str = "grey images", **others: np.ndarray) -> Path:
    folder.mkdir(exist_ok=True)
    for name, array in ({"x": KINDS[kind], "y": Y} | others).items():
        np.save(folder / f"{name}.npy", array)
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_of_files_holds_what_is_in_them(tmp_path: Path, kind: str) -> None:
    x = KINDS[kind]
    users = np.array([f"user {i % 4}" for i in range(N)])
    folder = write(tmp_path, kind, users=users, x_test=x[:9], y_test=Y[:9] + 1)
    data = NpyFiles(str(folder)).load().partition(Users())
    in_memory = FederatedData.from_arrays(x, Y, users=users, test=(x[:9], Y[:9] + 1))
    assert stays(data.train.x) and data.test is not None and stays(data.test.x)
    assert data.classes == in_memory.classes == 4
    assert torch.equal(data.train.x[:], in_memory.train.x[:]) and torch.equal(data.train.y, in_memory.train.y)
    assert [indices.tolist() for indices in data.clients] == [indices.tolist() for indices in in_memory.clients]


def test_an_experiment_file_names_the_folder_and_has_the_bytes_of_the_arrays(tmp_path: Path) -> None:
    x = KINDS["grey images"]
    write(tmp_path / "big", x_test=x[:9], y_test=Y[:9])
    file = tmp_path / "experiment.toml"
    file.write_text(f'data = {{ name = "npy", path = "{tmp_path}/big" }}\npartition = {{ name = "iid", clients = 5 }}')
    experiment = load(file)
    assert experiment.data == NpyFiles(f"{tmp_path}/big") and parse(experiment.table()) == experiment
    there = experiment.data.load().partition(IID(5))
    here = FederatedData.from_arrays(x, Y, partition=IID(5), test=(x[:9], Y[:9]))
    assert identical(*(after(federation(data, SEQUENTIAL), 2) for data in (there, here)))


def test_what_is_wrong_in_a_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"^NpyFiles.path = .*nowhere'?: there is no such folder"):
        NpyFiles(str(tmp_path / "nowhere")).load()
    with pytest.raises(SettingError, match=r"^NpyFiles.path = .*: must hold x.npy$"):
        NpyFiles(str(tmp_path)).load()
    np.savez(tmp_path / "data.npz", x=np.zeros((2, 2)), y=np.zeros(2))
    with pytest.raises(SettingError, match=r"^NpyFiles.path = .*: must hold x.npy; save each array of data.npz by its"):
        NpyFiles(str(tmp_path)).load()
    with pytest.raises(
        SettingError, match=r"^NpyFiles.path = .*data.npz'?: is a file, and must be a folder with x.npy"
    ):
        NpyFiles(str(tmp_path / "data.npz")).load()
    write(tmp_path)
    for damage in (b"", b"no array", (tmp_path / "y.npy").read_bytes()[:-8]):
        (tmp_path / "y.npy").write_bytes(damage)
        with pytest.raises(DataError, match=rf"^{tmp_path}/y.npy can't be read: "):
            NpyFiles(str(tmp_path)).load()
    np.save(tmp_path / "y.npy", np.array([{"a": 1}] * N), allow_pickle=True)
    with pytest.raises(DataError, match=rf"^{tmp_path}/y.npy can't be read: it must be a whole array of numbers"):
        NpyFiles(str(tmp_path)).load()
    np.savez(tmp_path / "several.npz", y=Y)
    (tmp_path / "several.npz").rename(tmp_path / "y.npy")
    with pytest.raises(DataError, match=rf"^{tmp_path}/y.npy can't be read: .* \(it is an archive of several arrays\)"):
        NpyFiles(str(tmp_path)).load()
    np.save(tmp_path / "y.npy", Y + 1j)
    with pytest.raises(SettingError, match=r"^y = 'complex128 .*: must be real numbers"):
        NpyFiles(str(tmp_path)).load()
    np.save(tmp_path / "y.npy", Y[:-1])
    with pytest.raises(SettingError, match=rf"must be one number for each of {N}"):
        NpyFiles(str(tmp_path)).load()


def test_labels_that_are_numbers_need_a_task_and_users_that_nobody_asks_for_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "some", users=np.arange(N) % 4)
    table = {"data": {"name": "npy", "path": str(folder)}, "partition": {"name": "iid", "clients": 5}}
    parse(table).federated_data()
    assert "the data name each sample's user, and this partition does not use it" in caplog.text
    caplog.clear()
    parse({**table, "partition": {"name": "users"}}).federated_data()
    assert caplog.text == ""
    np.save(folder / "y.npy", Y + 0.5)
    with pytest.raises(ConfigError, match=r'^task.name is missing: .*float64.*, such as task.name = "regression"'):
        parse(table).federation()


@pytest.mark.parametrize(
    ("y", "task", "classes"),
    [
        (np.array([[0, 1, 1], [1, 0, 0]]), MultiLabel(), 3),
        (np.array([[[0, 1], [2, 255]], [[0, 0], [1, 1]]]), Segmentation(ignored=255), 3),
    ],
)
def test_the_task_counts_the_classes_of_files_as_of_arrays(tmp_path: Path, y: Any, task: Task, classes: int) -> None:
    x = np.zeros((2, 2, 2, 3), dtype=np.uint8)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    data = NpyFiles(str(tmp_path)).load().learning(task).partition(IID(1))
    assert data.classes == FederatedData.from_arrays(x, y, [[0, 1]], task=task).classes == classes
