"""Fetch the zoo's text from package registries and turn it into plain documents with recorded licences.

Code is Python wheels, pinned by version and hash in sources.toml. Prose and German come from Debian's documentation
packages: an archive keeps only its newest versions, so those are recorded in sources.json rather than pinned.
Nothing is installed. Needs pip, `apt-get download` and `dpkg-deb`.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import lzma
import re
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from zoo.commands import say

SOURCES = Path(__file__).resolve().parent / "sources.toml"
NOT_CODE = {"test", "tests", "testing", "idle_test", "_vendor", "vendor", "vendored", "externals", "extern"}
MODULE_LENGTH = range(200, 200_001)  # characters; shorter is a stub, longer a table
DOCUMENT_LENGTH = 16_000  # characters; a book in one file becomes several documents
PARAGRAPH_LENGTH = range(20, 8_001)


def rebuild(out: Path) -> None:
    """Fetch every source and write one compressed file a domain, and what went into it."""
    wanted = tomllib.loads(SOURCES.read_text("utf-8"))
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as room:
        code = [wheel_documents(wheel) for wheel in fetch_wheels(wanted["wheel"], Path(room))]
        packages = [package_documents(package, Path(room)) for package in wanted["package"]]
    record, seen = {}, set[str]()  # one set for all: what a translation left in English is in the prose already
    for domain in ("code", "prose", "german"):
        sources = [source for source in (*code, *packages) if source["domain"] == domain]
        record[domain] = write_domain(out / f"{domain}.jsonl.xz", sources, seen)
        say(f"{domain}: {record[domain]['documents']:,} documents, {record[domain]['characters']:,} characters")
    (out / "sources.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", "utf-8")


def write_domain(path: Path, sources: list[dict[str, Any]], seen: set[str]) -> dict[str, Any]:
    """Each document once, in the order of sources.toml and then of path."""
    entries, lines, total = [], [], hashlib.sha256()
    for source in sources:
        unseen = source.pop("unseen")
        kept = list(unseen(source.pop("documents"), seen))
        entries.append({**source, "documents": len(kept), "characters": sum(map(len, kept))})
        lines += [json.dumps(text, ensure_ascii=False) + "\n" for text in kept]
    for line in lines:
        total.update(line.encode())
    path.write_bytes(lzma.compress("".join(lines).encode(), preset=9 | lzma.PRESET_EXTREME))
    return {
        "documents": len(lines),
        "characters": sum(entry["characters"] for entry in entries),
        "compressed_bytes": path.stat().st_size,
        "sha256": total.hexdigest(),
        "sources": entries,
    }


# --- code ------------------------------------------------------------------------------------------------------------


def fetch_wheels(wheels: list[dict[str, str]], room: Path) -> list[dict[str, Any]]:
    """Pip itself refuses a file whose hash is not the one in sources.toml."""
    pins = "".join(f"{w['name']}=={w['version']} --hash=sha256:{w['sha256']}\n" for w in wheels)
    (room / "pins.txt").write_text(pins, "utf-8")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    say(f"fetching {len(wheels)} wheels")
    subprocess.run(
        [*pip, "--require-hashes", "--only-binary", ":all:", "--dest", str(room), "-r", str(room / "pins.txt")],
        check=True,
    )
    by_hash = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in room.glob("*.whl")}
    return [{**wheel, "path": by_hash[wheel["sha256"]]} for wheel in wheels]


def wheel_documents(wheel: dict[str, Any]) -> dict[str, Any]:
    with zipfile.ZipFile(wheel["path"]) as archive:
        names = sorted(name for name in archive.namelist() if is_code(name))
        texts = [archive.read(name).decode("utf-8", errors="replace") for name in names]
    documents = [text for text in texts if len(text) in MODULE_LENGTH and "\ufffd" not in text]
    about = {key: wheel[key] for key in ("name", "version", "licence", "sha256")}
    return {"domain": "code", **about, "files": len(documents), "documents": documents, "unseen": unseen_documents}


def is_code(name: str) -> bool:
    *folders, file = name.split("/")
    return file.endswith(".py") and not file.startswith("test_") and not NOT_CODE.intersection(folders)


def unseen_documents(documents: Iterable[str], seen: set[str]) -> Iterator[str]:
    for text in documents:
        if text not in seen:
            seen.add(text)
            yield text


# --- prose -----------------------------------------------------------------------------------------------------------


def package_documents(package: dict[str, Any], room: Path) -> dict[str, Any]:
    """One Debian package, unpacked but not installed."""
    say(f"fetching {package['name']}")
    folder = room / package["domain"] / package["name"]
    folder.mkdir(parents=True)
    # Run by root, apt would hand the download to a user that cannot write here, and complain.
    quiet = ["-qq", "-o", "APT::Sandbox::User=root"]
    subprocess.run(["apt-get", *quiet, "download", package["name"]], cwd=folder, check=True)
    (archive,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "-x", archive.name, "content"], cwd=folder, check=True)
    content = folder / "content"
    version = ["dpkg-deb", "--field", archive.name, "Version"]
    paths = chosen_paths(content, package)
    return {
        "domain": package["domain"],
        "name": package["name"],
        "version": subprocess.run(version, cwd=folder, check=True, capture_output=True, text=True).stdout.strip(),
        "licence": package["licence"],
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "files": len(paths),
        "documents": [paragraphs(path) for path in paths],
        "unseen": unseen_paragraphs,
    }


def chosen_paths(content: Path, package: dict[str, Any]) -> list[Path]:
    skip = re.compile(package.get("skip", r"(?!)"))
    found = {path for pattern in package["files"] for path in content.glob(pattern) if path.is_file()}
    return sorted(path for path in found if not path.is_symlink() and not skip.search(path.name))


def paragraphs(path: Path) -> list[str]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = decode(data)
    found = html_paragraphs(text) if ".html" in path.suffixes else man_paragraphs(text)
    return [paragraph for paragraph in found if is_prose(paragraph)]


def decode(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def is_prose(paragraph: str) -> bool:
    """Several words, mostly letters: no rows of a table, no bare names and no leftovers of a menu."""
    letters = sum(map(str.isalpha, paragraph))
    marks = sum(not c.isspace() for c in paragraph) - letters
    return len(paragraph) in PARAGRAPH_LENGTH and len(paragraph.split()) >= 4 and letters > 3 * marks


def unseen_paragraphs(documents: Iterable[list[str]], seen: set[str]) -> Iterator[str]:
    """Manuals repeat whole paragraphs, notices above all: each is kept where it comes first."""
    for document in documents:
        kept = []
        for paragraph in document:
            if paragraph not in seen:
                seen.add(paragraph)
                kept.append(paragraph)
        yield from parts(kept)


def parts(document: list[str]) -> Iterator[str]:
    """Whole paragraphs, up to a length; a part with next to nothing in it is left out."""
    some: list[str] = []
    for paragraph in document:
        if sum(map(len, some)) + len(paragraph) > DOCUMENT_LENGTH:
            yield "\n\n".join(some) + "\n"
            some = []
        some.append(paragraph)
    if sum(map(len, some)) >= MODULE_LENGTH.start:
        yield "\n\n".join(some) + "\n"


# --- HTML ------------------------------------------------------------------------------------------------------------

BLOCKS = {
    "address", "article", "aside", "blockquote", "body", "br", "caption", "dd", "div", "dl", "dt", "figcaption",
    "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "main", "ol", "p", "section", "table", "tbody", "td", "th",
    "thead", "tr", "ul",
}  # fmt: skip
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
NOT_TEXT = {
    "aside", "button", "footer", "form", "head", "header", "nav", "pre", "script", "select", "style", "svg",
    "textarea", "title",
}  # fmt: skip
NOT_TEXT_NAMES = {
    "MAC", "bottomlang", "docnav", "footer", "footnote-backref", "headerlink", "indextable",
    "indexterm", "menu", "mobile-nav", "navfooter", "navheader", "page-footer", "page-header", "path", "quickview",
    "refsynopsisdiv", "related", "sphinxsidebar", "synopsis", "toc", "topics", "toplang", "top", "up",
    "TopLeftHeader", "docinfo", "legalnotice",
}  # fmt: skip


class Paragraphs(HTMLParser):
    """Collects the text between block tags, without navigation and listings."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._words: list[str] = []
        self._skipped = ""  # the tag of the element that is being left out
        self._depth = 0  # of elements with that tag inside it, itself included

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in BLOCKS:
            self.finish()
        if self._skipped:
            self._depth += tag == self._skipped
        elif tag not in VOID and is_no_text(tag, dict(attrs)):
            self._skipped, self._depth = tag, 1

    def handle_endtag(self, tag: str) -> None:
        if tag in BLOCKS:
            self.finish()
        if tag == self._skipped:
            self._depth -= 1
            if not self._depth:
                self._skipped = ""

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self._words.append(data)

    def finish(self) -> None:
        text = tidy("".join(self._words))
        self._words = []
        if text:
            self.found.append(text)


