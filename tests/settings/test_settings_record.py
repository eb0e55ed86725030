"""Every setting refuses what it did when the record was made, in the same words, in Python and in files."""

from __future__ import annotations

import json

from support.settings_record import RECORDED, described, in_files


def differences(recorded: dict[str, dict[str, object]], now: dict[str, dict[str, object]]) -> list[str]:
    """What differs, one line for each entry of each setting."""
    lines = []
    for name in {**recorded, **now}:
        before = recorded.get(name, {})
        after = now.get(name, {})
        for key in {**before, **after}:
            if before.get(key) != after.get(key):
                lines.append(f"{name}: {key}: {before.get(key)} -> {after.get(key)}")
    return lines


def test_settings_in_python_are_as_recorded() -> None:
    assert differences(json.loads(RECORDED.read_text())["in Python"], described()) == []


def test_settings_in_files_are_as_recorded() -> None:
    assert differences(json.loads(RECORDED.read_text())["in files"], in_files()) == []
