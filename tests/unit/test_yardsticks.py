"""The published methods as written here: their formulas against direct sums, what each claims to withstand, and the
move that breaks it."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, ortho_group, pearsonr, spearmanr

pytest.importorskip("torch")

from benchmarks.calibration.markdown import updated
from benchmarks.yardsticks import awm, direct, huref, independence, rates, running, spectra
from benchmarks.yardsticks.__main__ import main
from benchmarks.yardsticks.pairs import DISGUISES, NONE, Task, disguised, free_gains, tasks
from benchmarks.yardsticks.table import YARDSTICKS
from benchmarks.yardsticks.weights import NotApplicable, attention_products, cosine, shared_embeddings
from zoo.checkpoints import Model, load, save

from modelkin.architectures import Anatomy, identify
from modelkin.demo import bundled
from modelkin.inspection import open_model
from modelkin.records import Role

SCORES = {yardstick.name: yardstick.score for yardstick in YARDSTICKS}
BASE, STRANGER = "dune", "grove"  # trained apart on the same text


@cache
def model(name: str) -> Model:
    return load(bundled()[name])


@cache
def anatomy(name: str) -> Anatomy:
    return identify(open_model(str(bundled()[name])))


@pytest.fixture(scope="module")
def worn(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Anatomy]:
    """The base in every disguise, in float32 so that rounding hides nothing."""
    import torch

    found = {}
    for disguise in DISGUISES[1:]:
        changed = disguised(model(BASE), disguise, seed=3)
        if changed is not None:
            place = tmp_path_factory.mktemp("worn")
            save(changed, place, torch.float32)
            found[disguise] = identify(open_model(str(place)))
    return found


def between(name: str, other: Anatomy) -> float:
    return SCORES[name](anatomy(BASE), other)


# Formulas.


def test_a_model_is_most_like_itself() -> None:
    for name in SCORES:
        itself, other = between(name, anatomy(BASE)), between(name, anatomy(STRANGER))
        assert itself > other, name
    for name in ("gain cosine", "PCS", "HuRef", "AWM", "std profile", "MDIR"):
        assert between(name, anatomy(BASE)) == pytest.approx(1, abs=1e-6)
    assert between("GhostSpec", anatomy(BASE)) == 0


def test_the_terms_of_huref_against_the_matrices_written_out() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 7)), rng.normal(size=(30, 5))
    a, b = rng.normal(size=(7, 7)), rng.normal(size=(5, 5))
    y[:, :5] += x[:, :5]
    expected = pearsonr((x @ a @ x.T).ravel(), (y @ b @ y.T).ravel()).statistic
    assert huref.term_correlation(x, a, y, b) == pytest.approx(expected, abs=1e-12)
    assert huref.term_correlation(x, 0 * a, y, b) == 0


def test_attention_products_against_a_loop_over_heads() -> None:
    base = anatomy(BASE)
    q, k, v, o = (np.float64(base.read(base.of(role)[0])) for role in (Role.Q, Role.K, Role.V, Role.O))
    size, group = base.facts.head_dim, len(q) // len(k)
    asked = written = 0
    for head in range(len(q) // size):
        mine, shared = (slice(h * size, (h + 1) * size) for h in (head, head // group))
        asked = asked + q[mine].T @ k[shared]
        written = written + (o[:, mine] @ v[shared]).T
    for found, expected in zip(attention_products(base, "0"), (asked, written), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-10)


def test_unbiased_cka_against_the_trace_formula() -> None:
    """[Song et al. 2012]: HSIC from Gram matrices without their diagonals."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(12, 4)), rng.normal(size=(12, 3))

    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        k, m = (g - np.diag(np.diag(g)) for g in (a @ a.T, b @ b.T))
        n, one = len(k), np.ones(len(k))
        cross = one @ k @ one * (one @ m @ one) / ((n - 1) * (n - 2)) - 2 / (n - 2) * (one @ k @ m @ one)
        return float(np.trace(k @ m) + cross)

    expected = hsic(x, y) / math.sqrt(hsic(x, x) * hsic(y, y))
    assert awm.cka(awm.centred_gram(x), awm.centred_gram(y)) == pytest.approx(expected, rel=1e-10)


