"""`python -m modelkin.demo` is a Hub until it is interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from .conftest import Ask


def serve(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "modelkin.demo", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_the_bundled_models_are_served(ask: Ask) -> None:
    with serve("--latency", "0.01") as running:
        assert running.stdout is not None
        name, _, endpoint = running.stdout.readline().strip().partition("=")
        assert name == "export HF_ENDPOINT"
        assert ask(f"{endpoint}/api/models/demo/tiny-llama").json["config"]["model_type"] == "llama"
        running.send_signal(signal.SIGINT)
        assert running.wait(10) == 0


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with serve(f"acme/tiny={tmp_path}/nothing") as running:
        assert running.wait(10) == 2
        assert running.stderr is not None
        assert "no such folder" in running.stderr.read()
