"""Korean for the English texts that records hold: from the text alone, by the phrases of BOOKS.

A phrase is an English pattern and its Korean. Placeholders have a kind and, where one kind comes twice, a number:

    {n} a number      {share} 12 %, under 1 %      {side} A or B      {id} one name without spaces
    {name} any text, as it is      {things} a few of them, joined by commas and "and", as they are
    {list} known parts, joined the same way      {role} the same, of what layers hold      {text} any known text
    {weights} the same, of names each with a number

`<one|other|>` in the English lists what may stand there; `<1:하나|다른 것|>` in the Korean takes the same choice of the
first such group. After a placeholder `은(는)`, `이(가)`, `을(를)`, `과(와)` and `(으)로` follow its last sound.

Of the phrases that fit, the one with most letters of its own wins. A text that is no phrase is taken apart at "; " and
at the ends of sentences; one piece that nobody knows makes the whole unknown, for half a translation misleads.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import product

BOOKS = ("phrases_ko.toml", "phrases_survey_ko.toml")
FIGURES = "phrases_figures_ko.toml"
LONGEST = 4000  # letters; no text of a record comes near
MOST_PIECES = 100  # of a text, or of a list in it
MOST_TRIES = 4000  # fits looked for in one text, after which it is none of ours
DEEPEST = 8  # phrases inside phrases
START = 3  # letters that phrases are sorted by
DIGITS_OR_SIGN = frozenset("0123456789-ni")  # nan, inf
NUMBER = r"(?>-?(?:\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf)(?!\d))"
ANYTHING = ".+?"
THING = r"[^\s,;()]{1,80}"
KINDS = {
    "n": NUMBER,
    "share": r"(?:under |over )?\d+(?:\.\d+)? ?%",
    "side": "[AaBb]",
    "id": r"[\w.-]{1,100}",
    "things": rf"{THING}(?:(?:, | and ){THING}){{0,200}}",
    **dict.fromkeys(("name", "role", "list", "weights", "text"), ANYTHING),
}
TOLD = ("texts", "parts", "roles")  # what may be a text by itself
SECTIONS = (*TOLD, "weights")
LISTED = {"list": "parts", "role": "roles", "weights": "weights"}
PLACEHOLDER = re.compile(r"\{([a-z]+)\d*\}")
GROUP = re.compile(r"<([^<>]*)>")
CHOICE = re.compile(r"<(\d):([^<>]*)>")
FILLED = re.compile(r"\{(\w+)\}(은\(는\)|이\(가\)|을\(를\)|과\(와\)|\(으\)로)?")
SHARE = re.compile(r"(under |over )?(.+?) ?%")
BREAK = re.compile(r"; |(?<=[a-z)`]\.) (?=[A-Z`])")
JOINT = re.compile(", | and ")


def korean(text: str) -> str | None:
    """The Korean of a text that a record holds; None where any piece of it is unknown."""
    return _korean(text) if len(text) <= LONGEST else None


@lru_cache(maxsize=4096)
def korean_of_figure(text: str) -> str | None:
    """The same of what stands in a picture: short words that elsewhere may be names."""
    return _Reader(_phrases(FIGURES)).text(text) if len(text) <= LONGEST else None


@lru_cache(maxsize=4096)
def _korean(text: str) -> str | None:
    return _Reader(_phrases()).text(text)


# The phrases.


@dataclass(frozen=True)
class Phrase:
    """One English pattern without choices, and its Korean. `own`: its letters, between the placeholders."""

    names: tuple[str, ...]
    own: tuple[str, ...]
    korean: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Compiled when it is first looked at: most reports meet a few dozen of hundreds.

        What may be any text ends where what follows it first fits, and nothing is tried again: so the time that a text
        takes grows with its length and no faster.
        """
        pieces = [re.escape(self.own[0])]
        for name, after in zip(self.names, self.own[1:], strict=True):
            piece = f"({KINDS[_kind(name)]}){re.escape(after)}"
            if KINDS[_kind(name)] == ANYTHING:
                pieces.append(piece)
            else:
                pieces[-1] += piece
        return re.compile("".join([*(f"(?>{piece})" for piece in pieces[:-1]), pieces[-1]]))

    @cached_property
    def anchor(self) -> str:
        return max(self.own, key=len)

    @cached_property
    def letters(self) -> int:
        return sum(map(len, self.own))


