"""huggingface_hub's own client takes the loopback Hub for the real one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelkin.demo import bundled
from modelkin.demo.faults import Drop, rate_limited
from modelkin.demo.hub import LoopbackHub, Options, Repository

from .conftest import CONFIG, WEIGHTS, sharded, single


def test_model_info_and_revision(hub: LoopbackHub, hugging_face: Any) -> None:
    api = hugging_face.HfApi(endpoint=hub.endpoint, token=False)
    info = api.model_info("acme/tiny", files_metadata=True)
    files = {sibling.rfilename: sibling for sibling in info.siblings}
    assert info.sha == hub.repositories["acme/tiny"].refs["main"]
    assert info.card_data.base_model == "acme/base"
    assert info.safetensors.total == 8192
    assert files["model.safetensors"].lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert api.resolve_revision("acme/tiny").resolved == info.sha
    assert api.list_repo_refs("acme/tiny").branches[0].target_commit == info.sha


def test_tree_is_followed_through_its_pages(hugging_face: Any) -> None:
    names = {f"part/{i:03}.txt": b"x" for i in range(25)}
    with LoopbackHub({"acme/many": Repository(files=names)}, options=Options(page_size=7)) as hub:
        api = hugging_face.HfApi(endpoint=hub.endpoint, token=False)
        found = [entry.path for entry in api.list_repo_tree("acme/many", recursive=True, expand=True)]
    assert sorted(found) == ["part", *sorted(names)]
    assert len(hub.log) == 4


def test_tree_entries_carry_hashes(hub: LoopbackHub, hugging_face: Any) -> None:
    api = hugging_face.HfApi(endpoint=hub.endpoint, token=False)
    entries = {entry.path: entry for entry in api.list_repo_tree("acme/tiny", recursive=True)}
    assert entries["model.safetensors"].lfs.sha256 == hashlib.sha256(WEIGHTS).hexdigest()
    assert len(entries["model.safetensors"].xet_hash) == 64
    assert entries["config.json"].lfs is None
    (info,) = api.get_paths_info("acme/tiny", ["model.safetensors"])
    assert info.lfs == entries["model.safetensors"].lfs


@pytest.mark.parametrize("options", [Options(), Options(resolve_cache=True)], ids=["direct", "resolve-cache"])
@pytest.mark.parametrize(("file", "content"), [("config.json", CONFIG), ("model.safetensors", WEIGHTS)])
def test_download(hugging_face: Any, tmp_path: Path, options: Options, file: str, content: bytes) -> None:
    with LoopbackHub({"acme/tiny": Repository(files=single())}, token="hf_right", options=options) as hub:
        path = hugging_face.hf_hub_download(
            "acme/tiny", file, endpoint=hub.endpoint, token="hf_right", cache_dir=tmp_path
        )
    assert Path(path).read_bytes() == content
    assert Path(path).parent.name == hub.repositories["acme/tiny"].refs["main"]
    assert not any(entry.authorization for entry in hub.log if entry.port == "cdn")


def test_download_survives_a_rate_limit_and_a_dropped_connection(hugging_face: Any, tmp_path: Path) -> None:
    faults = [rate_limited(0, method="GET", port="cdn"), Drop(5000, port="cdn")]
    with LoopbackHub({"acme/tiny": Repository(files=single())}, faults=faults) as hub:
        path = hugging_face.hf_hub_download(
            "acme/tiny", "model.safetensors", endpoint=hub.endpoint, token=False, cache_dir=tmp_path
        )
    assert Path(path).read_bytes() == WEIGHTS
    assert [(entry.status, entry.bytes) for entry in hub.log if entry.port == "cdn"][1:] == [
        (200, 5000),
        (200, len(WEIGHTS)),
    ]


def test_safetensors_metadata_of_one_file_and_of_shards(hub: LoopbackHub, hugging_face: Any) -> None:
    api = hugging_face.HfApi(endpoint=hub.endpoint, token=False)
    assert api.get_safetensors_metadata("acme/tiny").parameter_count == {"BF16": 8192}
    by_shard = api.get_safetensors_metadata("acme/sharded")
    at_once = api.get_sharded_safetensors_metadata("acme/sharded")
    assert by_shard == at_once
    assert set(at_once.files_metadata) == {name for name in sharded() if name.endswith(".safetensors")}


def test_snapshot_of_a_bundled_model(hugging_face: Any, tmp_path: Path) -> None:
    folder = bundled()["dune"]
    with LoopbackHub({"demo/dune": Repository.from_folder(folder, xet=False)}) as hub:
        copy = hugging_face.snapshot_download(
            "demo/dune", endpoint=hub.endpoint, token=False, cache_dir=tmp_path, max_workers=2
        )
    assert {path.name: path.read_bytes() for path in Path(copy).iterdir()} == {
        path.name: path.read_bytes() for path in folder.iterdir()
    }


@pytest.mark.parametrize(
    ("error", "call"),
    [
        ("RepositoryNotFoundError", lambda api: api.model_info("acme/nothing")),
        ("RepositoryNotFoundError", lambda api: api.model_info("acme/private")),
        ("RevisionNotFoundError", lambda api: api.model_info("acme/tiny", revision="nowhere")),
        ("RemoteEntryNotFoundError", lambda api: api.hf_hub_download("acme/tiny", "nothing.json")),
        ("GatedRepoError", lambda api: api.hf_hub_download("acme/gated", "config.json")),
        ("GatedRepoError", lambda api: api.hf_hub_download("acme/gated", "config.json", token="hf_right")),
    ],
)
def test_refusals_become_the_clients_errors(
    hub: LoopbackHub, hugging_face: Any, error: str, call: Callable[[Any], object]
) -> None:
    with pytest.raises(getattr(hugging_face.errors, error)):
        call(hugging_face.HfApi(endpoint=hub.endpoint, token=False))
