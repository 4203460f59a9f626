"""Nothing here reaches the network: every Hub is a loopback one, and the user's own caches are never touched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("modelkin", deadline=None)  # a busy machine is no failure
settings.load_profile("modelkin")

# Two processes run the tests: threads of the linear algebra library would only wait for each other.
os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# huggingface_hub reads its settings when it is first imported, so they are made before anything else.
_HOME = tempfile.mkdtemp(prefix="modelkin-tests-")
os.environ |= {"HF_HOME": _HOME, "HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
for name in ("COLUMNS", "HF_TOKEN", "HF_ENDPOINT", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_TOKEN_PATH"):
    os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("MODELKIN_CACHE", str(folder))
    return folder


def pytest_unconfigure() -> None:
    shutil.rmtree(_HOME, ignore_errors=True)
