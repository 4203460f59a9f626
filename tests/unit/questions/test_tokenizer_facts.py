"""Two vocabularies side by side."""

from __future__ import annotations

import json

from modelkin.checkpoint import open_checkpoint
from modelkin.demo import bundled
from modelkin.questions.tokenizer import tokenizer_facts
from modelkin.sources import LocalSource
from modelkin.vocabulary import Spelling, Vocabulary


def vocabulary(ids: dict[bytes, int], merges: tuple[str, ...] = (), *special: str) -> Vocabulary:
    base = {content.decode(): number for content, number in ids.items()}
    names = {name: 1000 + len(base) + number for number, name in enumerate(special)}
    tokens = {number: name for name, number in base.items()}
    return Vocabulary("bpe", Spelling(), (), base, names, names, tokens, {}, ids, {}, {}, merges)


def bundled_vocabulary(name: str) -> Vocabulary:
    found = open_checkpoint(LocalSource(bundled()[name])).vocabulary
    assert found is not None
    return found


def test_by_hand() -> None:
    a = vocabulary({b"one": 0, b"two": 1, b"three": 2, "셋".encode(): 3}, ("o n", "t w", "t h", "e e"), "<s>")
    b = vocabulary({b"two": 11, b"three": 12, b"four": 13, b"one": 0}, ("o n", "t h", "t w", "x y"), "<pad>", "<s>")
    found = tokenizer_facts(a, b)
    assert (found["shared"], found["same_ids"]) == (3, 1)
    assert (found["jaccard"], found["overlap"]) == (3 / 5, 3 / 4)
    assert found["id_offsets"] == [[10, 2], [0, 1]]
    assert found["merges"]["lengths"] == [4, 4]
    assert (found["merges"]["shared"], found["merges"]["same_start"], found["merges"]["order"]) == (3, 1, 2 / 3)
    assert found["special"] == {"counts": [1, 2], "shared": 1, "same_ids": 0, "names": ["<s>"]}
    assert found["scripts_only_a"] == {"hangul": 1}
    assert found["scripts_only_b"] == {"ascii-letters": 1}


def test_one_tokenizer_twice() -> None:
    dune = bundled_vocabulary("dune")
    found = tokenizer_facts(dune, bundled_vocabulary("heath"))
    assert found["jaccard"] == found["overlap"] == found["merges"]["order"] == 1.0
    assert found["same_ids"] == found["shared"] == len(dune.ids)
    assert found["merges"]["sha256_all"][0] == found["merges"]["sha256_all"][1] is not None
    assert found["scripts_only_a"] == found["scripts_only_b"] == {}


def test_renumbered_tokens_are_shared_and_have_other_ids() -> None:
    found = tokenizer_facts(bundled_vocabulary("dune"), bundled_vocabulary("fjord"))
    assert found["jaccard"] == 1.0
    assert found["same_ids"] < found["shared"] / 4


def test_another_tokenizer_and_json() -> None:
    found = tokenizer_facts(bundled_vocabulary("dune"), bundled_vocabulary("birch"))
    assert 0 < found["jaccard"] < 1
    assert json.loads(json.dumps(found)) == found


def test_nothing_in_either() -> None:
    empty = vocabulary({})
    found = tokenizer_facts(empty, empty)
    assert (found["jaccard"], found["overlap"], found["merges"]["order"]) == (0.0, 0.0, None)
    assert found["merges"]["sha256_all"] == [None, None]