def test_unbiased_cka_of_independent_samples_is_zero_on_average() -> None:
    rng = np.random.default_rng(2)
    found = [awm.cka(*(awm.centred_gram(rng.normal(size=(40, 20))) for _ in range(2))) for _ in range(300)]
    assert abs(np.mean(found)) < 4 * np.std(found) / math.sqrt(len(found))


def test_signed_axes_are_found_again() -> None:
    rng = np.random.default_rng(3)
    wide = rng.normal(size=(200, 12))
    axes, signs = rng.permutation(12)[:9], rng.choice([-1.0, 1.0], 9)
    found = awm.signed_axes(wide, wide[:, axes] * signs)
    np.testing.assert_array_equal(found[0], axes)
    np.testing.assert_array_equal(found[1], signs)


def test_the_p_of_an_order_against_scipy() -> None:
    rng = np.random.default_rng(4)
    left, right = rng.permutation(50), rng.permutation(50)
    expected = spearmanr(left, right, alternative="greater").pvalue
    assert independence.log_pvalue(left, right) == pytest.approx(math.log(expected), rel=1e-9)
    assert independence.log_pvalue(left, left) == independence.LEAST


def test_layers_together_by_fisher() -> None:
    logs = [math.log(p) for p in (0.2, 0.03, 0.6)]
    assert independence.together(logs) == pytest.approx(-math.log10(chi2.sf(-2 * sum(logs), 6)))
    assert independence.together([independence.LEAST] * 6) > 1800


def test_p_values_of_random_orders_are_uniform() -> None:
    rng = np.random.default_rng(5)
    found = [math.exp(independence.log_pvalue(rng.permutation(64), np.arange(64))) for _ in range(800)]
    for level in (0.01, 0.1, 0.5):
        assert np.mean(np.array(found) <= level) == pytest.approx(level, abs=4 * math.sqrt(level / 800))


def test_effective_rank_of_equal_values_is_their_number() -> None:
    assert spectra.effective_rank(np.ones(17)) == 17
    assert spectra.effective_rank(np.array([1.0, 0, 0, 0])) == 2  # fewer than two cannot be stretched


def test_the_cheapest_monotone_path() -> None:
    assert spectra.monotone_cost(1 - np.eye(4), gap=10) == 0
    deeper = 1 - np.eye(5)[[0, 1, 3, 4]]
    assert spectra.monotone_cost(deeper, gap=0.25) == pytest.approx(0.25 / 5)
    assert spectra.monotone_cost(np.ones((3, 3)), gap=0.25) == pytest.approx(6 * 0.25 / 3)


def test_the_polar_factor_is_the_rotation_between_the_embeddings() -> None:
    rng = np.random.default_rng(6)
    rows, turn = rng.normal(size=(60, 8)), ortho_group.rvs(8, random_state=7)
    np.testing.assert_allclose(spectra.polar_factor(rows.T @ (rows @ turn)), turn, atol=1e-10)
    assert spectra.signed_trace(-np.eye(8)[rng.permutation(8)]) == 1


def test_the_bound_of_mdir() -> None:
    assert spectra.haar_log10_pvalue(0.1, 4096) == pytest.approx(-22179, rel=2e-3)  # as worked out for its paper
    assert spectra.haar_log10_pvalue(0.0, 64) == 0
    both = [128**2 * rate for rate in (0.5**2 / 2, 0.125 - 0.25 * math.log(2 * 0.5))]
    assert both[0] == both[1]  # the two branches meet


def test_profiles_of_unequal_length_are_stretched() -> None:
    line = np.array([1.0, 4.0, 2.0, 8.0])
    longer = np.interp(np.linspace(0, 1, 9), np.linspace(0, 1, 4), line)
    assert direct.profile_correlation(line, 3 * longer + 1) == pytest.approx(1)
    with pytest.raises(NotApplicable):
        direct.profile_correlation(line[:2], line)