@dataclass(frozen=True)
class Section:
    """Phrases by their first letters: under 0 those that begin with a number, under none those with a placeholder."""

    by_start: Mapping[str, Sequence[Phrase]]

    def candidates(self, text: str) -> list[Phrase]:
        """Those that may fit, the one with most letters of its own first."""
        starts = (text[:START], "", *(("0",) if text[:1] in DIGITS_OR_SIGN else ()))
        near = [phrase for start in starts for phrase in self.by_start.get(start, ()) if phrase.anchor in text]
        return sorted(near, key=lambda phrase: -phrase.letters)


Phrases = Mapping[str, Section]


@cache
def _phrases(*more: str) -> Phrases:
    return phrases(*(files("modelkin.report").joinpath(book).read_text("utf-8") for book in (*BOOKS, *more)))


def phrases(*books: str) -> Phrases:
    """Read strictly: every placeholder of the English stands in the Korean, and the other way round."""
    found: dict[str, dict[str, str]] = {}
    for name, body in (section for book in books for section in tomllib.loads(book).items()):
        found.setdefault(name, {}).update(body)
    if set(found) != set(SECTIONS):
        raise ValueError(f"the phrasebook has the sections {', '.join(found)}, not {', '.join(SECTIONS)}")
    return {name: _section(body) for name, body in found.items()}


def _section(body: Mapping[str, str]) -> Section:
    by_start: dict[str, list[Phrase]] = {}
    for phrase in every(body):
        by_start.setdefault(_start(phrase), []).append(phrase)
    return Section(by_start)


def every(section: Mapping[str, str]) -> Iterator[Phrase]:
    """Each choice of each phrase of a section."""
    return (phrase for english, korean in section.items() for phrase in _without_choices(english, korean))


def _start(phrase: Phrase) -> str:
    start = phrase.own[0][:START]
    if len(start) == START or not phrase.names:
        return start
    return "0" if not start and _kind(phrase.names[0]) == "n" else ""


def _without_choices(english: str, korean: str) -> Iterator[Phrase]:
    groups = [group.split("|") for group in GROUP.findall(english)]
    for chosen in product(*(range(len(group)) for group in groups)):
        words = iter(group[i] for group, i in zip(groups, chosen, strict=True))
        plain = GROUP.sub(lambda _, words=words: next(words), english)  # type: ignore[misc]
        yield _phrase(plain, CHOICE.sub(_chooser(chosen), korean))


def _chooser(chosen: Sequence[int]) -> Callable[[re.Match[str]], str]:
    return lambda group: group[2].split("|")[chosen[int(group[1]) - 1]]


def _phrase(english: str, korean: str) -> Phrase:
    names = tuple(found[0][1:-1] for found in PLACEHOLDER.finditer(english))
    if set(names) != {found[1] for found in FILLED.finditer(korean)} or len(set(names)) < len(names):
        raise ValueError(f"placeholders differ between {english!r} and {korean!r}, or one comes twice")
    return Phrase(names, tuple(PLACEHOLDER.split(english)[::2]), korean)


def _kind(name: str) -> str:
    return name.rstrip("0123456789")


# A text, read by them.


