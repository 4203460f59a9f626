"""The tables of docs/calibration.md: each against a count made by hand, and the page against its data."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks.calibration import beside, contrast, detection, laws, publishing, rates
from benchmarks.calibration.__main__ import PAGE
from benchmarks.calibration.comparing import ASKED, open_once
from benchmarks.calibration.markdown import scientific, updated
from benchmarks.calibration.results import (
    GROWING,
    HERE,
    Answered,
    Job,
    Naive,
    Result,
    columns,
    growing_rows,
    map_of,
    parsed,
    publish_rows,
    published_rows,
    reason,
    table_text,
)
from scipy.stats import chisquare, pearsonr, t

from modelkin import demo
from modelkin.architectures import identify
from modelkin.inspection import open_model
from modelkin.records import Role


def stranger(number: int, **told: object) -> Result:
    """Pairs of a chain of models: neighbours share one."""
    facts = {"verdict": "unrelated", "label": "strangers, dense, gated"} | told
    return Result(f"m{number}", f"m{number + 1}", "quick", "unrelated", (), **facts)  # type: ignore[arg-type]


def child(number: int, **told: object) -> Result:
    facts = {"verdict": "related", "label": "fine-tune (sft)", "demand": "quick", "log10_p": -99.0} | told
    return Result(f"m{number}", f"sft.m{number}", "quick", "descendant", ("fine-tune",), **facts)  # type: ignore[arg-type]


def cells(table: str) -> list[list[str]]:
    """The body of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


# Counts against their law.


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6])
def test_expected_counts_are_those_of_all_permutations(n: int) -> None:
    orders = list(itertools.permutations(range(n)))
    fixed = Counter(sum(i == j for i, j in enumerate(order)) for order in orders)
    found = laws.law({(0, n): len(orders)})
    brute = [*(fixed[k] for k in range(laws.SHOWN)), sum(times for k, times in fixed.items() if k >= laws.SHOWN)]
    assert np.allclose(found.expected, brute, atol=1e-9)


def test_chi_square_is_that_of_scipy_where_no_cell_is_small() -> None:
    counts = {(0, 30): 3700, (1, 30): 3600, (2, 30): 1900, (3, 30): 600, (4, 30): 160, (5, 30): 30, (7, 30): 10}
    found = laws.law(counts)
    assert found.pvalue == pytest.approx(chisquare(found.seen, found.expected, sum_check=False).pvalue)
    assert (found.total, found.largest) == (10_000, 7)
    assert found.mean == pytest.approx((3600 + 3800 + 1800 + 640 + 150 + 70) / 10_000)


def test_cells_that_expect_nothing_do_not_divide_by_it() -> None:
    """Of four experts three cannot find themselves."""
    found = laws.law({(0, 4): 45, (1, 4): 40, (2, 4): 30, (4, 4): 5})
    assert found.expected[3] == 0
    assert found.pvalue == pytest.approx(1.0)


def test_counts_of_relatives_do_not_follow_the_law() -> None:
    assert (laws.law({(12, 16): 40}).pvalue or 0) < 1e-20


def test_a_roll_call_is_counted_once_a_pair() -> None:
    answers = {"hidden-axes-by-gains": Answered(2.0, 128, -0.6, True), "neurons": Answered(3.0, 32, -0.2, True)}
    quick = stranger(0, answers=answers, gate=((1, 16), (0, 16)))
    heads = {"attention": Answered(1.0, 4, -0.1, True, None, ((1, 2), (0, 2)))}
    standard = Result("m0", "m1", "standard", "unrelated", (), quick.label, answers=answers | heads)
    found = laws.stranger_counts([standard, quick, child(1, answers=answers)])
    assert found["hidden-axes-by-gains"] == {(2, 128): 1}
    assert found["neurons, gate rows of a layer"] == {(1, 16): 1, (0, 16): 1}
    assert found["attention"] == {(1, 2): 1, (0, 2): 1}
    assert "neurons" not in found


def test_too_small_p_values_are_marked() -> None:
    fair = [math.log10((i + 1) / 1000) for i in range(1000)]
    assert "too many" not in laws.share_below(fair, -1.0)
    assert laws.share_below(fair, -1.0).startswith("100 (10 %")
    assert "too many" in laws.share_below([value - 0.5 for value in fair], -1.0)


# False alarms.


