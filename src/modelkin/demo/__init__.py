"""Small trained models that ship with the package, and a Hub on this machine to serve them from."""

from __future__ import annotations

from pathlib import Path

DESCRIPTIONS = {
    "tiny-llama": "1.3 million parameters, trained on the Python standard library",
}


def bundled() -> dict[str, Path]:
    """The folder of each model that ships with the package, by name; DESCRIPTIONS has a line on each."""
    return {name: Path(__file__).parent / "models" / name for name in DESCRIPTIONS}
