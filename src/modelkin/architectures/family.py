"""What a family file may say. One TOML is one family; unknown keys are errors."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

import msgspec

from modelkin.errors import UnreadableError
from modelkin.records import Role

Norm = Literal["rms", "layer", "none", "unknown"]
Placement = Literal["pre", "post", "sandwich", "parallel", "unknown"]
Positions = Literal["rotary", "learned", "fixed", "relative", "alibi", "none", "unknown"]
Unknown = Literal["unknown"]  # TOML has no word for None
Scalar = bool | int | float | str
Paths = str | int | tuple[str, ...] | None
UNKNOWN = "unknown"


class Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a stored tensor becomes slots: one role, or several cut out of one tensor."""

    role: Role | None = None
    split: tuple[Role, ...] = ()
    how: Literal["concat", "equal", "grouped"] = "concat"
    stacked: bool = False  # a leading axis of experts
    transposed: bool | None = None  # stored (in, out); None: no, or for stacked experts by shape
    copy: bool = False  # a second place of a tied tensor: used only where the first is not stored
    layer: int | None = None  # a fixed number where the name has none
    stack: str | None = None  # another stack than the name's; "" for what both share
    beside: tuple[str, ...] = ()  # modules that must be stored next to it, else it may mean another thing
    without: tuple[str, ...] = ()  # modules that must not

    def __post_init__(self) -> None:
        if (self.role is None) == (not self.split):
            raise ValueError("give either `role` or `split`")

    @property
    def roles(self) -> tuple[Role, ...]:
        return self.split if self.role is None else (self.role,)


class Traits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the names and the config do not say."""

    norm: Norm
    norm_placement: Placement
    positions: Positions
    exchangeable_hidden: bool  # may the hidden axes be renumbered without changing the model?
    gain_offset: float | Unknown = 0.0  # 1.0 where the gain is stored minus one
    norm_bias: bool | Unknown = False
    stream_norm: bool | Unknown = False  # the norm comes after the residual sum (BERT), not on the branch (OLMo 2)
    activation: str | None = None
    gated: bool | Unknown = False
    tied: bool = False  # where the config does not say


class Keys(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the config keeps a number: a dotted path, several to try, or the number itself. None: the usual names."""

    hidden: Paths = None
    layers: Paths | dict[str, str] = None  # a table gives one path a stack
    heads: Paths = None
    kv_heads: Paths = None
    head_dim: Paths = None
    intermediate: Paths = None
    expert_intermediate: Paths = None
    experts: Paths = None
    vocabulary: Paths = None
    activation: str | tuple[str, ...] | None = None


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes that hold under a condition; all conditions given must be met."""

    config: dict[str, Scalar | list[Scalar]] = {}
    present: str | None = None  # a config path that must hold something
    stored: str | None = None  # a tensor name (template) that must be stored
    facts: dict[str, Scalar] = {}
    keys: dict[str, Any] = {}
    modules: dict[str, Role | Spec] = {}
    tensors: dict[str, Role | Spec] = {}

    def __post_init__(self) -> None:
        if not (self.config or self.present or self.stored):
            raise ValueError("a `when` needs `config`, `present` or `stored`")


class Family(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A family of models that name and use their tensors alike."""

    name: str
    model_types: tuple[str, ...]
    examples: tuple[str, ...]
    why: str
    facts: Traits
    modules: dict[str, Role | Spec]  # a module stands for its weight and its bias
    architectures: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    keys: Keys = Keys()
    defaults: dict[str, Scalar] = {}  # config values that hold where the config is silent
    tensors: dict[str, Role | Spec] = {}
    apart: dict[str, str] = {}
    when: tuple[When, ...] = ()
    extra_layer: str | None = None  # a module that only extra prediction layers have
    marks: tuple[str, ...] = ()  # tensors without which a guess by names alone is not this family
    by_name: bool = True  # False: names alone cannot tell it from a commoner family
    suffixes: bool = False  # keys match the end of a name

    def __post_init__(self) -> None:
        for change in self.when:
            self.changed(change)

    def changed(self, change: When) -> Family:
        """This family under a condition that is met."""
        return msgspec.structs.replace(
            self,
            facts=msgspec.convert({**msgspec.to_builtins(self.facts), **change.facts}, Traits),
            keys=msgspec.convert({**msgspec.to_builtins(self.keys), **change.keys}, Keys),
            modules={**self.modules, **change.modules},
            tensors={**self.tensors, **change.tensors},
            when=(),
        )


def parse_family(text: str, where: str) -> Family:
    """A family from the text of its TOML; strict."""
    try:
        return msgspec.convert(tomllib.loads(text), Family)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UnreadableError(str(error), where=where, hint="docs/families.md lists the keys") from error


@cache
def _texts() -> dict[str, str]:
    folder = files("modelkin.architectures") / "families"
    found = {entry.name: entry for entry in folder.iterdir() if entry.name.endswith(".toml")}
    return {name.removesuffix(".toml"): found[name].read_text(encoding="utf-8") for name in sorted(found)}


@cache
def load_family(name: str) -> Family:
    """One family by its name."""
    family = parse_family(_texts()[name], f"{name}.toml")
    if family.name != name:
        raise UnreadableError(f"the file is {name}.toml, but its name is {family.name!r}", where=f"{name}.toml")
    return family


def known_families() -> tuple[Family, ...]:
    """Every family but the vocabulary for unknown ones."""
    return tuple(load_family(name) for name in _texts() if name != UNKNOWN)


def family_of_type(model_type: str) -> Family | None:
    """The family that claims a model type; only files that mention it are parsed."""
    return _claimed(model_type, "model_types")


def family_of_class(architecture: str) -> Family | None:
    """The family that claims a class name from the config's `architectures`."""
    return _claimed(architecture, "architectures")


def _claimed(word: str, field: str) -> Family | None:
    texts = _texts()
    candidates = [word] if word in texts and word != UNKNOWN else []
    candidates += [name for name, text in texts.items() if f'"{word}"' in text and name not in candidates]
    for name in candidates:
        family = load_family(name)
        if word in getattr(family, field):
            return family
    return None
