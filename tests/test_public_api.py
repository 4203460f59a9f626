from __future__ import annotations

import subprocess
import sys

import modelkin


def test_the_promise_is_exactly_this_list() -> None:
    assert modelkin.__all__ == [
        "Anatomy",
        "Checkpoint",
        "Inspection",
        "ModelkinError",
        "Role",
        "Slot",
        "identify",
        "inspect",
        "open",
    ]
    assert all(getattr(modelkin, name) is not None for name in modelkin.__all__)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = "{'numpy', 'scipy', 'huggingface_hub', 'rich', 'torch', 'matplotlib'}"
    code = f"import sys, modelkin, modelkin.cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
