"""Script classes and spellings, one token at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from modelkin.vocabulary.scripts import SCRIPTS, script_class
from modelkin.vocabulary.spelling import BYTE_ALPHABET, Spelling, byte_spelled, guessed_spelling


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" the", "ascii-letters"),
        ("don't", "ascii-letters"),
        ("x86", "ascii-letters"),
        ("café", "latin"),
        ("ＡＢＣ", "latin"),
        ("123", "digits"),
        ("٣", "digits"),
        ("...", "punctuation"),
        (" +=", "punctuation"),
        ("$1", "mixed"),
        ("。", "punctuation"),
        ("", "whitespace"),
        ("   ", "whitespace"),
        ("\n\t", "whitespace"),
        ("\u3000", "whitespace"),
        (" 한국어", "hangul"),
        ("습니다.", "hangul"),
        ("ㅋㅋ", "hangul"),
        ("\u1112\u1161\u11ab", "hangul"),
        ("中国", "han"),
        ("ひらがな", "kana"),
        ("カー", "kana"),
        ("ｶﾅ", "kana"),
        ("日本の", "kana"),
        ("Привет", "cyrillic"),
        ("مرحبا", "arabic"),
        ("हिन्दी", "devanagari"),
        ("ไทย", "other"),
        ("🙂", "other"),
        ("\x00", "other"),
        ("한a", "mixed"),
        ("中a", "mixed"),
    ],
)
def test_script_class(text: str, expected: str) -> None:
    assert script_class(text.encode()) == expected


def test_part_of_a_character_is_invalid() -> None:
    assert script_class("한".encode()[:2]) == "invalid-utf8"
    assert script_class(b"\xed") == "invalid-utf8"


@given(st.binary(max_size=12))
def test_every_token_has_a_class(content: bytes) -> None:
    assert script_class(content) in SCRIPTS


def test_the_byte_alphabet_is_that_of_the_library() -> None:
    assert set(BYTE_ALPHABET) == set(pre_tokenizers.ByteLevel.alphabet())
    assert len(BYTE_ALPHABET) == 256


@given(st.binary(max_size=20))
def test_bytes_survive_the_byte_alphabet(content: bytes) -> None:
    assert list(Spelling(byte_level=True).contents([byte_spelled(content)])) == [content]


@given(st.text(min_size=1, max_size=8))
def test_text_in_the_byte_alphabet_is_spelled_as_by_the_library(text: str) -> None:
    step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    assert [byte_spelled(text.encode())] == [word for word, _ in step.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("spelling", "token", "content"),
    [
        (Spelling(byte_level=True), "Ġthe", b" the"),
        (Spelling(byte_level=True, word_end="</w>"), "the</w>", b"the "),
        (Spelling(space="▁"), "▁the▁", b" the "),
        (Spelling(continuation="##"), "the", b" the"),
        (Spelling(continuation="##"), "##ing", b"ing"),
        (Spelling(continuation="##"), "##", b" ##"),
        (Spelling(whole_words=True), "the", b" the"),
        (Spelling(), "the", b"the"),
    ],
)
def test_content(spelling: Spelling, token: str, content: bytes) -> None:
    assert list(spelling.contents([token])) == [content]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        (["the", "Ġthe"], Spelling(byte_level=True)),
        (["the", "▁the"], Spelling(space="▁")),
        (["the", "##s"], Spelling(continuation="##")),
        (["the", "##"], Spelling()),
        (["the</w>", "th"], Spelling(word_end="</w>")),
        ([*BYTE_ALPHABET, *(f"{letter}</w>" for letter in BYTE_ALPHABET)], Spelling(byte_level=True, word_end="</w>")),
        ([], Spelling()),
    ],
)
def test_spelling_is_guessed_from_tokens(tokens: list[str], expected: Spelling) -> None:
    assert guessed_spelling(tokens) == expected