@dataclass
class _Reader:
    """Reads one text. `tries` bounds the work that a hostile one can ask for."""

    phrases: Phrases
    tries: int = MOST_TRIES
    known: dict[tuple[str, str], str | None] = field(default_factory=dict)

    def text(self, text: str, depth: int = 0) -> str | None:
        """A phrase, or several one after the other, the longest first."""
        if (text, "") not in self.known:
            self.known[text, ""] = None  # a text inside itself is no text
            self.known[text, ""] = self._in_pieces(text, depth)
        return self.known[text, ""]

    def _in_pieces(self, text: str, depth: int) -> str | None:
        whole = self.phrase(text, depth)
        if whole is not None:
            return whole
        cuts = list(BREAK.finditer(text))
        for cut in reversed(cuts) if len(cuts) < MOST_PIECES else ():
            head = self.phrase(text[: cut.start()], depth)
            tail = None if head is None else self.text(text[cut.end() :], depth)
            if tail is not None:
                return f"{head}{cut[0]}{tail}"
        return None

    def phrase(self, text: str, depth: int) -> str | None:
        return next((told for section in TOLD if (told := self.part(text, section, depth)) is not None), None)

    def part(self, text: str, section: str, depth: int) -> str | None:
        """A phrase of one section. A part at the beginning of a sentence has a capital."""
        if (text, section) not in self.known:
            self.known[text, section] = None
            told = self._fitting(text, section, depth)
            if told is None and section == "parts" and text[:1].isupper():
                told = self._fitting(text[0].lower() + text[1:], section, depth)
            self.known[text, section] = told
        return self.known[text, section]

    def _fitting(self, text: str, section: str, depth: int) -> str | None:
        self.tries -= 1
        for phrase in self.phrases[section].candidates(text) if depth <= DEEPEST and self.tries > 0 else ():
            self.tries -= 1
            found = phrase.pattern.fullmatch(text) if self.tries > 0 else None
            told = None if found is None else self._filled(phrase, found.groups(), depth + 1)
            if told is not None:
                return told
        return None

    def _filled(self, phrase: Phrase, groups: Sequence[str], depth: int) -> str | None:
        words: dict[str, str] = {}
        for name, group in zip(phrase.names, groups, strict=True):
            word = self._word(_kind(name), group, depth)
            if word is None:
                return None
            words[name] = word
        return FILLED.sub(lambda hole: words[hole[1]] + particle(words[hole[1]], hole[2] or ""), phrase.korean)

    def _word(self, kind: str, text: str, depth: int) -> str | None:
        if kind == "text":
            return self.text(text, depth)
        if kind in LISTED:
            return self._listed(text, LISTED[kind], depth)
        if kind == "things":
            return _joined(JOINT.split(text), JOINT.findall(text))
        if kind == "share":
            return _share(text)
        return text.upper() if kind == "side" else text

    def _listed(self, text: str, section: str, depth: int) -> str | None:
        """Parts one after the other. A part may hold a comma itself, so the longest comes first; but a name may hold
        anything, so of names the shortest does."""
        whole = None if section == "weights" else self.part(text, section, depth)
        if whole is not None:
            return whole
        cuts = list(JOINT.finditer(text))
        if len(cuts) >= MOST_PIECES:
            return None
        for cut in cuts if section == "weights" else reversed(cuts):
            head = self.part(text[: cut.start()], section, depth)
            tail = None if head is None else self._listed(text[cut.end() :], section, depth)
            if head is not None and tail is not None:
                return _joined([head, tail], [cut[0]])
        return self.part(text, section, depth)


def _joined(words: Sequence[str], joints: Sequence[str]) -> str:
    told = words[0]
    for word, joint in zip(words[1:], joints, strict=True):
        told += f", {word}" if joint == ", " else f"{particle(told, '과(와)')} {word}"
    return told


def _share(text: str) -> str:
    found = SHARE.fullmatch(text)
    assert found is not None  # its kind is no other
    return f"{found[2]} %" + {"under ": " 미만", "over ": " 초과", None: ""}[found[1]]


# Particles.

PAIRS = {
    "은(는)": ("은", "는"),
    "이(가)": ("이", "가"),
    "을(를)": ("을", "를"),
    "과(와)": ("과", "와"),
    "(으)로": ("으로", "로"),
}
SILENT = "”’\"'`)]} "
DIGITS = "영일이삼사오육칠팔구"
LETTERS = {"l": "엘", "m": "엠", "n": "엔", "r": "알"}
WORD_ENDS = re.compile(r"(?P<l>le?|lle)$|(?P<m>me?)$|(?P<n>ng?|ne)$|(?P<stop>(?<=[aeiou])[kpt]|ck)$")


def particle(word: str, pair: str) -> str:
    """The one of a pair that follows the last sound of a word; both, as they are, where nobody can tell how it ends."""
    if not pair:
        return ""
    last = _last_sound(word.rstrip(SILENT))
    if last is None:
        return pair
    closed, open_ = PAIRS[pair]
    ending = (ord(last) - 0xAC00) % 28
    return open_ if ending == 0 or (pair == "(으)로" and ending == 8) else closed  # ㄹ is the eighth


def _last_sound(word: str) -> str | None:
    """A syllable of Hangul that ends as the word does. Zeros that end a whole number read 십, 백, 천 or 만: closed."""
    last = word[-1:]
    if "가" <= last <= "힣":
        return last
    if last.isascii() and last.isdigit():
        return DIGITS[int(last)]
    if last == "%":
        return "트"
    return _last_sound_of_latin(word) if last.isascii() and last.isalpha() else None


def _last_sound_of_latin(word: str) -> str:
    """Capitals and single letters are spelt out; words end as they are mostly read."""
    run = re.search(r"[A-Za-z]+$", word)
    letters = run[0] if run else ""
    if letters.isupper() or len(letters) == 1:
        return LETTERS.get(letters[-1].lower(), "이")
    ends = WORD_ENDS.search(letters.lower())
    return {"l": "엘", "m": "엠", "n": "엔", "stop": "악"}[ends.lastgroup or ""] if ends else "이"
