"""Do the weights of model B descend from those of model A?

import modelkin

checkpoint = modelkin.open("acme/tiny")          # or a folder, or a file; headers only
anatomy = modelkin.identify(checkpoint)          # what every tensor is for
gains = anatomy.read(modelkin.Slot(modelkin.Role.INPUT_NORM, layer=3))
modelkin.inspect("acme/tiny").gains              # all of it as one record
modelkin.compare("acme/tiny", "acme/tuned").verdict.outcome       # related, unrelated or undecided
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = [
    "Anatomy",
    "Checkpoint",
    "CompareOptions",
    "Comparison",
    "Evidence",
    "Inspection",
    "ModelkinError",
    "ReadOptions",
    "Role",
    "Slot",
    "Unanswered",
    "Verdict",
    "compare",
    "identify",
    "inspect",
    "open",
    "read_comparison",
    "verify",
    "verify_fetched",
]

if TYPE_CHECKING:
    from modelkin.architectures import Anatomy, identify
    from modelkin.checkpoint import Checkpoint
    from modelkin.compare import CompareOptions, compare
    from modelkin.errors import ModelkinError
    from modelkin.inspection import inspect
    from modelkin.inspection import open_model as open
    from modelkin.records import Comparison, Evidence, Inspection, Role, Slot, Unanswered, Verdict
    from modelkin.sources import ReadOptions
    from modelkin.verify import read_comparison, verify, verify_fetched

_HOMES = {
    "Anatomy": "architectures",
    "Checkpoint": "checkpoint",
    "CompareOptions": "compare",
    "Comparison": "records",
    "Evidence": "records",
    "Inspection": "records",
    "ModelkinError": "errors",
    "ReadOptions": "sources",
    "Role": "records",
    "Slot": "records",
    "Unanswered": "records",
    "Verdict": "records",
    "compare": "compare",
    "identify": "architectures",
    "inspect": "inspection",
    "open": "inspection.open_model",
    "read_comparison": "verify",
    "verify": "verify",
    "verify_fetched": "verify",
}


def __getattr__(name: str) -> Any:
    """Public names are imported on first use, so that `import modelkin` costs nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module 'modelkin' has no attribute {name!r}")
    from importlib import import_module

    module, _, attribute = _HOMES[name].partition(".")
    return getattr(import_module(f"modelkin.{module}"), attribute or name)


class _Package(ModuleType):
    """`modelkin.compare` and `modelkin.verify` are functions, also after the modules that hold them were imported.

    Importing a module would put it in the place of the function of that name; `from modelkin.compare import …` works
    without that.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
