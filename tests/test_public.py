"""What users import."""

from __future__ import annotations

import fedsash


def test_every_public_name_is_there_and_is_what_it_is_called() -> None:
    for name in fedsash.__all__:
        assert getattr(fedsash, name).__name__ == name
    assert set(fedsash.__all__) == set(fedsash._HOME)
