"""The Korean of what records say: right in order, numbers, particles and hedges, and never half of it."""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from modelkin.records import Assumption, Direction, Evidence, LayerFinding, Null, Role
from modelkin.report import phrasebook
from modelkin.report.phrasebook import korean, particle
from modelkin.verdict import words
from modelkin.verdict.policy import Tally

BOOK = Path(phrasebook.__file__).with_name("phrases_ko.toml")
OUTSIDE = (
    *(Role.EMBEDDING, Role.EMBEDDING_PROJECTION, Role.EMBEDDING_NORM, Role.EMBEDDING_NORM_BIAS),
    *(Role.HEAD, Role.HEAD_NORM, Role.HEAD_TRANSFORM, Role.HEAD_BIAS, Role.HEAD_NORM_BIAS, Role.HEAD_TRANSFORM_BIAS),
    *(Role.POSITION, Role.FIXED_POSITION, Role.TOKEN_TYPE, Role.RELATIVE_BIAS, Role.FRONT_CONV, Role.FRONT_CONV_BIAS),
    *(Role.FINAL_NORM, Role.FINAL_NORM_BIAS, Role.POOLER, Role.POOLER_BIAS),
)


# What it says.


@pytest.mark.parametrize(
    ("english", "expected"),
    [
        ("12 of 768 hidden axes found themselves", "은닉 축 768개 중 12개가 자기 번호를 찾음"),
        ("1 of 768 on average", "평균 768개 중 1개"),
        (
            "The two models are related in part: they share experts, some weights of MLP neurons and attention heads; "
            "the rest could not be compared.",
            "두 모델은 일부에서 관련이 있습니다. 전문가, MLP 뉴런의 가중치 일부와 어텐션 헤드를 공유합니다. "
            "나머지는 비교할 수 없었습니다.",
        ),
        (
            "Norm gains: 768 of 768 hidden axes found themselves; between strangers: 1 of 768 on average.",
            "노름 게인: 은닉 축 768개 중 768개가 자기 번호를 찾음; 남남 사이에서는 평균 768개 중 1개.",
        ),
        ("No more alike than strangers: hidden axes.", "남남만큼만 닮은 것: 은닉 축."),
        (
            "No more alike than strangers: hidden axes, MLP neurons and experts.",
            "남남만큼만 닮은 것: 은닉 축, MLP 뉴런과 전문가.",
        ),
        (
            "Not compared: MLP (under 1 % of the parameters), as the models have different widths, 128 and 256.",
            "비교하지 않은 부분: MLP(파라미터의 1 % 미만). 이유: 두 모델의 폭이 128과 256으로 다름.",
        ),
        (
            "3 of 40 tensors read in part are in both to the byte, 9.9 % of the numbers read: "
            "embedding, query and key of layer 0, layer 1",
            "일부를 읽은 텐서 40개 중 3개가 두 모델에 바이트까지 똑같이 있음, 읽은 숫자의 9.9 %: "
            "임베딩, 층 0, 층 1의 쿼리와 키",
        ),
        (
            "x/merged is a mixture (linear): 0.60 x/one, 0.40 y/two; explains 98% of the way to the nearest",
            "x/merged는 혼합임(linear): x/one 0.60, y/two 0.40; 가장 가까운 모델까지 거리의 98 %를 설명함",
        ),
        (
            "differences have a rank above rounding of q 8, v 16, and every other tensor is the same to the bit",
            "차이의 반올림을 넘는 계수(rank)가 q 8, v 16이며, 다른 모든 텐서는 비트까지 같음",
        ),
    ],
)
def test_a_text_in_korean(english: str, expected: str) -> None:
    assert korean(english) == expected


def test_one_unknown_piece_makes_the_whole_unknown() -> None:
    known = "1 of 768 on average"
    assert korean(known) is not None
    assert korean(f"{known}; {known}") is not None
    assert korean(f"{known}; nobody has written this down") is None
    assert korean("Norm gains: nobody has written this down; between strangers: 1 of 768 on average.") is None
    assert korean("") is None


def test_numbers_keep_their_form() -> None:
    text = "A: hidden axes stand in any order (largest rank autocorrelation at several lags -0.025, p = 1e-05)"
    told = korean(text)
    assert told is not None
    assert "-0.025, p = 1e-05" in told


