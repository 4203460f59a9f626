"""Small trained models that ship with the package, the truth about them, and a Hub on this machine to serve them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TRUTH = HERE / "truth.json"
NAMES = ("amber", "birch", "cobalt", "dune", "ember", "fjord", "grove", "heath")
BASE = "dune"


def bundled() -> dict[str, Path]:
    """The folder of each model that ships with the package, by name; the names tell nothing."""
    return {name: HERE / "models" / name for name in NAMES}


def truth() -> dict[str, Any]:
    """How each bundled model was made (`models`), and how each pair is related (`relations`)."""
    return dict(json.loads(TRUTH.read_text("utf-8")))
