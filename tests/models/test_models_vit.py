"""The vision transformer and its adapters, where transformers and peft are installed; nothing is fetched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from test_models import check_gradients, make, parameters
from torch import Tensor, nn
from torch.nn import functional as F

from fedsash.averages import Window
from fedsash.client import LocalTraining
from fedsash.data.federated import FederatedData
from fedsash.engines import LocalEngine
from fedsash.methods.sampling import Uniform
from fedsash.server.federation import Federation
from fedsash.vector.layout import Layout
from support.worlds import ENGINES, after

transformers = pytest.importorskip("transformers")
pytest.importorskip("peft")

SHAPE = (3, 8, 8)
CLASSES = 5
TINY: dict[str, Any] = {"image_size": 8, "patch": 4, "layers": 2, "width": 32, "heads": 4, "mlp": 64}


def tiny(seed: int = 0, shape: tuple[int, ...] = SHAPE, **options: Any) -> nn.Module:
    return make("vit", shape, CLASSES, seed, **TINY | options)


def federation(engine: LocalEngine, lora_rank: int) -> Federation:
    """Four clients with images of three sizes of data, in float64."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(30, *SHAPE))
    y = rng.integers(0, CLASSES, 30)
    clients = np.split(np.arange(30), [4, 15, 21])
    return Federation(
        tiny(lora_rank=lora_rank).double(),
        FederatedData.from_arrays(x, y, clients, test=(x, y), classes=CLASSES),
        local=LocalTraining(lr=0.05, batch=5),
        averages={"window": Window(2)},
        sampling=Uniform(3),
        engine=engine,
        device="cpu",
    )


def test_its_parameters_are_those_of_the_papers_shapes() -> None:
    d = 32
    hidden = 64
    patches = 4
    patch = 3 * 4 * 4 * d + d
    layer = 4 * (d * d + d) + (d * hidden + hidden) + (hidden * d + d) + 4 * d
    expected = patch + d + (patches + 1) * d + 2 * layer + 2 * d + d * CLASSES + CLASSES
    assert Layout(tiny()).size == expected


def test_the_last_linear_layer_classifies_the_features() -> None:
    model = tiny().eval()
    x = torch.randn(3, *SHAPE)
    assert Layout(model).classifier == "classifier"
    assert torch.equal(model(x), model.get_submodule("classifier")(model.get_submodule("features")(x)))


def test_the_start_is_a_function_of_the_seed_alone() -> None:
    for rank in (0, 2):
        first, again, other = (parameters(tiny(seed, lora_rank=rank)) for seed in (1, 1, 2))
        assert torch.equal(first, again) and not torch.equal(first, other)


def test_images_of_another_size_are_resized() -> None:
    model = tiny(shape=(3, 6, 5)).eval()
    x = torch.randn(2, 3, 6, 5)
    assert torch.equal(model(x), model(F.interpolate(x, (8, 8), mode="bilinear", align_corners=False)))


@pytest.mark.parametrize("rank", [0, 2])
@pytest.mark.parametrize("shape", [SHAPE, (3, 6, 7)])
def test_clients_side_by_side_have_the_gradients_of_clients_one_by_one(rank: int, shape: tuple[int, ...]) -> None:
    """With adapters the clients share what is frozen."""
    models = [tiny(1, shape, lora_rank=rank).double() for _ in range(2)]
    for seed, model in enumerate(models):
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            if p.requires_grad:
                p.data += 0.05 * torch.randn(p.shape, dtype=p.dtype, generator=generator)
    check_gradients(models, shape)


def test_with_adapters_the_vector_is_that_of_adapters_and_classifier() -> None:
    rank = 3
    layout = Layout(tiny(lora_rank=rank))
    assert layout.size == 2 * (8 * rank * TINY["width"]) + TINY["width"] * CLASSES + CLASSES
    assert all("lora_" in name or name.startswith("classifier.") for name in layout.names)


