"""Networks of timm and torchvision, where they are installed, and one line where they are not."""

from __future__ import annotations

import importlib
import runpy
import sys
import tomllib

import pytest
import tomli_w
import torch
from test_models import check_gradients, make, parameters
from torch import nn

from fedsash.lab.config import ConfigError, parse
from fedsash.models import MODELS, batch_norms, is_own
from fedsash.vector.layout import Layout


def needs(library: str) -> None:
    """Skip a test where a library is missing, or can't be imported since it was built for another PyTorch."""
    try:
        importlib.import_module(library)
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"{library} can't be imported: {error}")


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_a_network_is_found_by_its_name_in_its_library(name: str) -> None:
    needs(name.split(":")[0])
    model = make(name, (3, 32, 32), classes=7)
    assert Layout(model).linear(parameters(model))[0].shape == (7, 512)
    assert model(torch.randn(2, 3, 32, 32)).shape == (2, 7)
    assert torch.equal(parameters(model), parameters(make(name, (3, 32, 32), classes=7)))
    assert not torch.equal(parameters(model), parameters(make(name, (3, 32, 32), classes=7, seed=1)))


@pytest.mark.parametrize("name", ["timm:resnet18", "torchvision:resnet18"])
def test_its_batch_norm_becomes_group_norm_of_so_many_groups(name: str) -> None:
    needs(name.split(":")[0])
    model = make(name, (3, 32, 32), groups=4)
    assert not batch_norms(model)
    assert {layer.num_groups for layer in model.modules() if isinstance(layer, nn.GroupNorm)} == {4}
    assert "bn1" in batch_norms(make(name, (3, 32, 32), groups=0))


@pytest.mark.parametrize(("name", "shape"), [("timm:test_resnet", (3, 32, 32)), ("timm:test_resnet", (1, 32, 32))])
def test_clients_side_by_side_have_the_gradients_of_clients_one_by_one(name: str, shape: tuple[int, ...]) -> None:
    needs("timm")
    check_gradients([make(name, shape, seed=seed).double() for seed in (1, 2)], shape)


def test_our_mobilenet_is_torchvisions_with_group_norm() -> None:
    needs("torchvision")
    ours, theirs = (make(name, (3, 32, 32)).double().eval() for name in ("mobilenet_v2_gn", "torchvision:mobilenet_v2"))
    w = 1.1 * parameters(theirs)
    x = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    for model in (ours, theirs):
        Layout(model).load(model, w)
    torch.testing.assert_close(ours(x), theirs(x))


def test_options_go_to_the_library() -> None:
    needs("timm")
    assert make("timm:resnet18", (3, 32, 32), drop_rate=0.3).drop_rate == 0.3


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("timm:resnet17", {}, r"model\.name = 'timm:resnet17': .*resnet17"),
        ("timm:resnet18", {"depth": 3}, r"model\.name = 'timm:resnet18': .*depth"),
        ("timm:resnet18", {"groups": 3}, r"group_norm: channels of layer 'bn1' = 64: must be a multiple of groups = 3"),
        ("torchvision:resnet17", {}, r"model\.name = 'torchvision:resnet17': .*resnet17"),
        ("torchvision:resnet18", {"depth": 3}, r"model\.name = 'torchvision:resnet18': .*depth"),
    ],
)
def test_what_the_library_refuses_is_one_line(name: str, options: dict[str, int], message: str) -> None:
    needs(name.split(":")[0])
    with pytest.raises(ValueError, match=message) as refusal:
        make(name, (3, 32, 32), **options)
    assert "\n" not in str(refusal.value)


def test_a_shape_that_does_not_fit_is_refused_in_one_line() -> None:
    with pytest.raises(ValueError, match=r"timm:resnet18: shape of one input = \(64,\): must be \(channels, height"):
        make("timm:resnet18", (64,))
    with pytest.raises(ValueError, match=r"torchvision:resnet18: channels of one input = 1: must be 3"):
        make("torchvision:resnet18", (1, 32, 32))


@pytest.mark.parametrize(
    ("name", "options", "module", "line"),
    [
        ("timm:resnet18", {}, "timm", 'timm is needed for the model timm:resnet18: pip install "timm"'),
        (
            *("torchvision:resnet18", {}, "torchvision"),
            'torchvision is needed for the model torchvision:resnet18: pip install "torchvision"',
        ),
        ("vit", {}, "transformers", 'transformers is needed for the model vit: pip install "fedsash[vit]"'),
    ],
)
def test_a_missing_library_is_one_line_that_says_what_to_install(
    name: str, options: dict[str, int], module: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for loaded in [key for key in sys.modules if key.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError) as refusal:
        make(name, (3, 32, 32), **options)
    assert str(refusal.value).startswith(line) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["timm:hf-hub:someone/x", "timm:local-dir:/tmp/x", "timm:", "torchvision:../x"])
def test_networks_of_other_origins_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.name = .*: must be \w+:NETWORK, by its name there"):
        parse({"model": {"name": name}})


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay"])
def test_an_option_that_reads_a_pickle_is_refused(option: str) -> None:
    with pytest.raises(ValueError, match=rf"model\.{option} = 'x': is not taken: it reads a file that can run code"):
        make("timm:resnet18", (3, 32, 32), **{option: "x"})


def test_an_experiment_file_can_name_them_without_their_being_installed() -> None:
    model = parse({"model": {"name": "timm:resnet18", "groups": 4, "drop_rate": 0.1}}).model
    assert model.options == {"groups": 4, "drop_rate": 0.1}
    assert not is_own("timm:resnet18") and "timm:resnet18" not in MODELS
    assert is_own("numpy:array")


@pytest.mark.parametrize("name", [*MODELS, "timm:resnet18"])
def test_every_model_with_its_options_can_be_written_to_a_file_and_read_again(name: str) -> None:
    experiment = parse({"model": {"name": name}})
    assert parse(tomllib.loads(tomli_w.dumps(experiment.table()))) == experiment


def test_the_table_of_sizes_has_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    """But for those whose libraries are missing here."""
    runpy.run_module("benchmarks.models", run_name="__main__")
    rows = capsys.readouterr().out.splitlines()[2:]
    assert set(MODELS) - {row.split("`")[1] for row in rows} <= {"vit"}
