"""What the Hub's API says about a commit: model information, the file tree, and the headers of its shards."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import PurePosixPath
from typing import Any

from modelkin.demo.repository import Blob, Repository

DATE = "2026-01-01T00:00:00.000Z"
MAX_HEADER = 100_000_000
Json = dict[str, Any]


def model_info(name: str, repository: Repository, sha: str, blobs: bool) -> Json:
    """The answer of /api/models/{id}; with `blobs`, sizes and hashes of the files too."""
    files = repository.commits[sha]
    config = read_json(files.get("config.json"))
    stated = {
        "_id": hashlib.sha256(name.encode()).hexdigest()[:24],
        "id": name,
        "modelId": name,
        "author": name.partition("/")[0] if "/" in name else None,
        "sha": sha,
        "lastModified": DATE,
        "createdAt": DATE,
        "private": repository.private,
        "gated": repository.gated,
        "disabled": False,
        "downloads": 0,
        "likes": 0,
        "tags": tags(repository, config),
        "pipeline_tag": "text-generation",
        "library_name": "transformers",
        "cardData": dict(repository.card),
        "config": {key: config[key] for key in ("architectures", "model_type") if key in config},
        "siblings": [sibling(blob, blobs) for blob in files.values()],
        "spaces": [],
        "usedStorage": sum(blob.size for blob in files.values()),
    }
    if "safetensors" not in repository.info:
        stated["safetensors"] = parameters(files.values())
    return {key: value for key, value in {**stated, **repository.info}.items() if value is not None}


def tags(repository: Repository, config: Json) -> list[str]:
    """As the Hub derives them from the card and the config."""
    bases = repository.card.get("base_model") or []
    relation = repository.card.get("base_model_relation", "finetune")
    found = ["transformers", "safetensors", config.get("model_type")]
    for base in [bases] if isinstance(bases, str) else bases:
        found += [f"base_model:{base}", f"base_model:{relation}:{base}"]
    if licence := repository.card.get("license"):
        found.append(f"license:{licence}")
    return [tag for tag in found if tag]


def sibling(blob: Blob, blobs: bool) -> Json:
    if not blobs:
        return {"rfilename": blob.name}
    large = {"sha256": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)} if blob.lfs else None
    stated = {"rfilename": blob.name, "size": blob.size, "blobId": blob.oid}
    return stated if large is None else {**stated, "lfs": large}


def tree(repository: Repository, sha: str, folder: str, recursive: bool, expand: bool) -> list[Json] | None:
    """Entries below a folder, folders first; None where there is no such folder."""
    prefix = f"{folder}/" if folder else ""
    below = [blob for blob in repository.commits[sha].values() if blob.name.startswith(prefix)]
    if folder and not below:
        return None
    folders = {parent for blob in below for parent in parents(blob.name) if parent.startswith(prefix)} - {folder}
    entries = [folder_entry(name) for name in sorted(folders)] + [file_entry(blob, repository.xet) for blob in below]
    if not recursive:
        entries = [entry for entry in entries if "/" not in entry["path"][len(prefix) :]]
    return [{**entry, **details(sha, entry)} for entry in entries] if expand else entries


def parents(name: str) -> Iterable[str]:
    return (path.as_posix() for path in PurePosixPath(name).parents if path.name)


def folder_entry(name: str) -> Json:
    return {"type": "directory", "oid": hashlib.sha1(f"tree {name}".encode()).hexdigest(), "size": 0, "path": name}


def file_entry(blob: Blob, xet: bool) -> Json:
    entry: Json = {"type": "file", "oid": blob.oid, "size": blob.size, "path": blob.name}
    if blob.lfs:
        entry["lfs"] = {"oid": blob.sha256, "size": blob.size, "pointerSize": len(blob.pointer)}
        if xet:
            entry["xetHash"] = blob.xet_hash
    return entry


def details(sha: str, entry: Json) -> Json:
    """What `expand` adds."""
    scan = {"status": "safe", "avScan": {"status": "safe"}, "pickleImportScan": None}
    commit = {"id": sha, "title": "Upload", "date": DATE}
    return {"lastCommit": commit} | ({"securityFileStatus": scan} if entry["type"] == "file" else {})


def shard_headers(files: Mapping[str, Blob], index_name: str) -> Json | None:
    """The answer of /safetensors-metadata: every shard's header in one object; None where there is no such index."""
    index = read_json(files.get(index_name))
    shards = sorted(set(index.get("weight_map", {}).values()))
    if not shards or not all(shard in files for shard in shards):
        return None
    return {"index": {"metadata": index.get("metadata")}, "headers": {s: safetensors_header(files[s]) for s in shards}}


def safetensors_header(blob: Blob) -> Json:
    """The header as it is stored; empty where it makes no sense."""
    length = int.from_bytes(blob.read(0, min(8, blob.size)), "little")
    if blob.size < 8 or length > min(MAX_HEADER, blob.size - 8):
        return {}
    return read_json(Blob("header.json", blob.read(8, 8 + length)))


def parameters(blobs: Iterable[Blob]) -> Json | None:
    """Parameter counts by dtype, as the Hub states them for safetensors."""
    counts: dict[str, int] = {}
    for blob in blobs:
        header = safetensors_header(blob) if blob.name.endswith(".safetensors") else {}
        with suppress(AttributeError, KeyError, TypeError):
            for name, entry in header.items():
                if name != "__metadata__":
                    counts[entry["dtype"]] = counts.get(entry["dtype"], 0) + product(entry["shape"])
    return {"parameters": counts, "total": sum(counts.values())} if counts else None


def product(shape: Iterable[int]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def read_json(blob: Blob | None) -> Json:
    """A JSON object; empty where there is none."""
    with suppress(ValueError, RecursionError):
        value = json.loads(blob.read(0, blob.size)) if blob else {}
        return value if isinstance(value, dict) else {}
    return {}
