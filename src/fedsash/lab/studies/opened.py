"""A run's folder, opened for a study: its data, its saved states, and its models by name."""

from __future__ import annotations

import logging
import re
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ...averages.checkpoints.order import holds_checkpoints
from ...data.samples import Samples
from ...engines import pick_device
from ...network import Synchronous
from ...runs import checkpoints
from ...runs.forks import other_samples
from ...runs.model_files import read_model, read_shape
from ...runs.records import Records
from ...server.federation import Federation
from ...server.state import State
from ...settings.errors import RunError, check, check_choice, check_count, one_line, some
from ...settings.fingerprint import differences
from ...system.paths import plain_file
from ...vector.arrays import Ints
from ...vector.layout import Layout
from ...vector.saved import UnreadableError, place, saved_rounds
from ...vector.sharing import OWN, Sharing
from ...vector.shown import Shown
from ..config import Experiment, NetworkExperiment, OwnExperiment, load_run
from ..config.errors import located, prefixed
from .client_models import ClientModels, client_models

log = logging.getLogger("fedsash")

MODELS = """\
A model is `model`, an average's name or NAME-best (in RUN/models/), round:N or NAME@N (the model or the average NAME
after the saved round N), client:K (the last saved model with the part that client K keeps), client:K@N (the model of
client K after its training in the round that follows N), or a path to a .safetensors file.
"""
"""The names that `OpenRun.model` accepts, for the help of commands."""


