"""A tokenizer file in hand: its bytes, decoded with errors that name it."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec

from modelkin.errors import HeaderLies
from modelkin.vocabulary.json_text import NotJson, decoded

MAX_FILE = 256 << 20
MAX_ENTRIES = 1 << 22  # four times the largest vocabulary known; every list of tokens is bounded by it
MAX_ID = (1 << 32) - 1
LFS_POINTER = b"version https://git-lfs"
HINT = "fetch the tokenizer files again, or save them again with the library that made them"

Id = Annotated[int, msgspec.Meta(ge=0, le=MAX_ID)]
Ids = Annotated[dict[str, Id], msgspec.Meta(max_length=MAX_ENTRIES)]
T = TypeVar("T")


class TokenizerFile(msgspec.Struct, frozen=True):
    name: str
    body: bytes
    where: str

    def lies(self, message: str, hint: str = HINT) -> HeaderLies:
        return HeaderLies(f"{self.name} {message}", where=self.where, hint=hint)

    def json(self, type: type[T]) -> T:
        try:
            return decoded(self.body, type)
        except NotJson as error:
            raise self.lies(str(error)) from error

    def json_object(self) -> dict[str, Any]:
        return self.json(dict[str, Any])

    def lines(self) -> list[str]:
        """Split at newlines only: tokens may hold any of Unicode's other line ends."""
        try:
            lines = self.body.decode().split("\n")
        except UnicodeDecodeError as error:
            raise self.lies(f"is not UTF-8: {error.reason} at byte {error.start}") from error
        if not lines[-1]:
            lines.pop()
        return [line.removesuffix("\r") for line in lines]