def test_strangers_are_counted_by_what_was_said_of_them() -> None:
    said = ["related", *["unrelated"] * 6, *["undecided"] * 2]
    results = [stranger(i, verdict=word, least=-0.1 * i) for i, word in enumerate(said)]
    results += [stranger(20, nothing="the models have different widths, # and #", verdict="")]
    last = cells(rates.verdicts_table(results))[-1]
    assert last[:8] == ["quick", rates.ALL, "10", "10", "**1**", "6", "2", "1"]
    assert last[8] == f"{100 * rates.accused(results).independent:.3g} %"  # type: ignore[union-attr]


def test_other_thresholds_count_the_smallest_p_of_a_pair() -> None:
    least = [-7.0, -4.0, -2.0, -1.31, -1.30, 0.0]
    row = cells(rates.thresholds_table([stranger(i, least=p) for i, p in enumerate(least)]))[-1]
    assert [cell.split()[0] for cell in row[3:6]] == ["4", "2", "1"]
    assert row[6] == "1e-7"


def test_students_of_answers_count_apart_from_strangers() -> None:
    student = Result("a", "b", "quick", "distilled", ("distilled",), rates.TAUGHT[0], verdict="related")
    assert detection.surprise(student) == "FALSE ACCUSATION"
    assert [row[1] for row in cells(rates.verdicts_table([student, stranger(0)]))] == [
        "strangers, dense, gated",
        rates.ALL,
        rates.TAUGHT[0],
    ]


def test_cost_is_a_median_over_pairs() -> None:
    results = [stranger(i, bytes=(100, 300), seconds=float(i)) for i in range(5)]
    assert cells(rates.cost_table(results))[0][1:5] == ["5", "200", "300", "2.000"]


# Relatives.


def test_the_claim_is_made_with_enough_pairs_and_no_error_only() -> None:
    positives, negatives = [child(i) for i in range(299)], [stranger(i) for i in range(2995)]
    assert "allows the claim" in detection.claim([*positives, *negatives])
    assert "not made" in detection.claim([*positives[1:], *negatives])
    assert "not made" in detection.claim([*positives, *negatives[1:]])
    assert "not made" in detection.claim([*positives, child(500, log10_p=-11.9), *negatives])
    assert "not made" in detection.claim([*positives, *negatives, stranger(4000, verdict="related")])


def test_the_printed_bound_is_the_one_without_a_miss() -> None:
    """0.05^(1/n) of detection at least."""
    text = detection.claim([*(child(i) for i in range(40)), stranger(0)])
    assert f"at least {100 * 0.05 ** (1 / 40):.3g} %" in text


def test_every_surprise_has_its_reason() -> None:
    told = {"verdict": "related", "expected": "component-reuse", "named": ("fine-tune",)}
    part = Result("a", "b", "standard", "descendant", ("component-reuse",), "x", **told)  # type: ignore[arg-type]
    wrong = {
        "FALSE ACCUSATION": stranger(0, verdict="related"),
        "missed: demanded at this budget": child(0, verdict="undecided", log10_p=None),
        "found, but with less certainty than demanded": child(0, log10_p=-8.0),
        "demanded, but could not be compared": child(0, verdict="", nothing="other widths"),
        "called unrelated, and is not": child(0, demand="", verdict="unrelated"),
        "named otherwise than component-reuse": part,
    }
    assert {why: detection.surprise(result) for why, result in wrong.items()} == {why: why for why in wrong}
    hidden = Result("a", "b", "standard", "descendant", ("obfuscated",), "obfuscated (masked)", verdict="unrelated")
    assert detection.surprise(hidden) == "called unrelated: disguised"
    shorter = replace(part, expected="depth-prune", named=("depth-prune", "fine-tune"))
    moved = replace(part, expected="fine-tune", named=("continued-pretraining",))  # the same, done more or less
    fine = [stranger(0), child(0), shorter, moved, replace(part, budget="quick"), child(0, log10_p=None)]
    assert [detection.surprise(result) for result in fine] == [""] * 6


def test_what_is_demanded_at_full_is_not_missed_before() -> None:
    early = child(0, demand="full", verdict="undecided")
    assert not detection.is_miss(early)
    found = {"demand": "full", "verdict": "related", "log10_p": -7.0}
    late = Result("a", "b", "full", "descendant", ("component-reuse",), "x", **found)  # type: ignore[arg-type]
    assert not detection.is_miss(late)