@dataclass(eq=False, repr=False)
class OpenRun(Shown):
    """A run in `folder`, with the `experiment` of its config.toml.

    Its `federation` is made, and its data are loaded, when they are first asked for: the models in models/ need no
    data. For a run on a network, it is the one without the network. Models and states are the same.
    """

    folder: Path
    experiment: Experiment
    _federation: Federation | None = field(default=None, repr=False)
    _round: tuple[int, ClientModels] | None = field(default=None, repr=False)
    _warned: set[str] = field(default_factory=set, repr=False)

    def facts(self) -> dict[str, object]:
        """The facts that `repr` shows."""
        return {"folder": str(self.folder), "rounds": self.rounds, "models": self._names()}

    @property
    def federation(self) -> Federation:
        """The federation of the run. Raises `ConfigError` if it can't be made, for example because its data moved, and
        `RunError` if its data are other ones than those that it was trained on.
        """
        if self._federation is None:
            with prefixed(self.folder / "config.toml"):
                federation = self.experiment.federation()
            _check_data(self.folder, federation)
            self._federation = federation
        return self._federation

    @cached_property
    def _architecture(self) -> tuple[nn.Module, Sharing]:
        """The model at its start, and which parts of it are shared: without the data, if `model.json` is there."""
        shape = read_shape(self.folder)
        if shape is None or self._federation is not None:
            return self.federation.module, self.federation.sharing
        experiment = self.experiment
        with prefixed(self.folder / "config.toml"), located(""):
            module = experiment.model.build_for(*shape, experiment.seed).to(pick_device(experiment.device))
            return module, Sharing.of(module, experiment.buffers, experiment.personal)

    def close(self) -> None:
        """End the processes that were started to train clients."""
        if self._federation is not None:
            self._federation.close()

    @property
    def rounds(self) -> list[int]:
        """The rounds whose states are saved, ascending."""
        return saved_rounds(self.folder / "state")

    def check_rounds(self) -> None:
        """Raise `SettingError` unless clients train in rounds: with most schedulers each trains in its own time."""
        experiment = self.experiment
        in_rounds = True
        if isinstance(experiment, NetworkExperiment):
            in_rounds = isinstance(experiment.scheduler, Synchronous)
        requirement = "must be a run in rounds; here every client trains in its own time"
        check(in_rounds, str(self.folder), "on a network", requirement)

    @cached_property
    def left_out(self) -> dict[int, set[int]]:
        """By round, the clients that were asked and whose upload was not used: late, away, lost or refused.

        Of a round that was skipped these are all clients.
        """
        left_out: dict[int, set[int]] = {}
        for round, problems in Records(self.folder).load().problems.items():
            if problems.skipped:
                left_out[round] = set(range(len(self.federation.sizes)))
            else:
                left_out[round] = {*problems.refused, *problems.missing}
        return left_out

    def client_models(self, round: int, ids: Ints | None = None) -> ClientModels:
        """The models of the clients that train in the round after the saved `round`, or of the clients `ids`.

        Clients whose upload the run did not use are left out. Raises `ValueError` as `client_models` does.
        """
        left_out = self.left_out.get(round + 1)
        if ids is None and left_out:
            selected = self._selected(round)
            ids = selected[~np.isin(selected, list(left_out))]
            if not len(ids):
                raise RunError(f"{self.folder}: round {round + 1} used no client's upload, so nobody's model is known")
        return client_models(self.federation, self.state(round), ids)

    def used(self, round: int) -> bool:
        """Whether the round after `round` used the upload of a client that was asked, as far as it has been trained."""
        left_out = self.left_out.get(round + 1, set())
        return not left_out.issuperset(self._selected(round).tolist())

    def _selected(self, round: int) -> Ints:
        """The clients that the round after `round` asks."""
        return self.federation.sampling.clients(round, self.federation.sizes, self.federation.seed)

    def state(self, round: int) -> State:
        """The state saved after `round`. Raises `ValueError` if there is none, or if it is damaged."""
        if round not in self.rounds:
            raise RunError(f"{self.folder} has no state of round {round}; {self._saved()}")
        return checkpoints.load(place(self.folder / "state", round), self.federation.start())

    def model(self, name: str) -> Tensor:
        """The model `[D]` of that name.

        - `model`, an average's name, `NAME-best`: a model that the run wrote into models/ at its end
        - `round:N`, `NAME@N`: the global model, or the average NAME, after the saved round N
        - `client:K`: the last saved model with the part of it that stays with client K (see `Personal`)
        - `client:K@N`: the model of client K after its training in the round that follows the saved round N
        - a path that ends in .safetensors: any file of a state dict of this architecture

        If a part of the model stays with the clients, a warning says which names have it from the start. Raises
        `ValueError`, which lists all names, if there is no such model.
        """
        w = self._model(name)
        if not name.startswith("client:"):
            self.warn_of_personal_part(name)
        return w

    def warn_of_personal_part(self, name: str) -> None:
        """Warn, once a name, that the model of that name has what stays with the clients as it was at the start."""
        _, sharing = self._architecture
        if sharing.own_size and name not in self._warned:
            self._warned.add(name)
            log.warning(
                "%s: %s stays with the clients, so %r has it as it was at the start; client:K has that of client K",
                self.folder,
                some(sorted(sharing.own_names)),
                name,
            )

    def _model(self, name: str) -> Tensor:
        """The model `[D]` of that name."""
        if name.endswith(".safetensors"):
            if not Path(name).exists():
                raise FileNotFoundError(f"there is no file {name}")
            return self._vector_of(Path(name), plain_file(name).read_bytes())
        client = re.fullmatch(r"client:(\d+)@(\d+)", name)
        if client is not None:
            return self._client(int(client[1]), int(client[2]))
        client = re.fullmatch(r"client:(\d+)", name)
        if client is not None:
            return self._personal(int(client[1]), name)
        after_round = re.fullmatch(r"round:(\d+)", name)
        if after_round is not None:
            return self._after_round(name, "model", int(after_round[1]))
        after_round = re.fullmatch(r"([\w-]+)@(\d+)", name)
        if after_round is not None:
            return self._after_round(name, after_round[1], int(after_round[2]))
        names = self._names()
        self._check(name in names, name, f"models/ has {', '.join(names) or 'none'}")
        return self._vector_of(self.folder / "models" / f"{name}.safetensors", read_model(self.folder, name))

    def _names(self) -> list[str]:
        """The names of the models in models/."""
        return sorted(path.stem for path in (self.folder / "models").glob("*.safetensors"))

    def _vector_of(self, file: Path, content: bytes) -> Tensor:
        module, sharing = self._architecture
        return vector_of(file, content, module, sharing.layout)

    def _after_round(self, name: str, model: str, round: int) -> Tensor:
        """The global `model`, or the average of that name, of the state saved after a round; `name` is for errors."""
        state = self.state(round)
        models = self.federation.models(state)
        self._check(model in models, name, f"round {state.round} has {', '.join(models)}")
        return models[model]

    def module(self, name: str) -> nn.Module:
        """The model of that name (see `model`) as a module of its own, on the CPU and in eval mode.

        One in models/ needs the run's folder alone, and not the data on which it was trained.
        """
        vector = self.model(name)
        module, sharing = self._architecture
        return sharing.layout.copied(module, vector).cpu().eval()

    def _personal(self, client: int, name: str) -> Tensor:
        """The last saved model `[D]` with what a client keeps."""
        sharing = self.federation.sharing
        clients = len(self.federation.sizes)
        self._check(sharing.own_size > 0, name, "nothing of this model stays with the clients: take model")
        self._check(client < clients, name, f"the clients are 0 to {clients - 1}")
        self._check(bool(self.rounds), name, "no state is saved")
        state = self.state(self.rounds[-1])
        self._check(OWN in state.client_state, name, "the clients keep their parts themselves, outside of this run")
        remembered = state.clients.recall(np.array([client]), state.w.device).gathered()
        return sharing.with_own(state.w, remembered.own[OWN][0])

    def samples(self, split: str, count: int | None = None) -> Samples:
        """At most `count` evenly spaced samples (None: all) of a `split`: the test set, or all training samples."""
        data = self.federation.training_data
        check_choice("split", split, "test", "train")
        if split == "test":
            check(data.test is not None, "split", split, "these data have no test set; use train")
            assert data.test is not None
            samples = data.test
        else:
            samples = data.train
            index = np.unique(np.concatenate(data.clients))
            if len(index) < len(samples):
                samples = samples[torch.from_numpy(index).to(samples.y.device)]
        if count is None:
            return samples
        return samples[spaced(len(samples), count).to(samples.y.device)]

    def _client(self, client: int, round: int) -> Tensor:
        """The model of one client in the round after `round`. The whole round trains, and its models are cached."""
        self.check_rounds()
        if self._round is None or self._round[0] != round:
            self._round = (round, self.client_models(round))
        models = self._round[1]
        ids = models.ids.tolist()
        participants = ", ".join(map(str, ids))
        check(client in ids, "client", client, f"in the round after {round} take part: {participants}")
        return models.w[ids.index(client)]

    def _check(self, exists: bool, name: str, others: str) -> None:
        """Raise `RunError` unless the model of that name `exists`. `others` says which do."""
        if not exists:
            raise RunError(f"{self.folder} has no model {name!r}; {others}; {self._saved()}")

    def _saved(self) -> str:
        """Which rounds have a saved state, for errors."""
        rounds = ", ".join(map(str, self.rounds)) or "none"
        return f"saved are the rounds: {rounds} (checkpoint.keep keeps more)"


