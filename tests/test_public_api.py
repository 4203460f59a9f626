from __future__ import annotations

import subprocess
import sys

import pytest

import modelkin


def test_the_promise_is_exactly_this_list() -> None:
    assert modelkin.__all__ == [
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
    assert all(getattr(modelkin, name) is not None for name in modelkin.__all__)


@pytest.mark.parametrize("first", ["modelkin.compare", "modelkin.verify", "modelkin.cli"])
def test_functions_are_functions_whatever_was_imported_before(first: str) -> None:
    code = f"import modelkin, {first}; from modelkin.compare import plan; modelkin.compare; modelkin.verify; "
    code += "import sys; sys.exit(not (callable(modelkin.compare) and callable(modelkin.verify) and callable(plan)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    heavy = "{'numpy', 'scipy', 'huggingface_hub', 'rich', 'torch', 'matplotlib'}"
    code = f"import sys, modelkin, modelkin.cli; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
