"""Every family against the tensor names and shapes of models that were really released (headers/*.toml)."""

from __future__ import annotations

import itertools
import re
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from modelkin.architectures import Anatomy, families, identify
from modelkin.architectures.family import known_families, load_family
from modelkin.architectures.templates import Table, compile_template
from modelkin.checkpoint import Checkpoint
from modelkin.formats import Layout
from modelkin.records import Extent, Role, TensorRef
from modelkin.sources.memory import MemorySource

FOLDER = Path(__file__).parent / "headers"


class Shown(msgspec.Struct, forbid_unknown_fields=True):
    count: int
    shape: tuple[int, ...]


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """`{0-31}` in a name stands for the numbers from 0 to 31."""

    model: str
    family: str
    layers: int | dict[str, int]
    tied: bool
    parameters: int
    config: dict[str, Any]
    tensors: dict[str, tuple[int, ...]]
    facts: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    apart: dict[str, int] = {}
    roles: dict[Role, Shown] = {}


HEADERS = {
    path.stem: msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Header)
    for path in sorted(FOLDER.glob("*.toml"))
}


def slim(header: Header) -> Header:
    """The same with two experts a layer: for what does not depend on their number."""
    tensors = {re.sub(r"experts\.\{0-\d+\}", "experts.{0-1}", name): shape for name, shape in header.tensors.items()}
    return msgspec.structs.replace(header, tensors=tensors)


SLIM = {name: slim(header) for name, header in HEADERS.items()}


def expanded(template: str) -> list[str]:
    pieces = re.split(r"\{(\d+)-(\d+)\}", template)
    ranges = [range(int(a), int(b) + 1) for a, b in zip(pieces[1::3], pieces[2::3], strict=True)]
    rows = itertools.product(*ranges)
    return [pieces[0] + "".join(f"{n}{p}" for n, p in zip(row, pieces[3::3], strict=True)) for row in rows]


def refs(header: Header, rename: Any = lambda name: name) -> dict[str, TensorRef]:
    found: dict[str, TensorRef] = {}
    for template, shape in header.tensors.items():
        dtype = next((kind for end, kind in header.dtypes.items() if template.endswith(end)), "BF16")
        for name in map(rename, expanded(template)):
            found[name] = TensorRef(name, dtype, shape, "model.safetensors", len(found), len(found) + 1)
    return found


class Zeros(MemorySource):
    """Names and shapes are real, the bytes are not: whatever is asked for is zero, and so equal."""

    def read(self, extents: Sequence[Extent], kind: str = "file") -> list[memoryview]:  # noqa: ARG002
        return [memoryview(bytes(extent.size)) for extent in extents]


def checkpoint(tensors: dict[str, TensorRef], config: dict[str, Any]) -> Checkpoint:
    return Checkpoint(Zeros({}), config, Layout("safetensors", tensors))


@cache
def identified(name: str, *, few_experts: bool = False) -> Anatomy:
    header = (SLIM if few_experts else HEADERS)[name]
    return identify(checkpoint(refs(header), header.config))


def assert_each_tensor_has_one_place(anatomy: Anatomy) -> None:
    placed = {view.tensor for view in anatomy.slots.values()}
    everything = [*placed, *anatomy.unmapped, *anatomy.apart]
    assert Counter(everything) == Counter(anatomy.checkpoint.tensors.keys())