def is_no_text(tag: str, attributes: dict[str, str | None]) -> bool:
    names = {*(attributes.get("class") or "").split(), attributes.get("id"), attributes.get("role")}
    return tag in NOT_TEXT or bool(NOT_TEXT_NAMES & names) or "navigation" in names


def html_paragraphs(text: str) -> list[str]:
    parser = Paragraphs()
    parser.feed(text)
    parser.close()
    parser.finish()
    return parser.found


def tidy(text: str) -> str:
    return " ".join(text.replace("¶", "").replace("\u00ad", "").replace("\u200b", "").split())


# --- man pages -------------------------------------------------------------------------------------------------------

BREAKS = {"PP", "P", "LP", "TP", "TQ", "IP", "HP", "RS", "RE", "br", "sp", "SH", "SS"}
FONTS = {"B", "I", "R", "BR", "RB", "IR", "RI", "BI", "IB", "SM", "SB"}
TIGHT = {"BR", "RB", "IR", "RI", "BI", "IB"}  # fonts alternate within one word
LISTINGS = {"nf": "fi", "EX": "EE", "TS": "TE", "EQ": "EN", "de": ".", "ig": ".", "SY": "YS"}
SECTIONS_LEFT_OUT = ("SYNOPSIS", "ÜBERSICHT", "COLOPHON", "KOLOPHON", "ÜBERSETZUNG", "COPYRIGHT", "AUTHOR", "AUTOR")
GLYPHS = {
    "-": "-", "e": "\\", "(aq": "'", "(cq": "’", "(oq": "‘", "(lq": "“", "(rq": "”", "(dq": '"', "(bu": "•",
    "(em": "—", "(en": "–", "(co": "©", "(ga": "`", "(ha": "^", "(ti": "~", "(rs": "\\", "(Fc": "»", "(Fo": "«",
    "(->": "→", "(mu": "×", "(+-": "±", "(<=": "≤", "(>=": "≥", "(sq": "□", "(ss": "ß", "(mc": "µ", "~": " ", " ": " ",
    "0": " ", "(tm": "™", "(rg": "®", "*(lq": "“", "*(rq": "”", "*(Aq": "'", "(pl": "+", "(mi": "−", "(bv": "|",
    "(ba": "|", "(sl": "/", "(at": "@", "(sh": "#", "'": "´", "`": "`",
}  # fmt: skip
ESCAPE = re.compile(
    r"\\(?:f(?:\(..|\[[^]]*\]|.)|s[+-]?(?:\(..|\[[^]]*\]|\d)|m\[[^]]*\]|[hvwoXZ]'[^']*'|(\*?\(..)|\*?\[([^]]*)\]|(.)|$)"
)
ARGUMENT = re.compile(r'"((?:[^"]|"")*)"?|((?:\\.|[^\s])+)')


