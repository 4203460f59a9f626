"""Do the weights of model B descend from those of model A?

import modelkin

checkpoint = modelkin.open("acme/tiny")          # or a folder, or a file; headers only
anatomy = modelkin.identify(checkpoint)          # what every tensor is for
gains = anatomy.read(modelkin.Slot(modelkin.Role.INPUT_NORM, layer=3))
modelkin.inspect("acme/tiny").gains              # all of it as one record
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Anatomy", "Checkpoint", "Inspection", "ModelkinError", "Role", "Slot", "identify", "inspect", "open"]

if TYPE_CHECKING:
    from modelkin.architectures import Anatomy, identify
    from modelkin.checkpoint import Checkpoint
    from modelkin.errors import ModelkinError
    from modelkin.inspection import inspect
    from modelkin.inspection import open_model as open
    from modelkin.records import Inspection, Role, Slot

_HOMES = {
    "Anatomy": "architectures",
    "Checkpoint": "checkpoint",
    "Inspection": "records",
    "ModelkinError": "errors",
    "Role": "records",
    "Slot": "records",
    "identify": "architectures",
    "inspect": "inspection",
    "open": "inspection.open_model",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use, so that `import modelkin` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'modelkin' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(".")
    return getattr(import_module(f"modelkin.{module}"), attribute or name)
