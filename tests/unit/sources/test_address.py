from __future__ import annotations

from pathlib import Path

import pytest

from modelkin.errors import UsageError
from modelkin.sources.address import HubAddress, parse_address

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("acme/tiny", HubAddress("acme/tiny", "main")),
        ("acme/tiny@v1.0", HubAddress("acme/tiny", "v1.0")),
        ("hf://acme/tiny@v1.0", HubAddress("acme/tiny", "v1.0")),
        ("hf://acme/tiny", HubAddress("acme/tiny", "main")),
        ("acme/tiny@refs/pr/3", HubAddress("acme/tiny", "refs/pr/3")),
        ("https://huggingface.co/acme/tiny", HubAddress("acme/tiny", "main")),
        ("gpt2", HubAddress("gpt2", "main")),
        (f"acme/tiny@{COMMIT}", HubAddress("acme/tiny", COMMIT)),
        ("/nowhere/at/all", Path("/nowhere/at/all")),
        ("./model", Path("./model")),
        ("weights.safetensors", Path("weights.safetensors")),
        ("some/deep/folder", Path("some/deep/folder")),
    ],
)
def test_an_address_is_understood(text: str, expected: object) -> None:
    assert parse_address(text) == expected


def test_only_a_full_commit_is_pinned() -> None:
    assert HubAddress("a/b", COMMIT).is_pinned
    assert not HubAddress("a/b", COMMIT[:12]).is_pinned
    assert not HubAddress("a/b", "main").is_pinned


def test_an_existing_folder_wins_over_a_repository_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "acme" / "tiny").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert parse_address("acme/tiny") == Path("acme/tiny")
    assert parse_address("hf://acme/tiny") == HubAddress("acme/tiny", "main")


@pytest.mark.parametrize("text", ["", "a b", "acme/tiny@", "-x", "hf://datasets/acme/data", "acme/ti\0ny", "hf://"])
def test_nonsense_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        parse_address(text)
