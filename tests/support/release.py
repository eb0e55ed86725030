"""What the project says of itself to whoever installs it."""

from __future__ import annotations

import tomllib

from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]
