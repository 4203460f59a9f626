"""How tokenizers write their tokens, and the bytes that each token stands for.

    byte-level      "Ġthe"      GPT-2's alphabet, one printable character a byte          b" the"
    SentencePiece   "▁the"      "▁" is a space                                            b" the"
                    "<0xE2>"    a byte piece                                              b"\\xe2"
    WordPiece       "the"       no mark: a word starts here, so a space precedes it       b" the"
                    "##ing"     the mark of a continuation                                b"ing"
    word ends       "the</w>"   the mark of a word's end, so a space follows it           b"the "

WordPiece marks continuations and the others mark spaces; a word start is given the space, so that "the" of BERT meets
" the" of GPT-2. That holds for punctuation too ("," is b" ,", "##," is b","): two tokens never become one.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Collection, Iterable, Iterator

import msgspec

SPACE = "▁"
CONTINUATION = "##"
WORD_END = "</w>"
BYTE_PIECES = {f"<0x{byte:02X}>": byte for byte in range(256)}


def _byte_alphabet() -> str:
    """GPT-2's, by byte: printable Latin-1 stands for itself, the other 68 bytes are U+0100 and up, in order."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET = _byte_alphabet()
_BYTE_OF_LETTER = codecs.charmap_build(BYTE_ALPHABET)


def byte_spelled(content: bytes) -> str:
    """Bytes in GPT-2's alphabet, as a converted tokenizer would write them."""
    return codecs.charmap_decode(content, "strict", BYTE_ALPHABET)[0]


class Spelling(msgspec.Struct, frozen=True):
    """The marks of one tokenizer; empty where it has none."""

    byte_level: bool = False
    space: str = ""  # "▁"
    continuation: str = ""  # "##"; tokens without it start a word
    word_end: str = ""  # "</w>"
    whole_words: bool = False  # every token is a word, so every token starts one

    def contents(self, tokens: Iterable[str]) -> Iterator[bytes]:
        """The bytes of each token, in order."""
        read = self._within_word()
        if self.word_end:
            read = _with_word_end(read, self.word_end)
        return map(read, tokens)

    def _within_word(self) -> Callable[[str], bytes]:
        if self.byte_level:
            return _byte_level
        if self.space:
            space = self.space
            return lambda token: token.replace(space, " ").encode()
        if self.continuation:
            return _with_continuation(self.continuation)
        if self.whole_words:
            return lambda token: b" " + token.encode()
        return str.encode


def _byte_level(token: str) -> bytes:
    if token.isascii():
        return token.encode()
    try:
        return codecs.charmap_encode(token, "strict", _BYTE_OF_LETTER)[0]
    except UnicodeEncodeError:
        return token.encode()  # put into the vocabulary as plain text; the tokenizers library reads it so too


def _with_continuation(mark: str) -> Callable[[str], bytes]:
    size = len(mark)  # "##" alone is those two characters
    return lambda token: token[size:].encode() if token.startswith(mark) and token != mark else b" " + token.encode()


def _with_word_end(read: Callable[[str], bytes], mark: str) -> Callable[[str], bytes]:
    return lambda token: read(token[: -len(mark)]) + b" " if token.endswith(mark) else read(token)


def guessed_spelling(tokens: Collection[str]) -> Spelling:
    """From the tokens alone, for files that do not say how they are written."""
    word_ends = sum(token.endswith(WORD_END) for token in tokens)
    word_end = WORD_END if 10 * word_ends >= len(tokens) > 0 else ""
    spaces = sum(token.startswith(SPACE) for token in tokens)
    byte_spaces = sum(token.startswith("Ġ") for token in tokens)
    if byte_spaces > spaces or (word_end and _has_byte_alphabet(tokens)):
        return Spelling(byte_level=True, word_end=word_end)
    if spaces:
        return Spelling(space=SPACE, word_end=word_end)
    if any(token.startswith(CONTINUATION) and token != CONTINUATION for token in tokens):
        return Spelling(continuation=CONTINUATION)
    return Spelling(word_end=word_end)


def _has_byte_alphabet(tokens: Collection[str]) -> bool:
    """CLIP has no "Ġ" at a token's start, but a token for each byte."""
    return len({token for token in tokens if len(token) == 1}.intersection(BYTE_ALPHABET)) >= 250