@pytest.mark.parametrize(
    ("sentence", "hedge"),
    [
        (words.related(), "알 수 없습니다"),
        (words.RELATED_OR_START, "알 수 없습니다"),
        (words.SHARED_INIT, "유래했다는 뜻이 아닙니다"),
        (words.UNRELATED, "일부러 위장하지 않은 한"),
        (words.BETWEEN, "우연히"),
        (words.TAINTED, "남남 사이에서도"),
    ],
)
def test_hedges_are_kept(sentence: str, hedge: str) -> None:
    assert hedge in (korean(sentence) or "")


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("게인", "은"),
        ("헤드", "는"),
        ("A", "는"),
        ("MLP", "는"),
        ("HTML", "은"),
        ("0.3", "은"),
        ("12", "는"),
        ("20", "은"),
        ("9 %", "는"),
        ("owner/model-7b", "는"),
        ("owner/dune", "은"),
        ("owner/amber", "는"),
        ("demo/heath)", "는"),
        ("모델★", "은(는)"),
    ],
)
def test_particles_follow_the_last_sound(word: str, expected: str) -> None:
    assert particle(word, "은(는)") == expected


def test_the_particle_of_means_has_a_rule_of_its_own() -> None:
    assert [particle(word, "(으)로") for word in ("8", "3", "2", "글", "F16")] == ["로", "으로", "로", "로", "으로"]


# That it holds together.


def test_choices_never_name_one_english_text_twice() -> None:
    for section, body in tomllib.loads(BOOK.read_text("utf-8")).items():
        told = [(phrase.own, phrase.names) for phrase in phrasebook.every(body)]
        assert sorted(told) == sorted(set(told)), section


@pytest.mark.parametrize("korean_side", ["{n}개 중 {n3}개", "없음"])
def test_placeholders_that_differ_are_refused(korean_side: str) -> None:
    empty = "\n".join(f"[{name}]" for name in ("parts", "roles", "weights"))
    with pytest.raises(ValueError, match="placeholders differ"):
        phrasebook.phrases(f'[texts]\n"{{n}} of {{n2}}" = "{korean_side}"\n{empty}')


def test_two_hundred_texts_take_less_than_a_twentieth_of_a_second() -> None:
    texts = [f"{i} of 768 hidden axes found themselves; between strangers: 1 of 768 on average" for i in range(100)]
    texts += [f"Norm gains: {i} of 768 hidden axes found themselves; between strangers: {words.TAINTED}" for i in (1,)]
    texts += [f"Not compared: MLP ({i} % of the parameters), as the size of a head is not known." for i in range(99)]
    korean("12 of 768 hidden axes found themselves")  # the book is opened once
    began = time.process_time()
    for text in texts:
        korean(text)
    assert time.process_time() - began < 0.05


@pytest.mark.parametrize(
    "hostile",
    [
        "a; " * 2000,
        "1 of 7 on average; " * 90 + "x" * 2000,
        "embeddings: " * 400,
        "norm gains, " * 90 + "x" * 3000,
        "Norm gains: " + "; between strangers: " * 400,
        "x is a mixture (linear): " + "0.50 x, " * 90 + "; explains" * 400,
        "1 of 2 tensors are in both to the byte, 3 % of the parameters: " + "layer 1, " * 90 + "x" * 3000,
        "the smallest of 2 p-values (" * 200,
        "layer 1 of " * 400,
        "the rows of neurons have different widths: " + "1, " * 2000,
        "9" * 4000,
        "1," * 2000,
    ],
)
def test_hostile_texts_end_soon(hostile: str) -> None:
    text = hostile[: phrasebook.LONGEST]
    assert len(text) > 0.9 * phrasebook.LONGEST
    began = time.process_time()
    assert korean(text) is None
    assert time.process_time() - began < 0.25


def test_endless_texts_are_not_read() -> None:
    text = "1 of 7 on average"
    assert korean("; ".join([text] * 90)) is not None
    assert korean("; ".join([text] * 10**6)) is None


# Every sentence that a verdict can begin with.


def evidence(question: str, index_set: Any, **more: Any) -> Evidence:
    told = {"observed": "12 of 768 hidden axes found themselves", "strangers": "1 of 768 on average", **more}
    return Evidence(
        question=question,
        index_set=index_set,
        grade="A",
        statistic=12,
        pvalue=None,
        log10_pvalue=None,
        null=Null(""),
        n=768,
        effect=None,
        **told,
    )