def test_the_parameter_cosine_is_that_of_everything_end_to_end() -> None:
    a, b = anatomy(BASE), anatomy(STRANGER)
    mine, theirs = (np.concatenate([np.float64(m.read(slot)).ravel() for slot in a.slots]) for m in (a, b))
    assert SCORES["PCS"](a, b) == pytest.approx(cosine(mine, theirs), rel=1e-9)


# What each is said to withstand, and what breaks it: the base beside itself in a disguise.

KEEPS = {
    "gain cosine": ("permute_heads", "turn_queries", "mix_values", "permute_neurons", "scale_neurons", "flip_signs"),
    "PCS": (),
    "HuRef": (
        *("permute_hidden", "flip_signs", "permute_heads", "turn_queries", "mix_values", "permute_neurons"),
        *("scale_neurons", "permute_vocabulary"),
    ),
    "AWM": ("permute_hidden", "flip_signs", "permute_heads", "mix_values", "permute_neurons", "permute_vocabulary"),
    "csu": ("permute_heads", "turn_queries", "mix_values", "permute_vocabulary"),
    "match": ("permute_hidden", "flip_signs", "rotate_hidden", "refactor_gains", "permute_neurons", "permute_heads"),
    "std profile": ("permute_hidden", "flip_signs", "permute_heads", "permute_neurons", "scale_neurons"),
    "GhostSpec": ("permute_hidden", "flip_signs", "permute_heads", "turn_queries", "mix_values", "permute_neurons"),
    "MDIR": ("permute_hidden", "flip_signs", "permute_vocabulary", "refactor_gains", "scale_neurons"),
}
BREAKS = {
    "gain cosine": "composed + noise + free gains",
    "PCS": "permute_hidden",
    "HuRef": "composed + noise + free gains",
    "AWM": "rotate_hidden",
    "csu": "permute_neurons",
    "csw": "permute_hidden",
    "GhostSpec": "composed + noise + free gains",
    "std profile": "composed",
    "MDIR": "rotate_hidden",
}


@pytest.mark.parametrize(("name", "move"), [(name, move) for name, moves in KEEPS.items() for move in moves])
def test_a_yardstick_does_not_see_the_moves_that_it_withstands(name: str, move: str, worn: dict[str, Anatomy]) -> None:
    itself = between(name, anatomy(BASE))
    assert between(name, worn[move]) == pytest.approx(itself, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", BREAKS)
def test_a_yardstick_is_broken_by_a_move_that_costs_nothing(name: str, worn: dict[str, Anatomy]) -> None:
    itself, other = between(name, anatomy(BASE)), between(name, anatomy(STRANGER))
    disguise = between(name, worn[BREAKS[name]])
    assert disguise < other + 0.25 * (itself - other), "most of the way from a copy to a stranger"


def test_free_gains_leave_the_outputs() -> None:
    """The folded readers, which are all that the model computes with, stay; the gains do not."""
    before, after = model(BASE), free_gains(model(BASE), seed=1)
    assert (after.weights["0.input_norm"] < 0).any()
    for norm, readers in (("input_norm", "qkv"), ("post_norm", ("gate", "up"))):
        for reader in readers:
            for layer in range(before.layers):
                mine, theirs = (m.weights[f"{layer}.{reader}"] * m.weights[f"{layer}.{norm}"] for m in (before, after))
                np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=1e-6)
    assert after.weights["final_norm"].equal(before.weights["final_norm"])


def test_shared_embeddings_are_of_the_same_tokens(worn: dict[str, Anatomy]) -> None:
    left, right = shared_embeddings(anatomy(BASE), worn["permute_vocabulary"])
    np.testing.assert_allclose(left, right)
    assert len(left) > 900


# The run and its tables.


def test_a_threshold_lets_no_more_strangers_pass_than_allowed() -> None:
    assert rates.threshold([0.1, 0.9, 0.5]) == 0.9
    many = [i / 5000 for i in range(5000)]
    assert sum(score > rates.threshold(many) for score in many) == 5


