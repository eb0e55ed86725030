"""The examples for Lightning, Hugging Face's Trainer and accelerate learn, and each average is a good model."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import pytest

from support.places import ROOT


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, needed, epochs, least",
    [
        ("in_lightning", "lightning", 10, 0.85),
        ("in_transformers", "accelerate", 6, 0.7),
        ("in_accelerate", "accelerate", 10, 0.85),
    ],
)
def test_the_averages_of_the_example_are_good_models(name: str, needed: str, epochs: int, least: float) -> None:
    pytest.importorskip(needed, reason=f"{needed} is not installed")
    spec = spec_from_file_location(f"example_{name}", ROOT / "examples" / "loops" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := module_from_spec(spec))
    found = module.main(epochs=epochs)
    assert found.keys() == {"model", "window", "ema"} and found["window"] > least and found["ema"] > least
