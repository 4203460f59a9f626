"""A comparison as a CycloneDX 1.7 document: both models as components, what was found as a claim with its evidence.

Pedigree is written only where the whole of one model was found to continue from the other, and which from which. All
else is said in words and in properties, as it is in the record.

The date is that of the record, where it has one, and the serial number is made from the record: the same record gives
the same document.
"""

from __future__ import annotations

from typing import Any

import msgspec

from modelkin.records import Beside, Comparison, Evidence, FileFact, Party, Unanswered
from modelkin.report.files import to_json
from modelkin.report.lineage import (
    Descent,
    address,
    ancestors,
    date,
    descent,
    digest,
    failed,
    identifier,
    in_words,
    package_url,
    rests_on,
)

SCHEMA = "http://cyclonedx.org/schema/bom-1.7.schema.json"
CLAIM = "claim"
Node = dict[str, Any]


def cyclonedx(comparison: Comparison) -> str:
    found = descent(comparison)
    parties = {"model-a": comparison.a, "model-b": comparison.b}
    document: Node = {
        "$schema": SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.7",
        "serialNumber": f"urn:uuid:{identifier(comparison)}",
        "version": 1,
        "metadata": {**_date(comparison), "tools": {"components": [_tool(comparison)]}, "properties": _how(comparison)},
        "components": [_model(name, party, comparison, found) for name, party in parties.items()],
        "declarations": _declarations(comparison),
        "properties": _verdict(comparison),
    }
    return to_json(document)


def _date(comparison: Comparison) -> Node:
    return {"timestamp": made} if (made := date(comparison)) else {}


def _tool(comparison: Comparison) -> Node:
    return {"type": "application", "name": "modelkin", "version": comparison.modelkin}


def _model(reference: str, party: Party, comparison: Comparison, found: Descent | None) -> Node:
    owner, _, name = party.id.rpartition("/") if package_url(party) else ("", "", party.id)
    component: Node = {
        "type": "machine-learning-model",
        "bom-ref": reference,
        **({"group": owner} if owner else {}),
        "name": name,
        **({"version": party.revision} if party.revision else {}),
        **({"purl": package_url(party)} if package_url(party) else {}),
        **_pedigree(party, comparison, found),
        "externalReferences": _references(party),
        "components": [_file(reference, fact) for fact in party.files if fact.name in party.weights],
        "properties": _facts(party),
    }
    return {key: value for key, value in component.items() if value != []}


def _pedigree(party: Party, comparison: Comparison, found: Descent | None) -> Node:
    if found is None or party is not found.descendant:
        return {}
    parents = [_ancestor(ancestor, comparison) for ancestor in ancestors(comparison, found)]
    return {"pedigree": {"ancestors": parents, "notes": comparison.verdict.sentence}}


def _ancestor(model: Party | Beside, comparison: Comparison) -> Node:
    """A component of a pedigree may not be one of the document, so one of the pair is named by a property beside."""
    node: Node = {"type": "machine-learning-model", "name": model.id}
    node |= {"version": model.revision} if model.revision else {}
    node |= {"purl": url} if (url := package_url(model)) else {}
    if isinstance(model, Beside):
        return node | {"properties": _properties({"given-as": "candidate"})}
    same = "model-a" if model is comparison.a else "model-b"
    return node | _weights_of(model) | {"properties": _properties({"same-as": same})}


def _weights_of(party: Party) -> Node:
    """By which it can be told: where it lies, and the hash of its weights, file by file where they are many."""
    weights = [fact for fact in party.files if fact.name in party.weights]
    single = weights[0] if len(weights) == 1 else None
    found: Node = {"hashes": [{"alg": "SHA-256", "content": single.sha256}]} if single and single.sha256 else {}
    found |= {"externalReferences": _references(party)} if _references(party) else {}
    return found | ({"components": [_file("ancestor", fact) for fact in weights]} if len(weights) > 1 else {})


def _references(party: Party) -> list[Node]:
    where = address(party)
    return [{"type": "distribution", "url": where}] if where else []


