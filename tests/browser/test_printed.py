"""The reader of printed pages, on a page whose every byte is known."""

from __future__ import annotations

import zlib

import pytest

from browser.printed import printed_runs

# As fonts with ligatures have it: one glyph whose letter is the sign "ﬁ", and one that no sign stands for.
LETTERS = b"""endcodespacerange
3 beginbfchar
<0001> <0073>
<0002> <0074>
<0003> <FB01>
endbfchar
"""


def page_that_shows(content: bytes) -> bytes:
    """A PDF as Chromium writes it, less all that the reader does not look at."""
    bodies = (
        b"<</Type /Page /Resources <</Font <</F4 2 0 R>>>> /Contents 4 0 R>>\n",
        b"<</Type /Font /Subtype /Type0 /ToUnicode 3 0 R>>\n",
        b"<<>> stream\n" + zlib.compress(LETTERS) + b"\nendstream\n",
        b"<<>> stream\n" + zlib.compress(content) + b"\nendstream\n",
    )
    return b"".join(b"%d 0 obj\n%bendobj\n" % (number, body) for number, body in enumerate(bodies, 1))


@pytest.mark.parametrize(
    ("actual", "read"),
    [
        (b"(fi)", "fi"),
        (b"<6669>", "fi"),
        (b"<FEFF00660069>", "fi"),
        (b"<FEFFD55C>", "한"),
        (rb"(\(f\\\))", "(f\\)"),
        (rb"(\146i)", "fi"),
    ],
)
@pytest.mark.parametrize("glyph", [b"0003", b"0099"])
def test_a_glyph_of_several_letters_is_read_as_its_letters(glyph: bytes, actual: bytes, read: str) -> None:
    opened = (
        b"BT\n/Span<</ActualText " + actual + b" >> BDC\n/F4 11.3 Tf\n1 0 0 -1 188 460 Tm\n<" + glyph + b"> Tj\nEMC\n"
    )
    rest = b"7.1 0 Td <0001> Tj\n4.4 0 Td <0002> Tj\nET\nBT\n/F4 11.3 Tf\n<0002> Tj\nET\n"
    assert printed_runs(page_that_shows(opened + rest)) == [[f"{read}st", "t"]]
