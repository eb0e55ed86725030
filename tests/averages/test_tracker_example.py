"""The example of a tracker learns, and each average has what it promises."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

from support.places import ROOT


def test_the_averages_of_the_example_are_good_models() -> None:
    spec = spec_from_file_location("example_tracker", ROOT / "examples" / "loops" / "tracker.py")
    assert spec is not None and spec.loader is not None
    spec.loader.exec_module(module := module_from_spec(spec))
    found = module.main(epochs=6)
    assert found.keys() == {"model", "window", "ema", "the last half"} and min(found.values()) > 0.85