def test_all_names_are_listed_when_asked_for() -> None:
    results = [child(i, verdict="undecided") for i in range(9)]
    assert all(f"sft.m{i}" in detection.surprises_table(results, None) for i in range(9))
    assert "sft.m8" not in detection.surprises_table(results)
    assert "…" in detection.surprises_table(results)


# The statistics of others.


@pytest.mark.parametrize("share", [0.01, 0.5, 0.99, 1.0])
def test_the_threshold_is_the_largest_that_finds_enough(share: float) -> None:
    values = np.random.default_rng(0).normal(size=137).tolist()
    brute = max(v for v in values if sum(w >= v for w in values) >= share * len(values))
    assert contrast.lowest_finding(values, share) == brute


def test_contrast_counts_both_ways() -> None:
    near = [child(i, naive=Naive(cosine=value), least=-50.0) for i, value in enumerate((0.97, 0.98, 0.99, 0.94))]
    far = [stranger(i, naive=Naive(cosine=value), least=-0.3) for i, value in enumerate((0.96, 0.985, 0.2))]
    row = cells(contrast.contrast_table([*near, *far]))[0]
    assert row[2:4] == ["3 of 4 (75 %)", "2 of 3 (66.7 %)"]
    assert row[4:] == ["≥ 0.94000", "2 of 3 (66.7 %)", "1 of 4 (25 %)"]
    assert cells(contrast.contrast_table([*near, *far]))[-1][2:4] == ["4 of 4 (100 %)", "0 of 3 (0 %)"]


def test_p_of_pearson_is_that_of_scipy() -> None:
    rng = np.random.default_rng(1)
    x, noise = rng.normal(size=(2, 60))
    for weight in (-0.4, 0.0, 0.3, 2.0):
        r, p = pearsonr(x, weight * x + noise, alternative="greater")
        assert beside.log10_pearson(float(r), 60) == pytest.approx(math.log10(p), abs=1e-6)


def test_p_of_pearson_goes_on_where_floats_end() -> None:
    """Either side of where the tail is taken from a series, both are known; far beyond, it keeps falling."""
    entries = 2000
    for r in np.linspace(0.675, 0.695, 9).tolist():
        z = r * math.sqrt((entries - 2) / (1 - r * r))
        assert t.sf(z, entries - 2) > 1e-307
        assert beside.log10_pearson(r, entries) == pytest.approx(math.log10(t.sf(z, entries - 2)), rel=1e-6)
    assert beside.log10_pearson(0.99, entries) < beside.log10_pearson(0.9, entries) < -500


def test_sigma_is_cohens_d_of_two_foursomes() -> None:
    rng = np.random.default_rng(2)
    vectors = rng.uniform(0.5, 1, (5, 2, 8)).astype(np.float32)
    gains = [beside.Facing(Role.INPUT_NORM, str(i), a, b) for i, (a, b) in enumerate(vectors)]

    def cosine(a: np.ndarray, b: np.ndarray) -> float:
        x, y = a.astype(np.float64), b.astype(np.float64)
        return float(x @ y / np.sqrt((x @ x) * (y @ y)))

    across = [cosine(pair.a, pair.b) for pair in gains[1:]]
    within = [cosine(gains[0].a, pair.a) for pair in gains[1:]]
    d = (np.mean(across) - np.mean(within)) / np.sqrt((np.var(across) + np.var(within)) / 2)
    assert beside.baseline_sigma(gains[::-1]) == pytest.approx(d, rel=1e-9)
    assert beside.baseline_sigma(gains[:2]) is None


# Files.


@pytest.mark.parametrize(
    ("log10", "text"),
    [(0.0, "1"), (-0.301, "0.5"), (-6.0, "1e-6"), (-11.3, "5e-12"), (-214.887, "1e-215"), (-17.99, "1e-18")],
)
def test_powers_that_no_float_holds_are_spelled(log10: float, text: str) -> None:
    assert scientific(log10) == text


def test_a_page_without_marks_is_refused() -> None:
    assert updated("a\n<!-- x -->\nold\n<!-- /x -->\nb\n", {"x": "new"}) == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"
    with pytest.raises(ValueError, match="no <!-- y -->"):
        updated("a\n", {"y": "new"})


def test_equal_reasons_are_equal() -> None:
    assert reason("widths, 128 and 1,096.5 of 3") == "widths, # and # of #"