def man_paragraphs(text: str) -> list[str]:
    """What a reader of the page sees of its running text; `mdoc` pages, a few, give next to nothing."""
    found: list[list[str]] = [[]]
    listing, left_out = "", False
    for line in text.split("\n"):
        macro, rest = request(line)
        if listing:
            listing = "" if macro == listing else listing
        elif macro in LISTINGS:
            listing = LISTINGS[macro]
        elif macro == "SH":
            left_out = rest.strip('" ').upper().startswith(SECTIONS_LEFT_OUT)
            found += [[plain(rest.strip('" '))], []]
        elif macro in BREAKS or (macro is None and not line.strip()):
            found.append([plain(argument) for argument in arguments(rest)[:1]] if macro == "SS" else [])
        elif not left_out and (macro is None or macro in FONTS):
            found[-1].append(shown(line, macro, rest))
    return [text for text in (tidy(" ".join(lines)) for lines in found) if text]


def request(line: str) -> tuple[str | None, str]:
    """The macro that a line calls and what follows it; no macro on a line of text."""
    if line[:1] not in (".", "'"):
        return None, line
    macro, _, rest = line[1:].strip().partition(" ")
    return macro or '\\"', rest


def shown(line: str, macro: str | None, rest: str) -> str:
    if macro is None:
        return plain(line)
    return ("" if macro in TIGHT else " ").join(plain(argument) for argument in arguments(rest))


def arguments(rest: str) -> list[str]:
    return [quoted.replace('""', '"') or bare for quoted, bare in ARGUMENT.findall(rest.split('\\"', maxsplit=1)[0])]


def plain(text: str) -> str:
    return ESCAPE.sub(glyph, re.sub(r'\\".*', "", text))


def glyph(match: re.Match[str]) -> str:
    if match[2] is not None:
        name = match[2]
        return chr(int(name[1:], 16)) if re.fullmatch(r"u[0-9A-F]{4,5}", name) else GLYPHS.get(f"({name}", "")
    return GLYPHS.get(match[1] or match[3] or "", "")