def _file(reference: str, fact: FileFact) -> Node:
    """A file of weights. `sha256` is left out where nobody has computed it."""
    hashes = [{"alg": "SHA-256", "content": fact.sha256}] if fact.sha256 else []
    file: Node = {"type": "file", "bom-ref": f"{reference}/{fact.name}", "name": fact.name}
    file |= {"hashes": hashes} if hashes else {}
    return file | {"properties": _properties({"size": fact.size})}


def _facts(party: Party) -> list[Node]:
    """What was read of the model; its own claims of origin among them, marked as claims."""
    facts = {
        "parameters": party.parameters,
        "layers": party.layers,
        "hidden": party.hidden,
        "vocabulary": party.vocabulary,
        "format": party.format,
    }
    claims = [("claimed-base-model", base) for base in party.claims.base_model]
    relation = [("claimed-relation", party.claims.relation)] if party.claims.relation else []
    return [*_properties(facts), *(_property(name, value) for name, value in (*claims, *relation))]


def _how(comparison: Comparison) -> list[Node]:
    facts = {
        "schema": comparison.schema,
        "policy": comparison.policy,
        "budget": comparison.budget,
        "seed": comparison.seed,
        "record-sha256": digest(comparison),
    }
    return _properties(facts)


def _verdict(comparison: Comparison) -> list[Node]:
    verdict = comparison.verdict
    known = verdict.direction != "unknown"
    facts = {
        "outcome": verdict.outcome,
        "sentence": verdict.sentence,
        "grade": verdict.grade,
        "log10-pvalue": verdict.log10_pvalue,
        "direction": verdict.direction,
        "direction-probability": verdict.direction_probability if known else None,
        "shared": None if verdict.shared is None else verdict.shared.fraction,
        "shared-of": None if verdict.shared is None else f"model-{verdict.shared.side(verdict.direction)}",
        "shared-low": None if verdict.shared is None else verdict.shared.low,
        "shared-high": None if verdict.shared is None else verdict.shared.high,
    }
    kinds = [_property("kind", share.kind) for share in verdict.kinds]
    sure = {f"kind-probability:{share.kind}": share.probability for share in verdict.kinds}
    return [*_properties(facts), *kinds, *_properties(sure), *(_property("limit", text) for text in verdict.limits)]


def _declarations(comparison: Comparison) -> Node:
    """The verdict as a claim about b beside a. What strangers would show stands with every piece of evidence."""
    given = [answer for answer in comparison.answers if isinstance(answer, Evidence)]
    basis = [_reference(answer) for answer in given if rests_on(comparison, answer)]
    claim: Node = {
        "bom-ref": CLAIM,
        "target": "model-b",
        "predicate": f"A is model-a, B is model-b. {comparison.verdict.sentence}",
        "reasoning": " ".join((*comparison.verdict.reasons, *comparison.verdict.limits)),
    }
    claim |= {"evidence": basis} if basis else {}
    return {"claims": [claim], "evidence": [_evidence(answer) for answer in comparison.answers]}


def _reference(answer: Evidence | Unanswered) -> str:
    return f"evidence/{answer.question}"


def _evidence(answer: Evidence | Unanswered) -> Node:
    node: Node = {"bom-ref": _reference(answer), "propertyName": f"modelkin:{answer.question}"}
    node |= {"description": in_words(answer)}
    if isinstance(answer, Unanswered) or failed(answer):
        return node
    return node | {"data": [{"name": "answer", "contents": {"attachment": _numbers(answer)}}]}


def _numbers(answer: Evidence) -> Node:
    kept = ("question", "index_set", "grade", "statistic", "n", "log10_pvalue", "adjusted_pvalue", "effect")
    numbers = {name: getattr(answer, name) for name in kept}
    body = msgspec.json.encode({**numbers, "null": answer.null.text}).decode()
    return {"contentType": "application/json", "content": body}


def _properties(facts: dict[str, Any]) -> list[Node]:
    return [_property(name, value) for name, value in facts.items() if value is not None]


def _property(name: str, value: object) -> Node:
    return {"name": f"modelkin:{name}", "value": str(value)}
