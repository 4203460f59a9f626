"""Serve the bundled models, or folders of your own, as a Hub:  python -m modelkin.demo [OWNER/NAME=FOLDER …]"""

from __future__ import annotations

import argparse
import threading
from contextlib import suppress
from pathlib import Path

from modelkin.demo import bundled
from modelkin.demo.hub import LoopbackHub, Options, Repository


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m modelkin.demo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="OWNER/NAME=FOLDER", help="default: the bundled models")
    parser.add_argument("--port", type=int, default=0, help="of the Hub; default: any that is free")
    parser.add_argument("--latency", type=float, default=0.0, help="seconds before every answer")
    parser.add_argument("--connect-latency", type=float, default=0.0, help="seconds more for a new connection")
    arguments = parser.parse_args()
    folders = {f"demo/{name}": folder for name, folder in bundled().items()}
    if arguments.models:
        pairs = (model.partition("=") for model in arguments.models)
        folders = {name: Path(folder) for name, _, folder in pairs}
    if missing := [f"{name}={folder}" for name, folder in folders.items() if not folder.is_dir()]:
        parser.error(f"no such folder: {', '.join(missing)}")
    repositories = {name: Repository.from_folder(folder) for name, folder in folders.items()}
    options = Options(port=arguments.port)
    with LoopbackHub(
        repositories, latency=arguments.latency, connect_latency=arguments.connect_latency, options=options
    ) as hub:
        print(f"export HF_ENDPOINT={hub.endpoint}", flush=True)
        for name in repositories:
            print(f"# {name}", flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
