"""Claims: read from anybody's files without harm, and set beside the evidence without a false accusation."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from builders import CONFIG, llama_files, write_files
from modelkin.checkpoint import Checkpoint, open_checkpoint
from modelkin.claims import Judged, NoClaim, front_matter, read_claims, same_model, seen_from, weighed
from modelkin.claims.relation_word import KEPT, Stored, stored_by
from modelkin.compare import CompareOptions, compare
from modelkin.demo import bundled
from modelkin.errors import Unreachable
from modelkin.records import Claims, Comparison, Extent, KindShare, Role, Side, WeighedRelation
from modelkin.records.relation import Lattice, TensorFact
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


@pytest.mark.parametrize(
    "text", ["base_model: {a: [1, 2], b: null}", 'base_model: "acme/\\e[31mbase"', "base_model: " + "a" * 300]
)
def test_a_base_that_no_model_is_called_is_noted(text: str) -> None:
    claims = read_claims(opened({"README.md": f"---\n{text}\n---\n".encode()}))
    assert claims.base_model == ()
    assert claims.notes == ("README.md names a base in a form that no name of a model has, and that is left out",)


def test_what_is_left_out_beside_a_name_is_noted_and_an_empty_field_is_not() -> None:
    claims = read_claims(opened({"README.md": b"---\nbase_model: [acme/base, {a: b}, [c]]\n---\n"}))
    assert claims.base_model == ("acme/base",)
    assert claims.notes[0].startswith("README.md names 2 bases")
    assert read_claims(opened({"README.md": b"---\nbase_model:\n---\n"})).notes == ()
    number = read_claims(opened({"adapter_config.json": b'{"base_model_name_or_path": 3}'}))
    assert [note.split()[0] for note in number.notes] == ["adapter_config.json"]


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
    (Judged("related", "unknown", ("undetermined",)), "not contradicted"),
    (Judged("related", "unknown", ("identical",)), "not contradicted"),
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


def test_a_model_without_a_weight_of_its_teacher_may_have_learnt_from_its_answers() -> None:
    (found,) = weighed(NAMING, {"acme/base": Judged("unrelated")}).findings
    assert "learnt only from another's answers" in found.why


def test_a_folder_is_said_to_name_no_model() -> None:
    claims = Claims(read=True, base_model=("/home/me/llama", "acme/other"))
    folder, name = weighed(claims, {"x/y": Judged("related", "from it")}).findings
    assert (folder.standing, name.standing) == ("cannot be told", "cannot be told")
    assert "no name" in folder.why
    assert "not among the models" in name.why


def test_a_web_address_is_no_place_on_a_disk() -> None:
    claims = Claims(read=True, base_model=("https://evil.example/x",))
    (found,) = weighed(claims, {"x/y": Judged("related", "from it")}).findings
    assert found.standing == "cannot be told"
    assert "a web address and no name of a model" in found.why


FROM, EITHER = "from it", "unknown"
WORDS: list[tuple[str, Any, tuple[str, ...], Stored, str]] = [
    ("finetune", FROM, ("fine-tune", "continued-pretraining"), "unclear", "confirmed"),
    ("fine-tuned", FROM, ("merged-lora",), "unclear", "confirmed"),
    ("finetune", EITHER, ("fine-tune",), "unclear", "not contradicted"),
    ("finetune", EITHER, ("identical",), "unclear", "contradicted"),
    ("finetune", FROM, ("re-encoded",), "on a grid", "cannot be told"),
    ("finetune", FROM, ("merge", "fine-tune"), "unclear", "cannot be told"),
    ("finetune", FROM, ("obfuscated",), "unclear", "cannot be told"),
    ("quantized", FROM, ("re-encoded",), "on a grid", "confirmed"),
    ("Quantised", EITHER, ("re-encoded",), "on a grid", "not contradicted"),
    ("quantized", FROM, ("re-encoded",), "unclear", "cannot be told"),  # emptied, or cast to bfloat16
    ("quantized", EITHER, ("re-encoded", "fine-tune"), "on a grid", "not contradicted"),
    ("quantized", EITHER, ("fine-tune",), "kept", "contradicted"),
    ("quantized", EITHER, ("merged-lora",), "unclear", "contradicted"),
    ("quantized", EITHER, ("fine-tune",), "unclear", "cannot be told"),  # by a quantiser that nobody knows
    ("quantized", EITHER, ("obfuscated", "fine-tune"), "kept", "cannot be told"),
    ("quantized", EITHER, ("identical",), "unclear", "contradicted"),
    ("adapter", FROM, ("merged-lora",), "unclear", "confirmed"),
    ("adapter", EITHER, ("fine-tune",), "unclear", "cannot be told"),
    ("adapter", EITHER, ("identical",), "unclear", "cannot be told"),
    ("merge", FROM, ("merge",), "unclear", "confirmed"),
    ("merge", EITHER, ("fine-tune",), "unclear", "cannot be told"),
    ("merge", EITHER, ("identical",), "unclear", "contradicted"),
    ("distilled", FROM, ("fine-tune",), "unclear", "cannot be told"),
]


@pytest.mark.parametrize(("word", "descent", "kinds", "stored", "standing"), WORDS)
def test_what_the_evidence_says_to_the_relation(
    word: str, descent: Any, kinds: tuple[str, ...], stored: Stored, standing: str
) -> None:
    claims = Claims(read=True, base_model=("acme/base",), relation=word)
    (found,) = weighed(claims, {"acme/base": Judged("related", descent, kinds, stored)}).findings
    assert found.relation is not None
    assert (found.relation.word, found.relation.standing) == (word, standing)


@pytest.mark.parametrize("judged", [Judged("unrelated"), Judged("undecided"), Judged("related", "to it"), Judged(None)])
def test_what_was_done_to_another_model_is_not_asked(judged: Judged) -> None:
    claims = Claims(read=True, base_model=("acme/base", "x/y"), relation="quantized")
    assert [finding.relation for finding in weighed(claims, {"acme/base": judged}).findings] == [None, None]


def matrix(**changes: Any) -> TensorFact:
    fields: dict[str, Any] = {
        "a": "0 up", "b": "0 up", "role": Role.UP, "layer": "0", "shape": (8, 8), "values": 64, "dtype_a": "BF16",
        "dtype_b": "BF16", "slope": 1.0, "difference": 0.05, "correlation": 0.99, "same": 0.02, "moved": 9.0,
        "zeros_a": 0.0, "zeros_b": 0.0, "emptied_a": False, "emptied_b": False, "cast_a": None, "cast_b": None,
        "held_a": "BF16", "held_b": "BF16", "kurtosis_a": 3.0, "kurtosis_b": 3.0, "norm_a": 1.0, "norm_b": 1.0,
    }  # fmt: skip
    return TensorFact(**(fields | changes))


GRID = Lattice("int4", "32", 16)


@pytest.mark.parametrize(
    ("side", "changes", "stored"),
    [
        ("b", {"lattice_b": GRID}, "on a grid"),
        ("a", {"lattice_b": GRID}, "unclear"),  # it is the other that was rounded
        ("b", {"lattice_a": GRID, "lattice_b": GRID}, "unclear"),
        ("b", {"cast_b": "F8_E4M3"}, "on a grid"),
        ("b", {"cast_b": "BF16"}, "unclear"),
        ("b", {"same": 0.8}, "kept"),
        ("b", {"same": 0.8, "emptied_b": True}, "unclear"),
        ("b", {"same": 0.8, "lattice_b": GRID}, "on a grid"),
        ("b", {"same": 0.2}, "unclear"),
        ("b", {"same": 1.0}, "unclear"),
        ("b", {"same": 0.8, "layer": ""}, "unclear"),
    ],
)
def test_rounding_is_seen_in_the_matrices_of_the_claimant(side: Side, changes: dict[str, Any], stored: str) -> None:
    assert stored_by([matrix(**changes)] * 3, side) == stored


def test_rounding_to_eight_bits_keeps_fewer_values_than_training_must_to_exclude_it() -> None:
    rng = np.random.default_rng(0)
    for width in (32, 128, 4096):
        values = rng.normal(size=(256, width)).astype(ml_dtypes.bfloat16).astype(np.float32)
        scale = np.abs(values).max(axis=1, keepdims=True) / 127
        rounded = (np.round(values / scale) * scale).astype(ml_dtypes.bfloat16).astype(np.float32)
        assert np.mean(rounded == values) < KEPT / 1.5


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


def test_a_merge_that_is_one_of_two_readings_bears_nothing_out() -> None:
    told, perhaps = (seen_from("b", "related", "a->b", [KindShare("merge", p)]).kinds for p in (None, 0.5))
    assert (told, perhaps) == (("merge",), ())


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


def claiming(tmp_path: Path, child: str, base: str, budget: Any, more: str = "") -> Comparison:
    """Bundled models, in folders that are called like models of the Hub; the child names its base."""
    models = bundled()
    for name in (child, base):
        write_files(tmp_path / "demo" / name, {p.name: p.read_bytes() for p in models[name].iterdir() if p.is_file()})
    (tmp_path / "demo" / child / "README.md").write_text(f"---\nbase_model: demo/{base}\n{more}\n---\n")
    return compare(str(tmp_path / "demo" / base), str(tmp_path / "demo" / child), CompareOptions(budget))


@pytest.mark.parametrize(
    ("child", "standing"), [("fjord", "confirmed"), ("heath", "not contradicted"), ("grove", "contradicted")]
)
def test_a_claim_is_confirmed_only_with_its_order_and_a_false_one_contradicted(
    child: str, standing: str, tmp_path: Path
) -> None:
    comparison = claiming(tmp_path, child, "dune", "standard")
    assert comparison.a.claims.base_model == ()
    assert [finding.standing for finding in comparison.b.claims.findings] == [standing]
    page = " ".join(render(comparison_page(comparison)).split())
    assert f"B says it comes from demo/dune: {standing} by the evidence" in page


def test_what_a_card_calls_the_relation_has_a_line_of_its_own(tmp_path: Path) -> None:
    comparison = claiming(tmp_path, "heath", "dune", "standard", "base_model_relation: quantized")
    (finding,) = comparison.b.claims.findings
    assert isinstance(finding.relation, WeighedRelation)
    assert finding.relation.standing == "cannot be told"  # it was trained, and most of its values changed
    page = " ".join(render(comparison_page(comparison)).split())
    assert "B calls what was done “quantized”: cannot be told from the evidence" in page


def test_a_quick_comparison_leaves_the_card_unread(tmp_path: Path) -> None:
    assert claiming(tmp_path, "heath", "dune", "quick").b.claims == Claims()
