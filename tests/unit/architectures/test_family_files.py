"""A family file is read strictly."""

from __future__ import annotations

import pytest

from modelkin.architectures.family import family_of_class, family_of_type, known_families, parse_family
from modelkin.architectures.templates import Table, compile_template, dissect
from modelkin.errors import UnreadableError

GOOD = """
name = "some"
model_types = ["some"]
examples = ["owner/some-7b"]
why = "because"
[facts]
norm = "rms"
norm_placement = "pre"
positions = "rotary"
exchangeable_hidden = true
[modules]
"layers.{layer}.q" = "q"
"""


def test_the_smallest_family_is_read() -> None:
    assert parse_family(GOOD, "some.toml").name == "some"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('why = "because"', 'why = "because"\nwhy_not = "x"'),
        ('norm = "rms"', 'norm = "batch"'),
        ('norm = "rms"', 'norm = "rms"\ngain_ofset = 1.0'),
        ('norm_placement = "pre"', ""),
        ("exchangeable_hidden = true", 'exchangeable_hidden = "yes"'),
        ('= "q"', '= "queries"'),
        ('= "q"', '= { role = "q", splitt = ["q"] }'),
        ('= "q"', '= { role = "q", split = ["q", "k"] }'),
        ('= "q"', "= { stacked = true }"),
        ('= "q"', '= { split = ["q", "k", "v"], how = "somehow" }'),
        ('= "q"', '= "q"\n[[when]]\nfacts = { norm = "layer" }'),
        ('= "q"', '= "q"\n[[when]]\nconfig = { a = true }\nfacts = { norm = "batch" }'),
        ('= "q"', '= "q"\n[[when]]\nconfig = { a = true }\nkeys = { head = "n_head" }'),
        ('name = "some"', "name = some"),
        ('model_types = ["some"]', 'model_types = "some"'),
    ],
)
def test_a_wrong_key_or_value_is_an_error_that_names_the_file(old: str, new: str) -> None:
    assert old in GOOD
    with pytest.raises(UnreadableError) as caught:
        parse_family(GOOD.replace(old, new, 1), "some.toml")
    assert "some.toml" in str(caught.value)
    assert "docs/families.md" in caught.value.hint


def test_a_wrong_placeholder_is_an_error() -> None:
    family = parse_family(GOOD.replace("{layer}", "{block}"), "some.toml")
    with pytest.raises(UnreadableError):
        Table(family, [])


def test_templates_fix_or_bind_their_numbers() -> None:
    assert compile_template("block.{layer}.layer.0.q.weight") == ("block.{}.layer.{}.q.weight", ("layer", 0))
    assert dissect("model.layers.3.experts.12.w1.weight") == ("model.layers.{}.experts.{}.w1.weight", (3, 12))
    assert dissect("conv1.weight") == ("conv1.weight", ())


def test_model_types_find_their_family() -> None:
    for family in known_families():
        assert all(family_of_type(kind) is family for kind in family.model_types)
        assert all(family_of_class(kind) is family for kind in family.architectures)
    for stranger in ("unknown", "", "../families/llama", "rms", "meta-llama/Llama-3.1-8B"):
        assert family_of_type(stranger) is None
