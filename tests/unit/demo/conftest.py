"""A repository small enough to read, and a client plain enough to see every header."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from modelkin.demo.hub import LoopbackHub, Repository

CONFIG = json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "pad": "x" * 400}).encode()


def safetensors(names: list[str], elements: int = 64) -> bytes:
    """A well-formed file of BF16 vectors."""
    size = 2 * elements
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    for i, name in enumerate(names):
        header[name] = {"dtype": "BF16", "shape": [elements], "data_offsets": [i * size, (i + 1) * size]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + bytes(i % 251 for i in range(size * len(names)))


WEIGHTS = safetensors(["model.norm.weight", "lm_head.weight"], 4096)


def sharded() -> dict[str, bytes]:
    shards = {f"model-0000{i}-of-00003.safetensors": safetensors([f"layer.{i}.weight"]) for i in (1, 2, 3)}
    weight_map = {f"layer.{i}.weight": f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)}
    index = json.dumps({"metadata": {"total_size": 384}, "weight_map": weight_map}).encode()
    return {**shards, "model.safetensors.index.json": index, "config.json": CONFIG}


def single() -> dict[str, bytes]:
    return {
        "config.json": CONFIG,
        "model.safetensors": WEIGHTS,
        "assets/notes.txt": b"two\nlines",
        "README.md": b"# tiny",
    }


@dataclass
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def header(self, name: str) -> str:
        value = self.headers.get(name)
        assert value is not None, f"expected a header {name}, found {self.headers.keys()}"
        return value

    @property
    def json(self) -> Any:
        return json.loads(self.body)


Ask = Callable[..., Reply]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """One exchange on a connection of its own; no redirect is followed, nothing is decoded."""
    opened: list[http.client.HTTPConnection] = []

    def exchange(url: str, method: str = "GET", body: bytes | None = None, **headers: str) -> Reply:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=10)
        opened.append(connection)
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        return Reply(response.status, response.headers, response.read())

    yield exchange
    for connection in opened:
        connection.close()


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    repositories = {
        "acme/tiny": Repository(files=single(), card={"base_model": "acme/base", "license": "mit"}),
        "acme/sharded": Repository(files=sharded()),
        "acme/gated": Repository(files=single(), gated="manual"),
        "acme/granted": Repository(files=single(), gated="auto", granted=True),
        "acme/private": Repository(files=single(), private=True),
    }
    with LoopbackHub(repositories, token="hf_right") as running:
        yield running


@pytest.fixture
def hugging_face(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The Hub's own client, with its cache in a temporary folder."""
    import huggingface_hub
    from huggingface_hub import constants
    from huggingface_hub.utils import close_session, disable_progress_bars

    disable_progress_bars()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield huggingface_hub
    close_session()