def test_bundled_models_as_rows_and_back(tmp_path: Path) -> None:
    """Compared, written, published and read again: the same verdicts, and what the other statistics make of them."""
    facts = {"direction": "neither", "class": "dense", "expected": "", "kinds": "", "demand": ""}
    pairs = [
        {"a": "dune", "b": "grove", "outcome": "unrelated", "label": "strangers, dense, gated", **facts},
        {"a": "amber", "b": "dune", "outcome": "descendant", "label": "depth-upscale (upscale)", **facts},
    ]
    rows = open_once(demo.HERE / "models", [Job(budget, pair) for budget in ("quick", "standard") for pair in pairs])
    assert all(list(row) == columns(ASKED) for row in rows)
    publish_rows(rows, tmp_path / "kept.csv.xz")
    kept = sorted(published_rows(tmp_path / "kept.csv.xz"), key=lambda row: (row["budget"], row["a"] == "amber"))
    quick, related, standard, _ = parsed(kept)
    assert (quick.verdict, related.verdict, standard.verdict) == ("undecided", "related", "unrelated")
    assert related.least == related.log10_p
    assert related.least < -100 < quick.least
    assert quick.naive.cosine is not None
    assert quick.naive.cosine > 0.99
    assert related.naive.rows_cosine is not None
    assert related.naive.rows_cosine > 0.9 > abs(quick.naive.rows_cosine or 0)
    assert len(quick.gate) == len(quick.up) == len(quick.values) == 2
    assert sum(k for k, _ in quick.values) < 10
    assert sum(k for k, _ in related.gate) == 32
    assert 0 < quick.bytes[0] < 1_000_000 < standard.bytes[0] < 4_000_000


def test_a_line_that_was_cut_off_is_not_a_result(tmp_path: Path) -> None:
    row = dict.fromkeys(columns(("neurons",)), "") | {"a": "x", "b": "y", "budget": "quick"}
    text = table_text([row, row], list(row))
    (tmp_path / GROWING).write_text(text[:-9])
    assert growing_rows(tmp_path / GROWING) == [row]


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    pytest.importorskip("zoo.lineage", reason="the zoo is not part of the package")
    from benchmarks.calibration import running

    for name, called in (("dune", "one"), ("grove", "second")):  # of names that are in the half without made children
        shutil.copytree(demo.HERE / "models" / name, tmp_path / "models" / called)
        truth = {"kind": "unrelated", "family": "llama", "parents": [], "seed": ord(name[0])}
        (tmp_path / "models" / called / "truth.json").write_text(json.dumps(truth))
    out = tmp_path / "out"
    assert running.run(tmp_path / "models", out, 1, ["quick", "standard"], None) == 2
    whole = (out / GROWING).read_text()
    (out / GROWING).write_text(whole[: whole.rstrip("\n").rfind("\n") + 30])
    assert running.run(tmp_path / "models", out, 1, ["quick", "standard"], None) == 1
    seen = [{k: v for k, v in row.items() if k != "seconds"} for row in growing_rows(out / GROWING)]
    assert [row["verdict"] for row in seen] == ["undecided", "unrelated"]
    (out / GROWING).write_text(whole.replace(",2026", ",1999"))
    with pytest.raises(ValueError, match="choose another folder"):
        running.run(tmp_path / "models", out, 1, ["quick"], None)


def test_pairs_are_told_what_is_demanded_of_them() -> None:
    pytest.importorskip("zoo.lineage", reason="the zoo is not part of the package")
    from benchmarks.calibration.pairs import described

    def told(a: str, b: str, kinds: str, outcome: str = "descendant") -> tuple[str, str, str]:
        pair = {"a": a, "b": b, "kinds": kinds, "outcome": outcome, "direction": "a->b", "class": "dense"}
        found = described(pair)
        return found["label"], found["demand"], found["expected"]

    assert told("twin-00", "sft.twin-00", "fine-tune") == ("fine-tune (sft)", "quick", "fine-tune")
    assert told("twin-00", "layer.twin-00", "component-reuse") == ("component-reuse (layer)", "full", "component-reuse")
    assert told("twin-09", "decoy-10.twin-00", "merge") == ("merge (decoy-10, the decoy)", "", "")
    assert told("twin-09", "decoy-30.twin-00", "merge")[1] == "quick"
    assert told("twin-09", "grafted-layer.twin-00", "fine-tune")[1] == ""
    assert told("twin-00", "seed-prose.twin-00", "shared-init", "shared-init")[2] == "shared-init"
    assert told("twin-00", "masked.sft.twin-00", "fine-tune obfuscated") == ("fine-tune → obfuscated", "", "")


