"""What the user typed -> which model is meant."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from modelkin.errors import UsageError

OWNER_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}")
SINGLE_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,95}")
COMMIT = re.compile(r"[0-9a-f]{40}")
LOOKS_LIKE_PATH = re.compile(r"^[.~/\\]|\\|/.*/|\.(safetensors|bin|pt|pth|gguf)$")


class HubAddress(msgspec.Struct, frozen=True):
    repository: str
    revision: str = "main"

    @property
    def is_pinned(self) -> bool:
        return COMMIT.fullmatch(self.revision) is not None


Address = HubAddress | Path


def parse_address(text: str) -> Address:
    """`hf://owner/name@rev`, `owner/name@rev`, a web address of a model, a folder, or a file.

    A path that exists wins over a repository of the same spelling; `hf://` says that the Hub is meant.
    """
    if not text or "\0" in text:
        raise UsageError("an empty model name", hint="give owner/name, a folder, or a file")
    if text.startswith(("hf://", "https://", "http://")):
        return _from_uri(text)
    path = Path(text).expanduser()
    if _exists(path) or LOOKS_LIKE_PATH.search(text.partition("@")[0]):
        return path
    return _from_name(text, text)


def _exists(path: Path) -> bool:
    """Also true of a dead link and of what may not be looked at; a name too long for the file system is no path."""
    try:
        path.lstat()
    except PermissionError:
        return True
    except (OSError, ValueError):
        return False
    return True


def _from_uri(text: str) -> HubAddress:
    from huggingface_hub import constants
    from huggingface_hub.errors import HfUriError
    from huggingface_hub.utils import parse_hf_uri

    try:
        uri = parse_hf_uri(text, endpoint=constants.ENDPOINT)
    except (HfUriError, ValueError) as error:
        raise UsageError(f"not a Hub address: {error}", where=text, hint="write hf://owner/name@revision") from error
    if uri.type != "model" or uri.path_in_repo:
        raise UsageError("names something other than a whole model repository", where=text)
    return HubAddress(uri.id, uri.revision or "main")


def _from_name(name: str, text: str) -> HubAddress:
    repository, _, revision = name.partition("@")
    if not (OWNER_NAME.fullmatch(repository) or SINGLE_NAME.fullmatch(repository)) or ".." in repository:
        raise UsageError(
            "is neither an existing path nor a repository name", where=text, hint="write owner/name or owner/name@rev"
        )
    if "@" in name and not revision:
        raise UsageError("the revision after @ is empty", where=text)
    return HubAddress(repository, revision or "main")
