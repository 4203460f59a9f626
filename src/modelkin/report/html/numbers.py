"""Numbers as readers meet them: a chance in words, shares, counts."""

from __future__ import annotations

import math

from markupsafe import Markup

from modelkin.report.html.words import Language

# Powers of ten that have a name; from there on a reader needs the number of zeros.
NAMED: dict[Language, dict[int, str]] = {
    "en": {
        3: "a thousand",
        4: "ten thousand",
        5: "a hundred thousand",
        6: "a million",
        7: "ten million",
        8: "a hundred million",
        9: "a billion",
        10: "ten billion",
        11: "a hundred billion",
        12: "a million million",
    },
    "ko": {
        3: "천",
        4: "만",
        5: "10만",
        6: "100만",
        7: "1000만",
        8: "1억",
        9: "10억",
        10: "100억",
        11: "1000억",
        12: "1조",
    },
}


def zeros(log10_pvalue: float) -> int:
    """k for p ≤ 10⁻ᵏ; a hair above a power of ten, as rounding leaves it, still counts as that power."""
    return max(0, math.floor(-log10_pvalue + 1e-9))


def many(power: int, language: Language) -> Markup:
    """10ᵏ as one says it."""
    if power < 3:
        return Markup(10**power)
    named = NAMED[language].get(power)
    return Markup(named) if named else Markup("10<sup>{}</sup>").format(power)


def is_named(power: int, language: Language) -> bool:
    return power < 3 or power in NAMED[language]


def short(value: float) -> str:
    """A statistic: counts whole, the rest with four digits that say something."""
    return f"{value:,.0f}" if value == int(value) else f"{value:.4g}"
