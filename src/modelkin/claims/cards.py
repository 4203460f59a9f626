"""What a model says of its own origin.

The card's front matter, `adapter_config.json` and the config may each name a base. They are read as claims: nothing in
them counts as evidence, and nothing in them runs. What cannot be read safely, or names no model, gives no claim and a
note that says why.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import yaml

from modelkin.checkpoint import Checkpoint
from modelkin.errors import ModelkinError
from modelkin.records import Claims, Extent
from modelkin.sources.address import LOOKS_LIKE_PATH
from modelkin.sources.protocol import Source
from modelkin.vocabulary.json_text import NotJson, decoded

CARD, ADAPTER, CONFIG = "README.md", "adapter_config.json", "config.json"
MOST_READ = 256 << 10  # front matter stands first; tables of results in it run to some 150 KB
LARGEST_CARD = 4 << 20  # a server may send a text file whole, whatever part of it was asked for
DEEPEST = 16
MOST_NAMES, LONGEST = 32, 200
FRONT_MATTER = re.compile(r"\ufeff?\s*---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
CACHED = re.compile(r"models--([^/]+?)--([^/]+)")
WEB_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
ADDRESS = re.compile(r"^(hf://|https?://(www\.)?(huggingface\.co|hf\.co)/)")

# Either makes texts, lists and mappings, and nothing else, whatever tags say; the first is faster where it was built.
PLAIN_YAML = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class NoClaim(ValueError):
    """Why a file gives no claim, as the end of a sentence that begins with its name."""


def read_claims(checkpoint: Checkpoint) -> Claims:
    """Of the card, the adapter's config and the model's, names in that order."""
    said: dict[str, list[str]] = {}
    told: dict[str, str | None] = {"relation": None, "license": None}
    notes: list[str] = []
    for file in (CARD, ADAPTER, CONFIG):
        try:
            fields = _fields(checkpoint, file)
        except (NoClaim, ModelkinError) as reason:
            notes.append(f"{file} {reason if isinstance(reason, NoClaim) else f'could not be read: {reason}'}")
            continue
        for name in fields.pop("base_model", ()):
            said.setdefault(name, []).append(file)
        if left_out := fields.pop("left_out", 0):
            notes.append(f"{file} {_left_out(left_out)}")
        told |= fields
    return Claims(
        read=True,
        base_model=tuple(said),
        relation=told["relation"],
        license=told["license"],
        said_in={name: tuple(files) for name, files in said.items()},
        notes=tuple(notes),
    )


def _fields(checkpoint: Checkpoint, file: str) -> dict[str, Any]:
    if file == CONFIG:
        return {"base_model": _loaded_from(checkpoint)}
    if file not in checkpoint.source.files():
        return {}
    body = _start(checkpoint.source, file)
    return front_matter(body) if file == CARD else _adapter_base(body)


def _start(source: Source, file: str) -> bytes:
    size = source.files()[file].size
    if size > (MOST_READ if file == ADAPTER else LARGEST_CARD):
        raise NoClaim(f"has {size:,} bytes, and no claim is that long")
    return bytes(source.read([Extent(file, 0, min(size, MOST_READ))])[0])


def front_matter(body: bytes) -> dict[str, Any]:
    """{base_model, relation, license} of the YAML between the first two lines of `---`; nothing where there is none."""
    text = body.decode("utf-8", errors="replace")  # a cut may fall inside a character
    found = FRONT_MATTER.match(text)
    if found is None:
        if re.match(r"\ufeff?\s*---[ \t]*\r?\n", text):
            raise NoClaim(f"opens front matter that does not end within {MOST_READ >> 10} KB")
        return {}
    if "\ufffd" in found[1]:
        raise NoClaim("has front matter that is not UTF-8")
    fields = _mapping(found[1])
    return {
        **_bases(fields.get("base_model")),
        "relation": _word(fields.get("base_model_relation")),
        "license": _word(fields.get("license_name")) or _word(fields.get("license")),
    }


def _mapping(text: str) -> dict[Any, Any]:
    try:
        _refuse_traps(text)
        tree = yaml.load(text, Loader=PLAIN_YAML)
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        if isinstance(error, NoClaim):
            raise
        raise NoClaim("has front matter that is no YAML") from error
    return tree if isinstance(tree, dict) else {}


def _refuse_traps(text: str) -> None:
    """Depth and aliases are looked for in the stream of events, before anything is built from it."""
    depth = 0
    for event in yaml.parse(text, Loader=PLAIN_YAML):
        if isinstance(event, yaml.AliasEvent):
            raise NoClaim("has front matter with aliases, which may unfold without end")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise NoClaim(f"has front matter nested deeper than {DEEPEST} levels")


def _bases(value: Any) -> dict[str, Any]:
    """One name or a list of them, and how many are left out, as no model is called like that."""
    said = [name for name in (value if isinstance(value, list) else [value]) if name not in (None, "")]
    names = [plain for name in said[:MOST_NAMES] if (plain := _name(name)) is not None]
    return {"base_model": names, **({"left_out": len(said) - len(names)} if len(said) > len(names) else {})}


def _name(value: Any) -> str | None:
    plain = ADDRESS.sub("", value.strip()) if isinstance(value, str) else ""
    return plain if plain and _is_plain(plain) else None


def _left_out(count: int) -> str:
    if count == 1:
        return "names a base in a form that no name of a model has, and that is left out"
    return f"names {count} bases in a form that no name of a model has, or too many, and these are left out"


def _word(value: Any) -> str | None:
    """A single word; of a list, which some cards have, the first."""
    first = value[0] if isinstance(value, list) and value else value
    return first.strip() if isinstance(first, str) and first.strip() and _is_plain(first) else None


def _is_plain(text: str) -> bool:
    return len(text) <= LONGEST and text.isprintable()


def _adapter_base(body: bytes) -> dict[str, Any]:
    try:
        config = decoded(body, dict)
    except NotJson as error:
        raise NoClaim(str(error)) from error
    return _bases(config.get("base_model_name_or_path"))


def _loaded_from(checkpoint: Checkpoint) -> list[str]:
    """`_name_or_path`: what the weights were loaded from before they were saved. A folder names no model, and a model
    that names itself claims nothing."""
    named = _name(checkpoint.config.get("_name_or_path")) or ""
    return [named] if HUB_NAME.fullmatch(named) and not same_model(named, checkpoint.id) else []


def is_web_address(claimed: str) -> bool:
    """Whether a base is claimed by a page somewhere; pages of the Hub have become names before."""
    return WEB_ADDRESS.match(claimed) is not None


def is_folder(claimed: str) -> bool:
    """Whether a base is claimed by a place on a disk."""
    return LOOKS_LIKE_PATH.search(claimed) is not None


def same_model(claimed: str, id: str) -> bool:
    """Whether a claimed name means the model of this id: a name of the Hub, or a folder that ends like it."""
    name = _bare(claimed)
    return name == _bare(id) or ("/" in name and _place(id).endswith("/" + name))


def _bare(name: str) -> str:
    return ADDRESS.sub("", name).partition("@")[0].rstrip("/").casefold()


def _place(id: str) -> str:
    """A folder with one form of slashes; the folders of the Hub's own cache under the name of their model."""
    folder = id.replace("\\", "/").rstrip("/")
    cached: Sequence[tuple[str, str]] = CACHED.findall(folder)
    return ("/" + "/".join(cached[-1]) if cached else folder).casefold()
