"""The result of one comparison: everything that any view of it shows, and all that is needed to check it."""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from modelkin.records.evidence import Evidence, NotEvidence, Unanswered
from modelkin.records.models import FileFact, Json
from modelkin.records.relation import Relation
from modelkin.records.sampling import Portrait, ReadDigest, StoredRows
from modelkin.records.terms import BudgetName, Direction, KindShare, Outcome, Shared, Side, Standing


class WeighedRelation(msgspec.Struct, frozen=True):
    """What a card calls the relation to its base, beside what was found to have been done."""

    word: str
    standing: Standing
    why: str


class WeighedClaim(msgspec.Struct, frozen=True):
    """A claimed base beside the evidence. `relation` is None where no word was said or none could be weighed."""

    base_model: str
    standing: Standing
    why: str
    relation: WeighedRelation | None = None


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a model says of its own origin; never evidence. `read` is False where nobody looked."""

    read: bool = False
    base_model: tuple[str, ...] = ()
    relation: str | None = None
    license: str | None = None
    said_in: dict[str, tuple[str, ...]] = {}
    notes: tuple[str, ...] = ()
    findings: tuple[WeighedClaim, ...] = ()


class Party(msgspec.Struct, frozen=True, kw_only=True):
    """One of the two models, as it was when it was read. `weights` names the files that hold its tensors.

    `address` is the page of that commit on the Hub that it was read from.
    """

    id: str
    revision: str | None
    format: str
    parameters: int
    layers: int | None
    hidden: int | None
    vocabulary: int | None
    files: tuple[FileFact, ...]
    weights: tuple[str, ...] = ()
    claims: Claims = Claims()
    address: str | None = None


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What follows from the answers by the policy, and what does not. `sentence` is the first thing any view says."""

    outcome: Outcome
    grade: Literal["A", "B"] | None
    pvalue: float | None
    log10_pvalue: float | None
    kinds: tuple[KindShare, ...] = ()
    direction: Direction = "unknown"
    direction_probability: float | None = None
    shared: Shared | None = None
    layer_map: tuple[tuple[str, str | None], ...] = ()
    sentence: str
    reasons: tuple[str, ...] = ()
    limits: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        raise TypeError("a Verdict is neither true nor false: read .outcome")


class KeptRows(msgspec.Struct, frozen=True, kw_only=True):
    """What the quick questions were answered from: enough to answer them again without a network.

    `sha256` is of all the rest, so that one altered number shows even where no answer depends on it.
    """

    portrait_a: Portrait
    portrait_b: Portrait
    a: tuple[StoredRows, ...]
    b: tuple[StoredRows, ...]
    sha256: str = ""


class Reads(msgspec.Struct, frozen=True, kw_only=True):
    """What the later questions were answered from, by digest: too much to keep, enough to see whether it changed."""

    a: tuple[ReadDigest, ...] = ()
    b: tuple[ReadDigest, ...] = ()


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes`: everything read; `tensor_bytes`: weights alone."""

    bytes_a: int
    bytes_b: int
    tensor_bytes_a: int
    tensor_bytes_b: int
    requests: int
    seconds: float


class BriefAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One question's answer beside the pair: the count and its p, or why there is none."""

    question: str
    statistic: float | None = None
    n: int | None = None
    log10_pvalue: float | None = None
    strangers: str | None = None
    unanswered: str | None = None


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A further model compared with one of the two. `outcome` is None where nothing of them could be compared.

    `direction` reads with the further model as b: "a->b" means that it descends from the one of the pair.
    """

    id: str
    revision: str | None
    side: Side = msgspec.field(name="with")
    budget: BudgetName
    outcome: Outcome | None
    kinds: tuple[KindShare, ...] = ()
    direction: Direction = "unknown"
    sentence: str
    answers: tuple[BriefAnswer, ...] = ()
    bytes: int = 0


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The result. All views are functions of it. `sha256` seals the rest: see `seal`.

    `made` says when, as 2026-01-31T12:00:00Z; None where the caller did not say.
    """

    schema: str = "modelkin.comparison/1"
    modelkin: str
    policy: str
    seed: int
    budget: BudgetName
    a: Party
    b: Party
    verdict: Verdict
    answers: tuple[Evidence | Unanswered, ...]
    alignment: Json | None = None
    relation: Relation | None = None
    controls: tuple[Beside, ...] = ()
    candidates: tuple[Beside, ...] = ()
    not_evidence: tuple[NotEvidence, ...] = ()
    tokenizers: Json | None = None
    rows: KeptRows | None = None
    reads: Reads = Reads()
    cost: Cost
    made: str | None = None
    sha256: str = ""


def seal(comparison: Comparison) -> str:
    """sha256 of everything but the seal itself: JSON without spaces, keys in the order of the alphabet.

    Keys that earlier versions lacked are left out where they are null, so that their seals stay whole. It shows damage
    and careless edits; who alters a record on purpose can compute another.
    """
    body = msgspec.to_builtins(msgspec.structs.replace(comparison, sha256=""))
    for part, key in ((body, "made"), (body["a"], "address"), (body["b"], "address")):
        if part[key] is None:
            del part[key]
    return sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def sealed(comparison: Comparison) -> Comparison:
    return msgspec.structs.replace(comparison, sha256=seal(comparison))
