"""The words of a PDF that Chromium wrote, page by page.

Not a reader of any PDF: this one has its objects in plain sight, its streams deflated, and fonts with a table of
the letters that their glyphs stand for. Where one glyph is drawn for several letters, as many fonts do for "fi", the
table names at best a sign of its own, and the letters stand beside the glyph, as its actual text. Which fonts a machine
has must not change what is read.
"""

from __future__ import annotations

import re
import zlib

OBJECT = re.compile(rb"(\d+) 0 obj\n(.*?)endobj", re.DOTALL)
PAGE = re.compile(rb"/Type /Page\b")
FONT = re.compile(rb"/(F\d+) (\d+) 0 R")
ACTUAL = rb"/ActualText ?(\((?:\\.|[^\\)])*\)|<[0-9A-Fa-f]*>) ?>> ?BDC"
SHOWN = re.compile(rb"/(F\d+) [\d.]+ Tf|" + ACTUAL + rb"|<([0-9A-Fa-f]+)> ?Tj|(EMC|ET)\n", re.DOTALL)
ESCAPED = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
SINGLE = re.compile(rb"^<(\w+)> <(\w+)>$", re.MULTILINE)
RANGE = re.compile(rb"^<(\w+)> <(\w+)> <(\w+)>$", re.MULTILINE)


def printed_runs(pdf: bytes) -> list[list[str]]:
    """Pieces of text of every page, in the order of painting: what stands at its head and foot first."""
    objects = {int(number): body for number, body in OBJECT.findall(pdf)}
    return [_runs(page, objects) for page in objects.values() if PAGE.search(page)]


def _runs(page: bytes, objects: dict[int, bytes]) -> list[str]:
    fonts = {name: Font(objects[int(number)], objects) for name, number in FONT.findall(page)}
    runs, font, spelt = [""], None, False
    for name, actual, glyphs, end in SHOWN.findall(_stream(page, b"/Contents", objects)):
        if name:
            font = fonts[name]
        elif actual:
            runs[-1] += _string(actual)
            spelt = True
        elif end == b"EMC":
            spelt = False
        elif end:
            runs.append("")
        elif font and not spelt:
            runs[-1] += font.text(glyphs)
    return [run for run in runs if run.strip()]


class Font:
    def __init__(self, font: bytes, objects: dict[int, bytes]) -> None:
        self.digits = 2 if b"/Subtype /Type3" in font else 4
        table = _stream(font, b"/ToUnicode", objects).partition(b"endcodespacerange")[2]
        self.letters = {int(glyph, 16): _unicode(text) for glyph, text in SINGLE.findall(table)}
        for first, last, text in RANGE.findall(table):
            start = int(first, 16)
            self.letters |= {glyph: chr(int(text, 16) + glyph - start) for glyph in range(start, int(last, 16) + 1)}

    def text(self, glyphs: bytes) -> str:
        return "".join(self.letters[int(one, 16)] for one in re.findall(rb"\w" * self.digits, glyphs))


def _string(written: bytes) -> str:
    """A string as a PDF writes it: (letters, some of them escaped) or <hexadecimal>, in one byte each or in UTF-16."""
    if written.startswith(b"<"):
        told = bytes.fromhex(written[1:-1].decode())
    else:
        told = ESCAPED.sub(lambda one: bytes([int(one[1], 8)]) if one[1].isdigit() else one[1], written[1:-1])
    return told[2:].decode("utf-16-be") if told.startswith(b"\xfe\xff") else told.decode("latin-1")


def _unicode(digits: bytes) -> str:
    return bytes.fromhex(digits.decode()).decode("utf-16-be")


def _stream(owner: bytes, key: bytes, objects: dict[int, bytes]) -> bytes:
    named = re.search(key + rb" (\d+) 0 R", owner)
    assert named, f"no {key.decode()} in {owner[:200]!r}"
    body = objects[int(named[1])]
    return zlib.decompressobj().decompress(body[body.index(b"stream\n") + len(b"stream\n") :])
