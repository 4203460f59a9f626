"""The fixed words of the page in each language, and the texts of a record as that language's readers see them."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from markupsafe import Markup, escape

from modelkin.report.phrasebook import korean
from modelkin.report.text import plain

Language = Literal["en", "ko"]
LANGUAGES: tuple[Language, ...] = ("en", "ko")
Words = dict[str, Any]
CODE = re.compile("`([^`<>]+)`")
POWER = re.compile(r"\b10\^(-?[0-9.]*[0-9])")
STARTS_A_PHRASE = re.compile(r"[a-z]+[ ,:]|[a-z]+$")  # a word, and no name such as sha256 or owner/model


@cache
def words(language: Language) -> Words:
    text = files("modelkin.report.html").joinpath(f"words_{language}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


@cache
def survey_words(language: Language) -> Words:
    """Those of a survey's page, beside what every page says."""
    text = files("modelkin.report.html").joinpath(f"survey_{language}.toml").read_text(encoding="utf-8")
    return {"page": words(language)["page"], **tomllib.loads(text)}


def label(question: str, language: Language) -> str:
    """What a question is called; one that has no name here shows its id."""
    return str(words(language)["questions"]["label"].get(question, plain(question)))


def said(text: str, language: Language) -> tuple[str, Language]:
    """A sentence of the record in that language, or in English where nobody has translated it."""
    translated = korean(text) if language == "ko" else None
    return (text, "en") if translated is None else (translated, "ko")


def told(text: str, language: Language) -> Markup:
    """The same for the page: what stays English is marked so, and everything is escaped."""
    shown, spoken = said(plain(text), language)
    if spoken == "en" and STARTS_A_PHRASE.match(shown):
        shown = shown[0].upper() + shown[1:]
    marked = Markup(POWER.sub(r"10<sup>\1</sup>", CODE.sub(r"<code>\1</code>", str(escape(shown)))))
    return marked if spoken == language else Markup('<span lang="{}">{}</span>').format(spoken, marked)