@pytest.fixture(params=HEADERS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def header(name: str) -> Header:
    return HEADERS[name]


@pytest.fixture
def anatomy(name: str) -> Anatomy:
    return identified(name)


def test_every_family_has_a_released_model() -> None:
    assert {header.family for header in HEADERS.values()} == {family.name for family in families()}


def test_every_tensor_is_placed_or_set_apart(header: Header, anatomy: Anatomy) -> None:
    assert anatomy.facts.family == header.family
    assert anatomy.unmapped == ()
    assert anatomy.notes == ()
    assert_each_tensor_has_one_place(anatomy)
    assert Counter(anatomy.apart.values()) == header.apart


def test_layers_are_counted_and_named(header: Header, anatomy: Anatomy) -> None:
    assert anatomy.facts.layers == header.layers
    assert anatomy.facts.configured_layers == header.layers
    stacks = header.layers.items() if isinstance(header.layers, dict) else [("", header.layers)]
    assert anatomy.layers == tuple(f"{s}.{i}" if s else str(i) for s, n in stacks for i in range(n))


def test_parameters_add_up(header: Header, anatomy: Anatomy) -> None:
    apart = sum(anatomy.checkpoint.tensors[name].parameters for name in anatomy.apart)
    cut = Counter[str]()
    for view in anatomy.slots.values():
        cut[view.tensor] += TensorRef("", "", view.shape, "", 0, 0).parameters
    assert all(anatomy.checkpoint.tensors[name].parameters == count for name, count in cut.items())
    assert cut.total() + apart == header.parameters == anatomy.checkpoint.parameters


def test_roles_have_their_shapes(header: Header, anatomy: Anatomy) -> None:
    for role, shown in header.roles.items():
        slots = anatomy.of(role)
        assert (role, len(slots)) == (role, shown.count)
        assert {anatomy.shape(slot) for slot in slots} == {shown.shape}, role


def test_facts_are_those_of_the_model(header: Header, anatomy: Anatomy) -> None:
    facts = anatomy.facts
    assert facts.tied == header.tied
    assert {key: getattr(facts, key) for key in header.facts} == header.facts
    text = header.config.get("text_config", header.config)
    assert facts.hidden in (text.get(key) for key in ("hidden_size", "d_model", "n_embd", "n_embed", "dim"))
    assert facts.vocabulary == text.get("vocab_size")
    assert msgspec.json.decode(msgspec.json.encode(facts), type=type(facts)) == facts


@pytest.mark.parametrize("prefix", ["module.", "state_dict.", "module.model.", "base_model.model.", "language_model."])
def test_wrappers_change_nothing(name: str, prefix: str) -> None:
    wrapped = identify(checkpoint(refs(SLIM[name], lambda stored: prefix + stored), SLIM[name].config))
    assert wrapped.unmapped == ()
    assert list(wrapped.slots) == list(identified(name, few_experts=True).slots)


def test_the_inner_model_alone_is_the_same(name: str) -> None:
    """`AutoModel` saves without the outermost prefix."""
    first = re.compile(r"^(model|transformer|bert|roberta|distilbert|mpnet|gpt_neox)\.")
    bare = identify(checkpoint(refs(SLIM[name], lambda stored: first.sub("", stored)), SLIM[name].config))
    assert list(bare.slots) == list(identified(name, few_experts=True).slots)


def test_names_alone_tell_the_family(name: str) -> None:
    anatomy, family = identify(checkpoint(refs(SLIM[name]), {})), load_family(SLIM[name].family)
    assert_each_tensor_has_one_place(anatomy)
    assert any("guessed by names" in note for note in anatomy.notes)
    assert anatomy.facts.heads is anatomy.facts.vocabulary is None
    assert not family.by_name or anatomy.facts.family == family.name
    known = identified(name, few_experts=True).slots
    shared = anatomy.slots.keys() & known.keys()
    assert shared
    assert all(anatomy.slots[slot] == known[slot] for slot in shared)


def test_an_extra_prediction_layer_is_found_without_the_config() -> None:
    header = HEADERS["glm-4.5-air"]
    anatomy = identify(checkpoint(refs(header), {}))
    assert anatomy.facts.layers == 46
    assert all(".46." in name for name, reason in anatomy.apart.items() if reason == "extra prediction layer")


@pytest.mark.parametrize("family", known_families(), ids=lambda family: family.name)
def test_a_family_file_is_complete(family: Any) -> None:
    assert family.model_types
    assert family.architectures
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", example) for example in family.examples)
    assert family.examples
    assert family.why
    for template in (*family.modules, *family.tensors, *family.apart):
        compile_template(template.replace("{stack}", "encoder"))
    Table(family, [])


def test_no_two_families_claim_a_model_type() -> None:
    claims = Counter(kind for family in families() for kind in (*family.model_types, *family.architectures))
    assert [kind for kind, count in claims.items() if count > 1] == []


def test_twenty_thousand_names_take_a_fraction_of_a_second() -> None:
    model = checkpoint(refs(HEADERS["glm-4.5-air"]), HEADERS["glm-4.5-air"].config)
    start = time.process_time()
    identify(model)
    assert time.process_time() - start < 1.0  # 0.25 on a slow core; the slack is for a busy machine