def rows(*scores: tuple[str, str, float | str]) -> list[dict[str, str]]:
    empty = dict.fromkeys(running.COLUMNS, "")
    return [empty | {"relation": r, "disguise": d, "PCS": str(s)} for r, d, s in scores]


def test_the_detection_table_counts_relatives_above_every_stranger() -> None:
    told = rows(
        ("strangers", NONE, 0.3),
        ("strangers", "composed", 0.5),
        ("fine-tune", NONE, 0.9),
        ("copy", NONE, 0.4),
        ("copy", "composed", ""),
    )
    assert rates.detection(told, "PCS", 0.5, NONE) == (1, 2)
    assert rates.detection_table(told).splitlines()[2:] == ["| undisguised | 2 | 0.50 |", "| composed | 1 | 0.00 |"]
    assert "| 2 |" in rates.thresholds_table(told)
    assert rates.kinds_table(told, NONE).splitlines()[2:] == ["| copy | 1 | 0.00 |", "| fine-tune | 1 | 1.00 |"]


def test_the_page_is_made_from_its_data() -> None:
    page = Path(__file__).parents[2] / "docs" / "yardsticks.md"
    told = running.rows_of(page.with_suffix(".csv.xz"))
    assert len(told) > 500
    text = page.read_text("utf-8")
    assert updated(text, rates.blocks(told)) == text


def zoo_folder(place: Path) -> Path:
    """Two strangers and a child, small, with the truths that a zoo writes."""
    import json
    import shutil

    truths = {
        BASE: {"kind": "unrelated"},
        STRANGER: {"kind": "unrelated"},
        "heath": {"kind": "fine-tune", "parents": [BASE]},
    }
    for name, truth in truths.items():
        shutil.copytree(bundled()[name], place / name)
        (place / name / "truth.json").write_text(json.dumps({"name": name, **truth}))
    return place


def test_tasks_name_strangers_relatives_and_copies(tmp_path: Path) -> None:
    found = tasks([zoo_folder(tmp_path)], ("strangers", "relatives"), (NONE, "composed"), None)
    told = {(a, task.b, relation) for task in found for a, relation in task.others}
    assert told == {
        (BASE, STRANGER, "strangers"),
        (BASE, BASE, "copy"),
        (STRANGER, STRANGER, "copy"),
        (BASE, "heath", "fine-tune"),
    }
    assert len(found) == 2 * 3


def test_what_was_scored_is_not_scored_again(tmp_path: Path) -> None:
    task = Task(tmp_path, "b", NONE, (("x", "strangers"), ("y", "strangers")))
    (left,) = running.without_done([task], {(tmp_path.name, "x", "b", NONE)})
    assert left.others == (("y", "strangers"),)
    assert running.without_done([left], {(tmp_path.name, "y", "b", NONE)}) == []


def test_scores_of_a_disguised_task(tmp_path: Path) -> None:
    task = Task(zoo_folder(tmp_path), "heath", "permute_neurons", ((BASE, "fine-tune"),))
    (row,) = running.scored(task)
    assert tuple(row) == running.COLUMNS
    assert float(row["HuRef"]) > 0.9
    assert float(row["csu"]) < 10
    assert running.scored(Task(tmp_path, "heath", "permute_experts", ((BASE, "fine-tune"),))) == []


def test_a_broken_off_file_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    line = ",".join("0" for _ in running.COLUMNS)
    path.write_text(",".join(running.COLUMNS) + f"\n{line}\n{line[:5]}")
    assert len(running.rows_of(path)) == 1
    path.write_text("other\n1\n")
    with pytest.raises(ValueError, match="other columns"):
        running.rows_of(path)


def test_the_command_prints_tables_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "scores.csv"
    told = rows(("strangers", NONE, 0.3), ("copy", NONE, 0.9))
    path.write_text("\n".join([",".join(running.COLUMNS), *(",".join(row.values()) for row in told)]) + "\n")
    assert main(["--out", str(path)]) == 0
    assert "| undisguised | 1 | 1.00 |" in capsys.readouterr().out
    with pytest.raises(ValueError, match="no 'everything'"):
        main(["--out", str(path), "--pairs", "everything"])
