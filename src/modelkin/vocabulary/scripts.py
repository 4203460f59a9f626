"""Which script a token is written in, told from its bytes."""

from __future__ import annotations

import unicodedata

SCRIPTS = (
    "ascii-letters",
    "latin",
    "digits",
    "punctuation",
    "whitespace",
    "hangul",
    "han",
    "kana",
    "cyrillic",
    "arabic",
    "devanagari",
    "other",
    "mixed",
    "invalid-utf8",
    "special",
)
_BY_NAME = {
    "HANGUL": "hangul",
    "CJK": "han",
    "KANGXI": "han",
    "HIRAGANA": "kana",
    "KATAKANA": "kana",
    "KATAKANA-HIRAGANA": "kana",
    "CYRILLIC": "cyrillic",
    "ARABIC": "arabic",
    "DEVANAGARI": "devanagari",
    "LATIN": "latin",
}
_WIDTHS = ("HALFWIDTH ", "FULLWIDTH ")
_JOINED = {
    frozenset({"ascii-letters", "latin"}): "latin",
    frozenset({"han", "kana"}): "kana",  # Japanese
}


def script_class(content: bytes) -> str:
    """One of SCRIPTS.

    Spaces around and inside do not count. Digits and punctuation do not count beside the letters of one script
    ("습니다." is hangul); letters of two scripts, and digits with punctuation, are mixed. Han with kana is kana, ASCII
    with accented letters is latin.
    """
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return "invalid-utf8"
    if text.isascii() and text.strip(" ").isalpha():
        return "ascii-letters"
    classes = set(text.translate(_CODES))
    classes.discard(_WHITESPACE)
    letters = classes - _NEUTRAL
    return _resolved(frozenset(_NAMES[code] for code in (letters or classes)))


def _resolved(classes: frozenset[str]) -> str:
    if len(classes) == 1:
        return next(iter(classes))
    return _JOINED.get(classes, "mixed") if classes else "whitespace"


def _character_class(character: str) -> str:
    category = unicodedata.category(character)
    if character.isspace():
        return "whitespace"
    if category == "Nd":
        return "digits"
    if category[0] == "P" or category in ("Sm", "Sc", "Sk"):
        return "punctuation"
    if category[0] not in "LMN":
        return "other"
    if character.isascii():
        return "ascii-letters"
    name = unicodedata.name(character, "")
    for width in _WIDTHS:
        name = name.removeprefix(width)
    return _BY_NAME.get(name.split(" ", 1)[0], "other")


_NAMES = dict(zip("abcdefghijklmno", SCRIPTS, strict=True))
_CODE_OF = {name: code for code, name in _NAMES.items()}
_WHITESPACE = _CODE_OF["whitespace"]
_NEUTRAL = {_CODE_OF["digits"], _CODE_OF["punctuation"]}


class _Codes(dict[int, str]):
    """Code point -> one letter for its class, worked out when first met."""

    def __missing__(self, point: int) -> str:
        self[point] = code = _CODE_OF[_character_class(chr(point))]
        return code


_CODES = _Codes()