def open_run(folder: Path | str, own_code: bool = False, federation: Federation | str = "") -> OpenRun:
    """Open the run in `folder`: its models, their numbers, its data and federation.

    With `own_code` it may name any code, not only what was allowed when it was made here.

    A run that was made in Python needs its `federation`, or the place of the function that makes it,
    `"package.module:function"`. The data of an experiment file are loaded later, when something needs them: its models
    in models/ open without.

    Raises `FileNotFoundError` if the folder holds no run, `ConfigError` if it can't be built, and `RunError` if it is a
    run of another federation, or of none.
    """
    folder = Path(folder)
    function = federation if isinstance(federation, str) else ""
    if not Records(folder).begun and holds_checkpoints(folder):
        raise RunError(f"{folder} holds checkpoints and no run: fedsash merge {folder} averages them")
    experiment = load_run(folder, own_code=own_code, federation=function)
    if experiment.stateless:
        raise RunError(f"{folder} holds a study of time, which has no models")
    run = OpenRun(folder, experiment, None if isinstance(federation, str) else federation)
    if isinstance(experiment, OwnExperiment):
        _check_same(folder, run.federation, function)
    return run


def _fingerprint(folder: Path) -> dict[str, str]:
    """The fingerprint in the newest saved state; nothing if there is none."""
    rounds = saved_rounds(folder / "state")
    if not rounds:
        return {}
    return checkpoints.fingerprint(place(folder / "state", rounds[-1]))


def _check_data(folder: Path, federation: Federation) -> None:
    """Raise `RunError` if the newest saved state is of other samples; one that is damaged says nothing."""
    try:
        saved = _fingerprint(folder)
    except UnreadableError:
        return
    differing = other_samples(federation.fingerprint, saved)
    if differing:
        federation.close()
        raise RunError(f"{folder} was trained on other data than those that are there now: {'; '.join(differing)}")


def _check_same(folder: Path, federation: Federation, built_by: str) -> None:
    """Raise `RunError` if the newest saved state is of another federation; `built_by` is the function that made it."""
    differing = differences(federation.fingerprint, _fingerprint(folder))
    if differing:
        line = f"{folder} holds a run of another federation: {'; '.join(differing)}"
        if built_by:
            command = f"fedsash resume {shlex.quote(str(folder))} --federation {built_by} --set options.NAME=VALUE"
            line += f". If the function had other arguments, name them once: {command}"
        raise RunError(line)


def vector_of(file: Path, content: bytes, module: nn.Module, layout: Layout) -> Tensor:
    """The vector `[D]` of a state dict, the content of a .safetensors file, of a module with this layout.

    Raises `ValueError`, which names the file, if it is of another architecture.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    try:
        tensors = load(content)
    except SafetensorError as error:
        raise RunError(f"{file} can't be read: {one_line(error)}") from error
    for name, shape in zip(layout.names, layout.shapes, strict=True):
        actual = list(tensors[name].shape) if name in tensors else "missing"
        check(actual == list(shape), f"{file}: {name}", actual, f"must be {list(shape)}, as in the run's model")
    like = next(module.parameters())
    return torch.cat([tensors[name].to(like.device, layout.dtype).reshape(-1) for name in layout.names])


def spaced(n: int, count: int) -> Tensor:
    """At most `count` evenly spaced numbers below n. Of samples that are sorted by class, each keeps its proportion."""
    check_count("samples", count)
    count = min(count, n)
    return torch.from_numpy(np.arange(count, dtype=np.int64) * n // count)
