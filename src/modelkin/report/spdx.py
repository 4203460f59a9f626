"""A comparison as an SPDX 3.0.1 document (JSON-LD): both models as packages of the AI profile, related as was found.

`descendantOf` is written only where the whole of one model was found to continue from the other, and which from which;
`other`, with a comment, where they are related in another way; nothing where they are not, or nothing was decided.
Every answer is an annotation, in words, with what strangers show. The document does not claim to conform to the AI
profile: that asks for a supplier and a date of release, of which weights say nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec

from modelkin.records import Answer, Beside, Comparison, FileFact, Party
from modelkin.report.files import to_json
from modelkin.report.lineage import address, ancestors, date, descent, digest, identifier, in_words, package_url

CONTEXT = "https://spdx.org/rdf/3.0.1/spdx-context.jsonld"
CREATION = "_:creation"
# SPDX asks for a date. For a record that has none: that of reproducible builds.
NO_DATE = "1970-01-01T00:00:00Z"
WHY_NO_DATE = "The record that this was made from holds no date; this one stands for none."
Node = dict[str, Any]


def spdx(comparison: Comparison) -> str:
    """Created, it says, when the record was made: from the same record the same document."""
    base = f"https://spdx.org/spdxdocs/modelkin-{identifier(comparison)}"
    elements = [
        _element(base, "agent", "SoftwareAgent", name="modelkin"),
        _element(base, "tool", "Tool", name=f"modelkin {comparison.modelkin}"),
        *_model(base, "model-a", comparison.a),
        *_model(base, "model-b", comparison.b),
        *_further_parents(base, comparison),
        *_relationship(base, comparison),
        *_annotations(base, comparison),
    ]
    graph = [_creation(base, date(comparison) or NO_DATE), _document(base, comparison, elements), *elements]
    return to_json({"@context": CONTEXT, "@graph": graph})


def _element(base: str, place: str, kind: str, /, **fields: Any) -> Node:
    known = {key: value for key, value in fields.items() if value is not None and value != []}
    return {"type": kind, "spdxId": f"{base}#{place}", "creationInfo": CREATION, **known}


def _creation(base: str, created: str) -> Node:
    node: Node = {"type": "CreationInfo", "@id": CREATION, "specVersion": "3.0.1", "created": created}
    node |= {"comment": WHY_NO_DATE} if created == NO_DATE else {}
    return node | {"createdBy": [f"{base}#agent"], "createdUsing": [f"{base}#tool"]}


def _document(base: str, comparison: Comparison, elements: list[Node]) -> Node:
    return _element(
        base,
        "document",
        "SpdxDocument",
        name=f"modelkin: {comparison.a.id} and {comparison.b.id}",
        description=comparison.verdict.sentence,
        comment=f"Made from a record of {comparison.schema}, sha256 {digest(comparison)}.",
        profileConformance=["core", "software"],
        rootElement=[f"{base}#model-a", f"{base}#model-b"],
        element=[element["spdxId"] for element in elements],
    )


def _model(base: str, name: str, party: Party) -> list[Node]:
    files = [
        _file(base, f"{name}-file-{place}", fact)
        for place, fact in enumerate(fact for fact in party.files if fact.name in party.weights)
    ]
    sizes = {"parameters": party.parameters, "layers": party.layers, "hidden": party.hidden}
    package = _element(
        base,
        name,
        "ai_AIPackage",
        name=party.id,
        software_packageVersion=party.revision,
        software_packageUrl=package_url(party),
        software_downloadLocation=address(party),
        software_primaryPurpose="model",
        ai_hyperparameter=[_entry(key, value) for key, value in sizes.items() if value is not None],
        comment=_claims(party),
    )
    holds = _element(
        base,
        f"{name}-contains",
        "Relationship",
        **{"from": package["spdxId"]},
        relationshipType="contains",
        to=[file["spdxId"] for file in files],
    )
    return [package, *files, *([holds] if files else [])]


def _further_parents(base: str, comparison: Comparison) -> list[Node]:
    """Candidates that a mixture was made from beside the one of the pair: of their files nothing is recorded."""
    return [
        _element(
            base,
            f"candidate-{place}",
            "ai_AIPackage",
            name=model.id,
            software_packageVersion=model.revision,
            software_packageUrl=package_url(model),
            software_primaryPurpose="model",
        )
        for place, model in enumerate(_others(comparison))
    ]


def _others(comparison: Comparison) -> tuple[Party | Beside, ...]:
    found = descent(comparison)
    return ancestors(comparison, found)[1:] if found else ()


def _claims(party: Party) -> str | None:
    said = ", ".join(party.claims.base_model)
    return f"Names as its base, by its own account and not by evidence: {said}." if said else None


def _entry(key: str, value: object) -> Node:
    return {"type": "DictionaryEntry", "key": key, "value": str(value)}


def _file(base: str, name: str, fact: FileFact) -> Node:
    """`sha256` is left out where nobody has computed it."""
    known = [{"type": "Hash", "algorithm": "sha256", "hashValue": fact.sha256}] if fact.sha256 else []
    return _element(base, name, "software_File", name=fact.name, verifiedUsing=known, software_primaryPurpose="model")


def _relationship(base: str, comparison: Comparison) -> list[Node]:
    if comparison.verdict.outcome != "related":
        return []
    found = descent(comparison)
    child = "model-a" if found is not None and found.descendant is comparison.a else "model-b"
    parent = "model-b" if child == "model-a" else "model-a"
    kinds = ", ".join(share.kind for share in comparison.verdict.kinds)
    node = _element(
        base,
        "relation",
        "Relationship",
        **{"from": f"{base}#{child}"},
        relationshipType="other" if found is None else "descendantOf",
        to=[f"{base}#{parent}", *(f"{base}#candidate-{place}" for place in range(len(_others(comparison))))],
        completeness="noAssertion",
        description=comparison.verdict.sentence,
        comment=f"A is model-a, B is model-b. Kinds: {kinds}. {' '.join(comparison.verdict.limits)}",
    )
    return [node]


def _annotations(base: str, comparison: Comparison) -> list[Node]:
    """The verdict as data, and every answer in words; about the relation, or where there is none, about b."""
    subject = f"{base}#{'relation' if comparison.verdict.outcome == 'related' else 'model-b'}"
    told = _annotation(base, "verdict", subject, _data(comparison), "application/json")
    answers = [_annotation(base, answer.question, subject, _said(answer)) for answer in comparison.answers]
    return [told, *answers]


def _annotation(base: str, name: str, subject: str, statement: str, form: str = "text/plain") -> Node:
    fields = {"annotationType": "other", "subject": subject, "statement": statement, "contentType": form}
    return _element(base, f"annotation-{name}", "Annotation", **fields)


def _said(answer: Answer) -> str:
    return f"{answer.question}, model-a beside model-b: {in_words(answer)}"


def _data(comparison: Comparison) -> str:
    verdict = msgspec.to_builtins(comparison.verdict)
    if comparison.verdict.direction == "unknown":
        verdict["direction_probability"] = None  # of an order that is not told
    kept = {name: value for name, value in verdict.items() if name not in ("layer_map", "reasons")}
    return msgspec.json.encode({"a": comparison.a.id, "b": comparison.b.id, "verdict": kept}).decode()
