"""`python -m modelkin.demo` is a Hub until it is stopped."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modelkin.demo import bundled

from .conftest import Ask

LONGEST = 60


@contextmanager
def serve(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The running command; whatever happens, it does not outlive the test or hold it up."""
    command = [sys.executable, "-m", "modelkin.demo", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    watchdog = threading.Timer(LONGEST, process.kill)  # reading a line has no time limit of its own
    watchdog.start()
    try:
        yield process
    finally:
        watchdog.cancel()
        process.kill()
        process.communicate(timeout=10)


def test_the_bundled_models_are_served(ask: Ask) -> None:
    with serve("--latency", "0.01") as running:
        assert running.stdout is not None
        name, _, endpoint = running.stdout.readline().strip().partition("=")
        assert name == "export HF_ENDPOINT"
        for model in bundled():
            assert ask(f"{endpoint}/api/models/demo/{model}").json["config"]["model_type"] in ("llama", "mixtral")
        assert running.poll() is None
        # Not SIGINT: under nohup it is ignored, and a child inherits that.
        running.terminate()
        running.wait(10)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with serve(f"acme/tiny={tmp_path}/nothing") as running:
        _, complaint = running.communicate(timeout=LONGEST)
        assert running.returncode == 2
        assert "no such folder" in complaint