def test_made_children_have_the_layers_that_are_told(tmp_path: Path) -> None:
    made = pytest.importorskip("benchmarks.calibration.made", reason="the zoo is not part of the package")
    known = {"dune": {"kind": "unrelated", "family": "llama", "shape": {"class": "dense", "layers": 6}}}
    pairs = made.made_pairs(known, {"dune": "test"})
    assert {pair["kinds"] for pair in pairs} >= {"identical", "re-encoded", "depth-upscale", "width-prune"}
    assert made.made_pairs(known, {"dune": "tune"}) == []
    base = gains_of(demo.HERE / "models" / "dune")
    for pair in pairs:
        made.make(pair["b"], demo.HERE / "models", tmp_path / pair["b"])
        child, told = gains_of(tmp_path / pair["b"]), map_of(pair["true_map"])
        assert [layer for layer, _ in told] == [str(number) for number in range(len(child))]
        if pair["kinds"] != "width-prune":
            assert all(np.array_equal(child[int(new)], base[int(old)]) for new, old in told)


def gains_of(folder: Path) -> list[np.ndarray]:
    """The gains at the entry of every layer."""
    with closing(open_model(str(folder))) as checkpoint:
        anatomy = identify(checkpoint)
        return [anatomy.read(slot) for slot in anatomy.of(Role.INPUT_NORM)]


def test_what_matters_most_is_compared_first() -> None:
    pairs = pytest.importorskip("benchmarks.calibration.pairs", reason="the zoo is not part of the package")
    shape = {"hidden": 8, "layers": 2, "class": "moe", "experts": 2, "neurons": 4}
    first = {"kind": "unrelated", "family": "mixtral", "parents": [], "shape": shape}
    alone = {f"m{i}": first | {"seed": i} for i in range(6)}
    sons = {f"layer.m{i}": {"kind": "component-reuse", "parents": [f"m{i}"], "shape": shape} for i in range(6)}
    found = pairs.jobs(alone | sons, ["quick", "standard", "full"])
    halves = [job.pair["half"] for job in found if job.budget == "standard" and job.pair["outcome"] == "unrelated"]
    assert halves == sorted(halves, key=pairs.HALVES.index)
    full = [place for place, job in enumerate(found) if job.budget == "full"]
    assert len(full) == 6
    assert all((found[i - 1].budget, found[i - 1].pair) == ("standard", found[i].pair) for i in full)
    assert len({job.key for job in found}) == len(found)
    few = pairs.jobs(alone | sons, ["standard"], 1)
    assert [job.pair["outcome"] for job in few].count("unrelated") == 1


def test_renumbered_copies_of_a_model_are_strangers_to_it() -> None:
    pytest.importorskip("zoo.measured", reason="the zoo is not part of the package")
    from benchmarks.calibration import gauge
    from zoo.measured import Sample, bits

    rng = np.random.default_rng(3)
    drawn = {"final_norm": rng.normal(size=12), "0.gate": rng.normal(size=(6, 12)), "0.up": rng.normal(size=(6, 12))}
    coarse = {key: (np.round(value * 64) / 64).astype(np.float32) for key, value in drawn.items()}
    sample = Sample("it", {key: bits(value) for key, value in coarse.items()})
    found: dict[str, Counter[tuple[int, int]]] = {}
    for _ in range(500):
        for test, n, k, _ in (*gauge.hidden_tests(sample, sample, rng), *gauge.neuron_tests(sample, sample, rng)):
            if k is not None:
                found.setdefault(test, Counter())[k, n] += 1
    assert set(found) == {"hidden axes by gains", "neurons by gate rows", "neurons by up rows"}
    assert all((laws.law(counts).pvalue or 0) > 1e-4 for counts in found.values())


def test_the_page_is_what_its_data_say() -> None:
    for path, text in publishing.pages(HERE, PAGE).items():
        assert path.read_text("utf-8") == text, f"{path.name}: python -m benchmarks.calibration publish"
    assert all((HERE / name).is_file() for name in ("strangers.png", "cosine.png"))
