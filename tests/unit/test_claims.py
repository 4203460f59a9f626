"""Claims: read from anybody's files without harm, and set beside the evidence without a false accusation."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from builders import CONFIG, llama_files, write_files
from modelkin.checkpoint import Checkpoint, open_checkpoint
from modelkin.claims import Judged, NoClaim, front_matter, read_claims, same_model, seen_from, weighed
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.errors import Unreachable
from modelkin.records import Claims, Comparison, Extent, KindShare
from modelkin.report.comparison_text import comparison_page
from modelkin.report.text import render
from modelkin.sources.memory import MemorySource

CARD = b"""---
license: apache-2.0
base_model:
- acme/base
- https://huggingface.co/acme/other
base_model_relation: merge
tags: [text, !!python/object/apply:os.system ["true"]]
---
# A model
base_model: somebody/else
"""


def opened(files: Mapping[str, bytes], config: Mapping[str, Any] = CONFIG, id: str = "acme/child") -> Checkpoint:
    return open_checkpoint(MemorySource({**llama_files(config=config), **files}, id=id))


def test_the_front_matter_of_a_card_is_read_and_its_text_is_not() -> None:
    claims = read_claims(opened({"README.md": CARD}))
    assert claims == Claims(
        read=True,
        base_model=("acme/base", "acme/other"),
        relation="merge",
        license="apache-2.0",
        said_in={"acme/base": ("README.md",), "acme/other": ("README.md",)},
    )


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("base_model: acme/base", ["acme/base"]),
        ("base_model: hf://acme/base", ["acme/base"]),
        ("base_model: [acme/base, 3, {a: b}, [c]]", ["acme/base", "3"]),
        ("base_model: {a: b}", []),
        ("base_model: ''", []),
        ("base_model:", []),
        ('base_model: "acme/\\u0007base"', []),
        ("base_model: " + "a" * 300, []),
        ("license: mit", []),
        ("- a list", []),
        ("", []),
    ],
)
def test_only_plausible_names_are_claims(text: str, names: list[str]) -> None:
    assert front_matter(f"---\n{text}\n---\n".encode()).get("base_model", []) == names


@pytest.mark.parametrize("start", ["", "\ufeff", "\n\n"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_front_matter_may_begin_and_end_as_editors_write_it(start: str, end: str) -> None:
    text = start + end.join(["---", "base_model: acme/base", "license: [mit]", "---", "", "# title"])
    assert front_matter(text.encode()) == {"base_model": ["acme/base"], "relation": None, "license": "mit"}


def test_a_card_without_front_matter_claims_nothing() -> None:
    assert front_matter(b"# title\n\n---\nbase_model: acme/base\n---\n") == {}
    assert front_matter(b"") == {}


LAUGHS = "a: &a [x]\n" + "\n".join(f"{chr(98 + i)}: &{chr(98 + i)} [{f'*{chr(97 + i)}, ' * 9}]" for i in range(9))
HOSTILE = {
    "aliases": f"{LAUGHS}\nbase_model: *j".encode(),
    "an alias of itself": b"base_model: &x [*x]",
    "deep": b"base_model: " + b"[" * 20_000 + b"]" * 20_000,
    "deep mappings": b"\n".join(b" " * i + b"a:" for i in range(300)),
    "no YAML": b"base_model: [acme/base",
    "a tab": b"a:\n\t- b",
    "not UTF-8": b"base_model: acme/\xff\xfe",
    "a control character": b"base_model: acme/\x00base",
    "a key that is a list": b"? [a]\n: b\nbase_model: acme/base",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_front_matter_gives_no_claim_and_a_note(case: str) -> None:
    began = time.perf_counter()
    claims = read_claims(opened({"README.md": b"---\n" + HOSTILE[case] + b"\n---\n"}))
    assert claims.base_model == ()
    assert [note.startswith("README.md has front matter") for note in claims.notes] == [True]
    assert time.perf_counter() - began < 10


def test_a_huge_card_is_read_at_its_beginning_only() -> None:
    checkpoint = opened({"README.md": CARD + b"x" * 3_000_000})
    assert read_claims(checkpoint).base_model == ("acme/base", "acme/other")
    assert max(e.bytes for e in checkpoint.source.ledger.exchanges if e.file == "README.md") <= 262_144


@pytest.mark.parametrize(("file", "size"), [("README.md", 5_000_000), ("adapter_config.json", 300_000)])
def test_what_is_too_large_for_a_claim_is_not_fetched(file: str, size: int) -> None:
    checkpoint = opened({file: CARD + b" " * size})
    claims = read_claims(checkpoint)
    assert claims.base_model == ()
    assert "no claim is that long" in claims.notes[0]
    assert file not in {exchange.file for exchange in checkpoint.source.ledger.exchanges}


def test_front_matter_without_an_end_gives_no_claim() -> None:
    claims = read_claims(opened({"README.md": b"---\nbase_model: acme/base\n" + b"# x\n" * 100_000}))
    assert claims.base_model == ()
    assert "does not end" in claims.notes[0]
    with pytest.raises(NoClaim, match="does not end"):
        front_matter(b"---\nbase_model: a/b\n")


def test_an_adapter_and_a_config_claim_too() -> None:
    files = {"adapter_config.json": json.dumps({"base_model_name_or_path": "acme/base"}).encode()}
    claims = read_claims(opened(files, {**CONFIG, "_name_or_path": "acme/grandparent"}))
    assert claims.said_in == {"acme/base": ("adapter_config.json",), "acme/grandparent": ("config.json",)}


@pytest.mark.parametrize("name", ["/mnt/run/checkpoint-100", "./out", "acme/child", "ACME/Child", "a/b/c", "", 3, None])
def test_a_folder_or_the_model_itself_is_no_base(name: object) -> None:
    assert read_claims(opened({}, {**CONFIG, "_name_or_path": name})).base_model == ()


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b'{"base_model_name_or_path": 3}', b"[" * 50_000])
def test_a_broken_adapter_config_claims_nothing(body: bytes) -> None:
    assert read_claims(opened({"adapter_config.json": body})).base_model == ()


class Failing(MemorySource):
    def read(self, extents: Any, kind: str = "file") -> list[memoryview]:
        wanted: list[Extent] = list(extents)
        if any(extent.file == "README.md" for extent in wanted):
            raise Unreachable("the server failed", where=self.id)
        return super().read(wanted, kind)


def test_a_card_that_cannot_be_fetched_is_noted() -> None:
    checkpoint = open_checkpoint(Failing({**llama_files(), "README.md": CARD}))
    assert read_claims(checkpoint).notes == ("README.md could not be read: memory: the server failed",)


NAMING = Claims(read=True, base_model=("acme/base",))
STANDINGS = [
    (Judged("related", "from it", ("fine-tune",)), "confirmed"),
    (Judged("related", "unknown", ("undetermined",)), "confirmed"),
    (Judged("related", "to it", ("fine-tune",)), "contradicted"),
    (Judged("related", "neither", ("shared-ancestor",)), "contradicted"),
    (Judged("unrelated"), "contradicted"),
    (Judged("related", "neither", ("shared-init",)), "cannot be told"),
    (Judged("related", "unknown", ("component-reuse",)), "cannot be told"),
    (Judged("undecided"), "cannot be told"),
    (Judged(None), "cannot be told"),
]


@pytest.mark.parametrize(("judged", "standing"), STANDINGS)
def test_what_the_evidence_says_to_a_claim(judged: Judged, standing: str) -> None:
    (found,) = weighed(NAMING, {"x/y": Judged("unrelated"), "acme/base": judged}).findings
    assert found.standing == standing


def test_a_model_that_was_not_compared_cannot_be_told() -> None:
    (found,) = weighed(NAMING, {"x/y": Judged("unrelated")}).findings
    assert found.standing == "cannot be told"
    assert weighed(Claims(), {"x/y": Judged("related")}) == Claims()


def test_a_direction_is_seen_from_the_claimant() -> None:
    kinds = (KindShare("fine-tune", 0.9),)
    assert seen_from("b", "related", "a->b", kinds) == Judged("related", "from it", ("fine-tune",))
    assert seen_from("a", "related", "a->b", kinds) == Judged("related", "to it", ("fine-tune",))
    assert seen_from("a", "related", "b->a", kinds).descent == "from it"
    assert seen_from("a", "related", "neither", kinds).descent == "neither"


@pytest.mark.parametrize(
    ("claimed", "id", "same"),
    [
        ("acme/base", "acme/base", True),
        ("Acme/Base", "acme/base", True),
        ("acme/base@main", "acme/base", True),
        ("hf://acme/base", "acme/base", True),
        ("acme/base", "/models/acme/base/", True),
        ("acme/base", "/hub/models--acme--base/snapshots/0123", True),
        ("acme/base", "other/base", False),
        ("acme/base", "/models/base", False),
        ("acme/base", "/models/notacme/base", False),
        ("base", "/models/acme/base", False),
        ("base", "base", True),
    ],
)
def test_a_name_means_a_model(claimed: str, id: str, same: bool) -> None:
    assert same_model(claimed, id) is same


def claiming(tmp_path: Path, child: str, base: str, budget: Any) -> Comparison:
    """Bundled models, in folders that are called like models of the Hub; the child names its base."""
    models = bundled()
    for name in (child, base):
        write_files(tmp_path / "demo" / name, {p.name: p.read_bytes() for p in models[name].iterdir() if p.is_file()})
    (tmp_path / "demo" / child / "README.md").write_text(f"---\nbase_model: demo/{base}\n---\n")
    return compare(str(tmp_path / "demo" / base), str(tmp_path / "demo" / child), CompareOptions(budget))


@pytest.mark.parametrize(("child", "standing"), [("heath", "confirmed"), ("grove", "contradicted")])
def test_a_true_claim_is_confirmed_and_a_false_one_contradicted(child: str, standing: str, tmp_path: Path) -> None:
    comparison = claiming(tmp_path, child, "dune", "standard")
    assert comparison.a.claims.base_model == ()
    assert [finding.standing for finding in comparison.b.claims.findings] == [standing]
    page = " ".join(render(comparison_page(comparison)).split())
    assert f"B says it comes from demo/dune: {standing} by the evidence" in page


def test_a_quick_comparison_leaves_the_card_unread(tmp_path: Path) -> None:
    assert claiming(tmp_path, "heath", "dune", "quick").b.claims == Claims()