GAINS = evidence("hidden-axes-by-gains", "hidden axes")
TOKENS = evidence("hidden-axes-by-embeddings", "hidden axes")
NEURONS = evidence("neurons", "neurons")
EVERY = evidence("every-neuron", "neurons")
HEADS, EXPERTS = evidence("attention", "kv groups"), evidence("experts", "experts")
COPIES = evidence(
    "copies", "tensors", observed="1 of 56 tensors is in both to the byte, 13.8 % of the parameters: embedding"
)
FOUND = [
    ((GAINS,), ()),
    ((GAINS, TOKENS), (NEURONS, HEADS, EXPERTS)),
    ((NEURONS,), (GAINS, EVERY)),
    ((NEURONS, HEADS, GAINS), (EXPERTS,)),
    ((EXPERTS, NEURONS, HEADS), (TOKENS, EVERY)),
    ((), (NEURONS,)),
]
DIRECTIONS: tuple[Direction, ...] = ("a->b", "b->a", "neither", "unknown")
UNDONE = (
    (),
    ("hidden axes are a rotation of A's", "neurons renumbered", "heads renumbered"),
    ("hidden axes renumbered and signs of hidden axes flipped", "experts renumbered", "layers moved"),
    ("hidden axes are a rotation of A's and others",),
    ("hidden axes are a rotation of some of A's",),
)


def tally_of(rejecting: tuple[Evidence, ...], quiet: tuple[Evidence, ...], **more: Any) -> Tally:
    nothing = dict.fromkeys(("byte_equal", "gauge", "coverage", "unmasked"))
    return Tally(rejecting, (), quiet, constant_gains=False, answered=1, **{**nothing, **more})


def sentences() -> Iterator[str]:
    for rejecting, quiet in FOUND:
        found = tally_of(rejecting, quiet, byte_equal=COPIES)
        yield words.byte_equal(found)
        yield from words.quiet_reasons(found)
        if rejecting:
            yield from (words.hidden_axes_alone(found), words.one_set(found), words.taken_over(found))
            yield from (
                words.some_layers(found, layers) for layers in (("3",), ("0", "1", "encoder.2"), tuple("012345"))
            )
        if rejecting and rejecting[0] is not GAINS:
            yield from (words.small_part(found, layers) for layers in ((), ("3",), ("0", "2")))
    for undone, direction, seen in product(UNDONE, DIRECTIONS, (None, NEURONS)):
        yield words.turned(tally_of((), (), unmasked=seen), undone, direction)
    yield from map(words.related, DIRECTIONS)
    yield from (
        value for name, value in vars(words).items() if name.isupper() and " " in str(value) and isinstance(value, str)
    )
    yield from words.found_reasons([*(a for pair in FOUND for a in (*pair[0], *pair[1])), COPIES])
    yield from (words.power_reason(None), words.power_reason(0.067))
    signs = tuple(LayerFinding(name, name, 0.1, 9, None, 1.0) for name in words.SIGNS)
    yield from (words.rearranged(evidence("gauge", "none", per_layer=some)) for some in (signs, signs[:1]))
    failing = evidence("neurons", "neurons", assumptions=(Assumption("the size of a head is not known", False),))
    yield from words.tainted_reasons((failing,))


def test_every_sentence_of_a_verdict_has_its_korean() -> None:
    assert sorted({text for text in sentences() if korean(text) is None}) == []


def test_sentences_stay_sentences() -> None:
    """They end in 니다 and a full stop, or as the English does in a list."""
    told = {text: korean(text) or "" for text in sentences() if text.startswith(("The two", "It ")) and text[-1] == "."}
    assert [text for text, ko in told.items() if not ko.endswith("니다.")] == []


@pytest.mark.parametrize("name", [*words.NAMES.values(), *words.SETS.values(), *words.SIGNS.values()])
def test_every_name_of_what_is_compared_has_its_korean(name: str) -> None:
    assert korean(name) is not None


@pytest.mark.parametrize("role", [role for role in Role if role not in OUTSIDE])
def test_every_role_has_its_korean(role: Role) -> None:
    """As equal tensors are told of."""
    name = role.value.replace("_", " ")
    text = "1 of 9 tensors is in both to the byte, 3 % of the parameters"
    assert korean(f"{text}: {name} of layer 1") is not None


@pytest.mark.parametrize("role", OUTSIDE)
def test_every_role_outside_of_layers_has_its_korean(role: Role) -> None:
    text = "1 of 9 tensors is in both to the byte, 3 % of the parameters"
    assert korean(f"{text}: {role.value.replace('_', ' ')}, 7 layers") is not None