def test_adapters_change_nothing_at_first_and_then_add_twice_b_times_a() -> None:
    plain = tiny().eval()
    adapted = tiny(lora_rank=2).eval()
    x = torch.randn(2, *SHAPE)
    adapted.get_submodule("classifier").load_state_dict(plain.get_submodule("classifier").state_dict())
    torch.testing.assert_close(adapted(x), plain(x))
    layer = next(m for m in adapted.modules() if hasattr(m, "lora_A"))
    a, b = (getattr(layer, name)["default"].weight.data for name in ("lora_A", "lora_B"))
    b.normal_()
    x = torch.randn(7, TINY["width"])
    torch.testing.assert_close(layer(x), layer.base_layer(x) + 2 * x @ (b @ a).T)


@pytest.mark.parametrize("rank", [0, 2])
def test_the_engines_agree(rank: int) -> None:
    """With adapters there is dropout as well."""
    models = {kind: after(federation(engine, rank), 2).w for kind, engine in ENGINES.items()}
    assert torch.equal(models["workers"], models["sequential"])
    torch.testing.assert_close(models["vectorised"], models["sequential"], rtol=1e-9, atol=1e-12)


def test_what_is_frozen_stays_and_the_average_of_adapters_loads_into_the_plain_module() -> None:
    from safetensors.torch import load

    with federation(ENGINES["sequential"], lora_rank=2) as world:
        before = {n: p.clone() for n, p in world.model.named_parameters() if not p.requires_grad}
        state = after(world, 3)
        average = world.models(state)["window"]
        loaded = tiny(seed=9, lora_rank=2).double()
        loaded.load_state_dict(load(world.export(average)))
    assert before and all(torch.equal(loaded.get_parameter(name), value) for name, value in before.items())
    assert torch.equal(Layout(loaded).flatten(loaded), average)
    x = torch.randn(2, *SHAPE, dtype=torch.float64)
    with world.layout.applied(world.model, average):
        assert torch.equal(loaded.eval()(x), world.model.eval()(x))


def save(folder: Path, **changes: Any) -> nn.Module:
    """A pretrained encoder in a folder, as transformers saves one."""
    names = {"width": "hidden_size", "layers": "num_hidden_layers", "heads": "num_attention_heads"}
    names |= {"mlp": "intermediate_size", "patch": "patch_size"}
    config = transformers.ViTConfig(**{names.get(name, name): value for name, value in (TINY | changes).items()})
    encoder: nn.Module = transformers.ViTModel(config, add_pooling_layer=False)
    encoder.save_pretrained(folder)  # type: ignore[operator]
    return encoder


@pytest.mark.parametrize("rank", [0, 2])
def test_a_pretrained_encoder_is_loaded_from_a_folder(rank: int, tmp_path: Path) -> None:
    encoder = save(tmp_path).eval()
    features = tiny(pretrained=str(tmp_path), lora_rank=rank).eval().get_submodule("features")
    x = torch.randn(2, *SHAPE)
    state: Tensor = encoder(pixel_values=x).last_hidden_state
    torch.testing.assert_close(features(x), state[:, 0])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 5}, r"vit\.heads = 5: must divide width = 32"),
        ({"patch": 3}, r"vit\.patch = 3: must divide image_size = 8"),
        ({"layers": 0}, r"vit\.layers = 0: must be at least 1"),
        ({"lora_rank": -1}, r"vit\.lora_rank = -1: must not be negative"),
        ({"pretrained": "FOLDER/nowhere"}, r"vit\.pretrained = '.*/nowhere': can't be loaded: "),
        ({"pretrained": "FOLDER", "layers": 3}, r"vit\.layers = 3: must be 2, which .* has"),
        ({"pretrained": "FOLDER", "image_size": 16}, r"vit\.image_size = 16: must be 8, which .* has"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(
    options: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    save(tmp_path)
    options = {k: v.replace("FOLDER", str(tmp_path)) if isinstance(v, str) else v for k, v in options.items()}
    with pytest.raises(ValueError, match=message) as refusal:
        tiny(**options)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("shape", [(8, 8), (1, 8, 8)])
def test_a_shape_that_does_not_fit_is_refused_in_one_line(shape: tuple[int, ...], tmp_path: Path) -> None:
    save(tmp_path)
    with pytest.raises(ValueError, match=r"vit: shape of one input = \(8, 8\)|vit\.channels = 1: must be 3"):
        tiny(shape=shape, pretrained=str(tmp_path))
