"""Stored names -> rules: a family's templates compiled to one dictionary over names with their numbers taken out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property
from importlib.resources import files
from typing import NamedTuple

import msgspec

from modelkin.architectures.family import Family, Spec
from modelkin.errors import UnreadableError
from modelkin.records import Role

STACKS = ("encoder", "decoder")
LONGEST_NAME = 500  # a longer one is no family's, and would cost time in all of them
MAX_WRAPPERS = 8
LONGEST_ENDING = 6  # components
LONGEST_NUMBER = 9  # a longer one is no layer


class Common(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Words that mean the same in every family (common.toml)."""

    wrappers: frozenset[str]
    towers: dict[str, str]
    endings: dict[str, str]
    anywhere: dict[str, str]


Binds = tuple[str | int, ...]


class Rule(NamedTuple):
    """What a template says about the tensors that fit it; `binds` names its numbers or fixes them."""

    spec: Spec
    roles: tuple[Role, ...]
    binds: Binds
    stack: str


class Placed(NamedTuple):
    """One stored tensor under its rule."""

    rule: Rule
    layer: int | None
    expert: int | None


@cache
def common() -> Common:
    text = (files("modelkin.architectures") / "common.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), Common)


def dissect(name: str) -> tuple[str, tuple[int, ...]]:
    """`model.layers.3.mlp.up_proj.weight` -> (`model.layers.{}.mlp.up_proj.weight`, (3,))."""
    if len(name) > LONGEST_NAME:
        return "", ()
    if "{" in name or ".base_layer." in name:
        name = name.replace(".base_layer.", ".").replace("{", "{{")  # no stored name may pass for a pattern
    parts = name.split(".")
    numbers = []
    for index, part in enumerate(parts):
        if part.isdecimal() and part.isascii() and len(part) <= LONGEST_NUMBER:
            numbers.append(int(part))
            parts[index] = "{}"
    return ".".join(parts), tuple(numbers)


def bias_of(role: Role) -> Role | None:
    """The role of a module's bias; None where the vocabulary has none."""
    try:
        return Role(f"{role.value}_bias")
    except ValueError:
        return None


class Table:
    """A family's rules; looks up each distinct pattern once, so tens of thousands of experts cost little."""

    def __init__(self, family: Family, patterns: Iterable[str]) -> None:
        self._family = family
        self._wrappers = common().wrappers | set(family.prefixes)
        self._patterns = {pattern: self._keys(pattern) for pattern in dict.fromkeys(patterns)}
        self._two_stacks = all(any(f"{s}." in pattern for pattern in self._patterns) for s in STACKS)
        self._rules: dict[str, list[Rule]] = {}
        self._apart: dict[str, str] = {}
        self._compile()
        self._answers = {pattern: self._answer(pattern) for pattern in self._patterns}

    def place(self, pattern: str, numbers: tuple[int, ...]) -> Placed | str | None:
        """Where a tensor belongs: a place, the reason why it is set apart, or None."""
        answer = self._answers[pattern]
        if not isinstance(answer, list):
            return answer
        for rule in answer:
            placed = _bound(rule, numbers)
            if placed is not None:
                return placed
        return None

    @cached_property
    def extra_marks(self) -> frozenset[str]:
        """Patterns that only extra prediction layers have."""
        mark = self._family.extra_layer
        return frozenset() if mark is None else self._starting(self._compiled(mark)[0] + ".")

    @cached_property
    def layered(self) -> frozenset[str]:
        """Patterns inside a numbered layer of the kind that may be an extra one."""
        mark = self._family.extra_layer
        return frozenset() if mark is None else self._starting(mark.partition("{layer}")[0] + "{}.")

    def _starting(self, start: str) -> frozenset[str]:
        return frozenset(p for p, keys in self._patterns.items() if any(key.startswith(start) for key, _ in keys))

    def stores(self, template: str) -> bool:
        """Whether any stored name fits a template."""
        wanted = {self._compiled(full)[0] for full, _ in _stacked_names(template)}
        return any(key in wanted for keys in self._patterns.values() for key, _ in keys)

    def _answer(self, pattern: str) -> list[Rule] | str | None:
        parts = pattern.split(".")
        tower = self._tower(pattern)
        if tower and self._family.suffixes:  # the end of a name says nothing about the tower that it stands in
            return tower
        for key, binds in self._patterns[pattern]:
            if key in self._rules:
                return self._rules[key] if binds is None else self._rebound(key, binds, parts)
            if key in self._apart:
                return self._apart[key]
        found = next((part for part in parts if part in common().anywhere), "")
        return common().endings.get(parts[-1]) or common().anywhere.get(found) or tower

    def _tower(self, pattern: str) -> str | None:
        heads = (key.partition(".")[0] for key in _unwrapped(pattern, self._wrappers))
        return next((common().towers[head] for head in heads if head in common().towers), None)

    def _keys(self, pattern: str) -> list[tuple[str, Binds | None]]:
        if self._family.suffixes:
            return list(_endings(pattern))
        return [(key, None) for key in _unwrapped(pattern, self._wrappers)]

    def _rebound(self, key: str, binds: Binds, parts: list[str]) -> list[Rule]:
        stack = next((part for part in parts if part in STACKS), "") if self._two_stacks else ""
        return [rule._replace(binds=binds, stack=stack) for rule in self._rules[key]]

    def _compile(self) -> None:
        for template, (spec, roles) in _named_tensors(self._family).items():
            for full, stack in _stacked_names(template):
                key, binds = self._compiled(full)
                stack = stack if spec.stack is None else spec.stack
                self._rules.setdefault(key, []).append(Rule(spec, roles, binds, stack))
        for template, reason in self._family.apart.items():
            for full, _ in _stacked_names(template):
                self._apart[self._compiled(full)[0]] = reason

    def _compiled(self, template: str) -> tuple[str, Binds]:
        return (template, ()) if self._family.suffixes else compile_template(template)


def compile_template(template: str) -> tuple[str, Binds]:
    """`block.{layer}.layer.0.q.weight` -> (`block.{}.layer.{}.q.weight`, ("layer", 0))."""
    binds: list[str | int] = []
    parts = template.split(".")
    for index, part in enumerate(parts):
        if part in ("{layer}", "{expert}"):
            binds.append(part[1:-1])
        elif part.isdecimal():
            binds.append(int(part))
        elif "{" in part:
            raise UnreadableError(
                f"{part!r} is no placeholder; known: {{layer}}, {{expert}}, {{stack}}", where=template
            )
        else:
            continue
        parts[index] = "{}"
    return ".".join(parts), tuple(binds)


def _named_tensors(family: Family) -> dict[str, tuple[Spec, tuple[Role, ...]]]:
    """Every full tensor name (template) of a family; an entry of `tensors` overrides what a module implies."""
    named: dict[str, tuple[Spec, tuple[Role, ...]]] = {}
    for template, given in family.modules.items():
        spec = given if isinstance(given, Spec) else Spec(role=given)
        biases = tuple(bias for role in spec.roles if (bias := bias_of(role)))
        for ending in ("weight", "gamma") if spec.roles[0].is_gain else ("weight",):
            named[f"{template}.{ending}"] = (spec, spec.roles)
        for ending in ("bias", "beta") if spec.roles[0].is_gain else ("bias",):
            if len(biases) == len(spec.roles):
                named[f"{template}.{ending}"] = (spec, biases)
    for template, given in family.tensors.items():
        spec = given if isinstance(given, Spec) else Spec(role=given)
        named[template] = (spec, spec.roles)
    return named


def _stacked_names(template: str) -> list[tuple[str, str]]:
    if "{stack}" not in template:
        return [(template, "")]
    return [(template.replace("{stack}", stack), stack) for stack in STACKS]


def _unwrapped(pattern: str, wrappers: frozenset[str] | set[str]) -> Iterator[str]:
    yield pattern
    head, dot, rest = pattern.partition(".")
    for _ in range(MAX_WRAPPERS):
        if not dot or head not in wrappers:
            return
        yield rest
        head, dot, rest = rest.partition(".")


def _endings(pattern: str) -> Iterator[tuple[str, Binds]]:
    """Keys for a suffix vocabulary, longest first: `{layer}.self_attn.q_proj.weight`, `{layer}.q_proj.weight`."""
    parts = pattern.split(".")
    numbered = [index for index, part in enumerate(parts) if part == "{}"]
    binds: Binds = tuple("expert" if _counts_experts(parts, index) else "layer" for index in numbered)
    if len(set(binds)) != len(binds) or (binds and binds[0] != "layer"):
        return
    lead = "".join(f"{{{bind}}}." for bind in binds)
    tail = parts[numbered[-1] + 1 :] if numbered else parts
    for start in range(max(0, len(tail) - LONGEST_ENDING), len(tail) - 1):
        yield lead + ".".join(tail[start:]), binds


def _counts_experts(parts: list[str], index: int) -> bool:
    return index > 0 and parts[index - 1] in ("experts", "expert")


def _bound(rule: Rule, numbers: tuple[int, ...]) -> Placed | None:
    binds = rule.binds
    if len(numbers) != len(binds):
        return None
    if binds == ("layer",):
        return Placed(rule, numbers[0], None)
    if binds == ("layer", "expert"):
        return Placed(rule, numbers[0], numbers[1])
    pairs = list(zip(binds, numbers, strict=True))
    if any(bind != number for bind, number in pairs if isinstance(bind, int)):
        return None
    bound = dict(pairs)
    return Placed(rule, bound.get("layer", rule.spec.layer), bound.get("expert"))
