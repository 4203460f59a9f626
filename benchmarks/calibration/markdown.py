"""Numbers and tables as the page spells them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """The first columns are `words`, the others numbers, to the right."""
    lines = [head, ["---"] * words + ["---:"] * (len(head) - words), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def per_cent(share: float) -> str:
    """Three digits, and enough of them for a small share."""
    return "0 %" if share == 0 else f"{100 * share:.3g} %"


def scientific(log10: float) -> str:
    """10^-214 as 1e-214: powers that no float holds."""
    if log10 > -4:
        return f"{10**log10:.2g}"
    whole = -int(-log10 // 1)
    lead = 10 ** (log10 - whole)
    if round(lead, 1) < 1:
        whole, lead = whole - 1, lead * 10
    return f"{lead:.0f}e{whole}" if round(lead) < 10 else f"1e{whole + 1}"


def updated(page: str, blocks: Mapping[str, str]) -> str:
    """The page with every block between its marks, `<!-- name -->` and `<!-- /name -->`."""
    for name, text in blocks.items():
        marks = re.compile(rf"<!-- {name} -->\n.*?<!-- /{name} -->", re.DOTALL)
        if not marks.search(page):
            raise ValueError(f"the page has no <!-- {name} --> … <!-- /{name} -->: put each on a line of its own")
        before, after = marks.split(page)[0], marks.split(page)[-1]
        page = f"{before}<!-- {name} -->\n{text}\n<!-- /{name} -->{after}"
    return page
