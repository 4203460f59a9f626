"""Figures from a survey made by hand: all are drawn, nothing is cut off, nulls stand beside, rows lie beside."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

from modelkin.records import Matrix, Survey, SurveyCost, SurveyModel, Table, Value
from modelkin.report.figures import (
    FIGURES,
    Drawn,
    canvas,
    draw_all,
    drawing,
    experiments,
    gains,
    halves,
    matrices,
    pairs,
    tokens,
    weights,
)
from modelkin.report.figures.rows import decimals, file_stem, numbers, where

matplotlib = pytest.importorskip("matplotlib")

MODELS = ("alpha", "한글-모형")
LAYERS = tuple("012345")
ROLE = "input_norm"
RNG = np.random.default_rng(0)
N = 64


def table(name: str, columns: str, rows: list[tuple[Value, ...]]) -> Table:
    return Table(
        name=name, title=name, caption=f"{len(rows)} rows of {name}.", strangers="zero", columns=tuple(columns.split()),
        rows=tuple(rows),
    )  # fmt: skip


def some(count: int) -> list[float]:
    return [float(value) for value in RNG.uniform(0.1, 0.9, count)]


def matrix(kind: str, names: tuple[str, ...], metric: str, values: np.ndarray | None = None) -> Matrix:
    found = RNG.normal(0, 0.1, (len(names), len(names))) if values is None else values
    return Matrix(
        name=f"{kind}.{metric}", title=kind, caption="Some tensors.", strangers="zero", metric=metric, role=ROLE,
        rows=names, columns=names, values=tuple(tuple(float(v) for v in row) for row in found),
    )  # fmt: skip


def survey_tables() -> Iterator[Table]:
    a, b = MODELS
    pair = (a, b)
    each = [(model, layer) for model in MODELS for layer in LAYERS]
    yield table("gains", "model role layer n mean std min max l2 l2_of_ones cv",
                [(m, ROLE, layer, N, *some(5), 8.0, 0.1) for m, layer in each])  # fmt: skip
    yield table("curves", "a b known role layer_a layer_b n cosine expected_cosine pearson l2",
                [(*pair, "derived", ROLE, i, i, N, *some(4)) for i in LAYERS])  # fmt: skip
    yield table("layer-pairs", "a b known role metric diagonal_mean off_mean off_expected dominance dominance_p",
                [(*pair, "derived", ROLE, metric, *some(5)) for metric in ("cosine", "pearson")])  # fmt: skip
    kinds = [("layer-0", d) for d in range(1, 6)] + [("equal-distance", d) for d in range(1, 6)]
    kinds += [("layer-0", None), ("random-normal", 0), ("shuffled", 0), ("means-only", 0)]
    spreads = "cosine_mean cosine_std pearson_mean pearson_std l2_mean l2_std expected_cosine width"
    yield table("baselines", f"model role baseline distance n {spreads}",
                [(m, ROLE, kind, d, 3, *some(7), N) for m in MODELS for kind, d in kinds])  # fmt: skip
    yield table("groups", f"role layer group_a group_b n {spreads}",
                [(ROLE, layer, "all", "all", 1, *some(7), N) for layer in LAYERS])  # fmt: skip
    yield table("input-minus-post", "model layer mean std", [(m, layer, *some(2)) for m, layer in each])
    yield table("input-minus-post-pairs", "a b layer pearson p", [(*pair, layer, *some(2)) for layer in LAYERS])
    yield table("pca", "centred model role layer pc1 pc2 pc3",
                [(c, m, ROLE, layer, *some(3)) for c in ("no", "yes") for m, layer in each])  # fmt: skip
    yield table("pca-explained", "centred component share correlation_with_layer_scale",
                [(c, i, *some(2)) for c in ("no", "yes") for i in (1, 2, 3)])  # fmt: skip
    yield table("ridges", "model role layer left right density",
                [(m, ROLE, i, e / 4, (e + 1) / 4, *some(1)) for m, i in each for e in range(-2, 12)])  # fmt: skip
    yield table("surface", "model role layer dimension value",
                [(m, ROLE, layer, d, *some(1)) for m, layer in each for d in range(10)])  # fmt: skip
    shown, at = "value_a value_b minus_mean_a minus_mean_b", ("derived", ROLE, "2", "2")
    yield table("quartiles", f"a b known role layer_a layer_b chosen_by dimension quartile {shown}",
                [(*pair, *at, "highest cosine of 6", d, 1 + d // 5, *some(4)) for d in range(20)])  # fmt: skip
    steps = "mean_ulps one_ulp largest_ulps smallest_update"
    yield table("changes", f"a b role layer_a layer_b n changed mean_abs {steps} answer",
                [(*pair, ROLE, i, i, N, *some(6), "trained") for i in LAYERS])  # fmt: skip
    yield table("windows", "a b role layer_a layer_b status windows n cosine rel_rmse z p bytes_equal",
                [(*pair, r, i, i, "ok", 3, 900, *some(4), "no") for r in "kv" for i in LAYERS])  # fmt: skip
    yield table("truncation", "a b role layer_a layer_b how rows cosine z p null_mean null_std",
                [(*pair, "q", i, i, "leading rows", 9, *some(5)) for i in LAYERS])  # fmt: skip
    aligned, renumbered = "aligned_cosine aligned_null_mean aligned_null_std", "renumbered_mean renumbered_std"
    yield table("routers", f"a b layer_a layer_b experts cosine pearson {aligned} chose_their_own p {renumbered}",
                [(*pair, i, i, 8, *some(5), 1, 0.6, *some(2)) for i in LAYERS])  # fmt: skip
    yield table("bytes", "a b role tensors equal counted why_not_counted", [(*pair, ROLE, 6, 3, 1, "constant")])
    yield table("tokens", "a b token id_a id_b cosine cosine_after_alignment held_out",
                [(*pair, f"t{i}", i, i, *some(2), "yes" if i % 2 else "no") for i in range(40)])  # fmt: skip
    rotated = "aligned_train aligned_held_out aligned_null"
    yield table("embeddings", f"a b tokens mean std z random_pairs_a random_pairs_b {rotated}",
                [(*pair, 40, *some(8))])  # fmt: skip
    facts = {
        "shared": 5,
        "ordinary.a": 9,
        "ordinary.b": 8,
        "jaccard": 0.4,
        "overlap": 0.6,
        "same_ids": 2,
        "id_pearson": 0.3,
    }
    yield table("vocabulary", "a b fact value", [(*pair, fact, value) for fact, value in facts.items()])


def made_survey() -> Survey:
    models = tuple(
        SurveyModel(id=m, label=m, revision=None, family="f", parameters=1, layers=6, hidden=N) for m in MODELS
    )
    metrics = ("cosine", "centred_cosine", "rel_l2")
    over = [matrix(f"models.{ROLE}.3", MODELS, metric) for metric in metrics]
    over += [matrix(f"mixed.{ROLE}", ("alpha@1", "한글-모형@2"), metric) for metric in metrics]
    over += [matrix(f"within.alpha.{ROLE}", LAYERS, metric) for metric in metrics]
    over += [matrix(f"layers.alpha.한글-모형.{ROLE}", LAYERS, metric) for metric in ("cosine", "pearson")]
    return Survey(
        modelkin="0", seed=0, models=models, roles=(ROLE,), layers=("3",), tables=tuple(survey_tables()),
        matrices=tuple(over), cost=SurveyCost(bytes=0, tensor_bytes=0, requests=0, seconds=0.0),
    )  # fmt: skip


SURVEY = made_survey()

pytestmark = pytest.mark.xdist_group("figures")  # what the fixture makes takes long, so one worker makes it


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> tuple[Drawn, Path]:
    folder = tmp_path_factory.mktemp("figures")
    return draw_all(SURVEY, folder), folder


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with matplotlib.rc_context(canvas.settings()):
        yield


def test_every_kind_is_drawn_as_png_and_svg_with_its_rows(drawn: tuple[Drawn, Path]) -> None:
    done, folder = drawn
    assert not done.missing
    for kind in FIGURES:
        names = [name for name in done.captions if name.startswith(kind.name)]
        assert names, kind.name
        for name in names:
            assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
            assert "<svg" in (folder / f"{name}.svg").read_text(encoding="utf-8")
            assert list(folder.glob(f"{name}*.csv")), name
    assert {path.name for path in done.files} == {path.name for path in folder.iterdir()}


def test_the_rows_beside_a_figure_are_those_of_the_table(drawn: tuple[Drawn, Path]) -> None:
    _, folder = drawn
    with (folder / f"figure-08-gains.{ROLE}.csv").open(encoding="utf-8", newline="") as stream:
        header, *body = csv.reader(stream)
    wanted = SURVEY.table("gains")
    assert tuple(header) == wanted.columns
    assert [tuple(row) for row in body] == [tuple(str(value) for value in row) for row in wanted.rows]


def test_a_matrix_beside_a_figure_keeps_its_names(drawn: tuple[Drawn, Path]) -> None:
    _, folder = drawn
    path = folder / f"matrices-models.{ROLE}.3.models.{ROLE}.3.cosine.csv"
    first = path.read_text(encoding="utf-8").splitlines()[0]
    assert first == f",{MODELS[0]},{MODELS[1]}"


def test_what_cannot_be_drawn_is_named_with_the_reason(tmp_path: Path) -> None:
    only = msgspec.structs.replace(SURVEY, tables=(SURVEY.table("gains"),), matrices=())
    told: list[tuple[int, int]] = []
    done = draw_all(only, tmp_path, lambda *step: told.append(step))
    assert list(done.captions) == [f"figure-08-gains.{ROLE}"]
    assert done.missing.keys() == {kind.name for kind in FIGURES} - {"figure-08-gains"}
    assert "the survey has no changes" in (tmp_path / "captions.txt").read_text(encoding="utf-8")
    assert told[-1] == (len(FIGURES), len(FIGURES))


def test_the_same_survey_makes_the_same_svg(drawn: tuple[Drawn, Path], tmp_path: Path) -> None:
    _, folder = drawn
    only = msgspec.structs.replace(SURVEY, tables=(SURVEY.table("gains"),), matrices=())
    draw_all(only, tmp_path)
    name = f"figure-08-gains.{ROLE}.svg"
    assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_a_name_no_font_has_becomes_a_number_and_the_caption_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Warnings are errors here, so a box for a missing glyph would fail as well."""
    monkeypatch.setattr(canvas, "families", lambda: ("DejaVu Sans",))
    canvas._has_glyph.cache_clear()
    only = msgspec.structs.replace(SURVEY, tables=(SURVEY.table("gains"),), matrices=())
    done = draw_all(only, tmp_path)
    canvas._has_glyph.cache_clear()
    assert "model 2" in done.captions[f"figure-08-gains.{ROLE}"]
    assert "model 2" in (tmp_path / f"figure-08-gains.{ROLE}.svg").read_text(encoding="utf-8")
    with (tmp_path / f"figure-08-gains.{ROLE}.csv").open(encoding="utf-8") as stream:
        assert MODELS[1] in stream.read()


def test_mathematics_in_a_name_is_not_read_as_such() -> None:
    assert not canvas.drawable("a$b$c")
    assert canvas.drawable("Yi-1.5_6B")


def test_the_null_stands_beside_every_curve() -> None:
    picture = next(pairs.bars(SURVEY))
    panel = picture.figure.axes[2]
    lines = {line.get_label(): line for line in panel.get_lines()}
    curves = SURVEY.table("curves")
    np.testing.assert_allclose(lines["cosine from means alone"].get_ydata(), numbers(curves, "expected_cosine"))
    np.testing.assert_allclose(lines["Pearson"].get_ydata(), numbers(curves, "pearson"))
    band = panel.collections[0].get_paths()[0].get_extents()
    assert band.ymax == pytest.approx(1.96 / np.sqrt(N - 1))
    assert band.ymin == -band.ymax


def test_captions_are_made_from_the_data() -> None:
    picture = next(pairs.bars(SURVEY))
    assert "20 of 64 dimensions" in picture.caption
    assert "highest cosine of 6" in picture.caption
    assert "Known to be derived" in picture.caption
    surface = SURVEY.table("surface")
    fewer = msgspec.structs.replace(surface, rows=tuple(row for row in surface.rows if int(row[3] or 0) < 4))
    for shown, count in ((surface, 10), (fewer, 4)):
        picture = next(gains.surface(msgspec.structs.replace(SURVEY, tables=(shown,))))
        assert f"the first {count} dimensions" in picture.caption


def test_heights_and_ridges_show_the_full_range() -> None:
    values = numbers(SURVEY.table("surface"), "value")
    for panel in next(gains.surface(SURVEY)).figure.axes[:2]:
        low, high = panel.get_zlim()  # type: ignore[attr-defined]
        assert low <= values.min()
        assert high >= values.max()
    ridges = SURVEY.table("ridges")
    for panel in next(gains.ridges(SURVEY)).figure.axes:
        low, high = panel.get_xlim()
        assert low <= numbers(ridges, "left").min()
        assert high >= numbers(ridges, "right").max()


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e6])
def test_colours_cover_every_cell(scale: float) -> None:
    cells = np.random.default_rng(1).standard_cauchy((9, 9)) * scale
    cells[0, 0] = np.nan
    along, across = canvas.norm_along(cells), canvas.norm_across(cells, strangers=0.1 * scale)
    known = cells[np.isfinite(cells)]
    for norm in (along, across):
        assert norm.vmin <= known.min()
        assert norm.vmax >= known.max()
        assert norm(known).min() >= 0
        assert norm(known).max() <= 1
    assert across.vmin == -across.vmax
    assert across(0.0) == pytest.approx(0.5)


def test_cells_all_alike_have_a_scale_that_can_be_read() -> None:
    norm = canvas.norm_along(np.ones((3, 3)))
    assert norm.vmin < 1 < norm.vmax


def test_a_thing_beside_itself_does_not_stretch_the_scale() -> None:
    values = np.full((6, 6), 0.01)
    np.fill_diagonal(values, 1.0)
    values[0, 1] = -0.02
    within = matrix(f"within.alpha.{ROLE}", LAYERS, "centred_cosine", values)
    picture = next(matrices.within(msgspec.structs.replace(SURVEY, matrices=(within,))))
    image = picture.figure.axes[0].get_images()[0]
    assert image.norm.vmax == pytest.approx(0.02)


def test_the_diagonal_is_in_the_range_where_it_sets_two_models_side_by_side() -> None:
    values = np.full((6, 6), 0.01)
    np.fill_diagonal(values, 0.97)
    between = matrix(f"layers.alpha.한글-모형.{ROLE}", LAYERS, "pearson", values)
    picture = next(pairs.layer_matrices(msgspec.structs.replace(SURVEY, matrices=(between,))))
    assert picture.figure.axes[0].get_images()[0].norm.vmax == pytest.approx(0.97)


def test_none_is_not_drawn_and_breaks_nothing(tmp_path: Path) -> None:
    def emptied(it: Table) -> Table:
        keep = {"n", "distance", "left", "right", "dimension", "tensors", "layer"}
        kept = [i for i, name in enumerate(it.columns) if name in keep]
        first = tuple(None if isinstance(v, float) and i not in kept else v for i, v in enumerate(it.rows[0]))
        return msgspec.structs.replace(it, rows=(first, *it.rows[1:]))

    chosen = ("gains", "curves", "quartiles", "changes", "windows", "routers", "baselines", "groups", "tokens")
    holed = tuple(emptied(SURVEY.table(name)) for name in chosen)
    done = draw_all(msgspec.structs.replace(SURVEY, tables=holed, matrices=()), tmp_path)
    assert {name.partition(".")[0] for name in done.captions} >= {"figure-01-bars", "figure-08-gains", "routers"}


def test_models_without_hangul_need_no_stand_in() -> None:
    plain = msgspec.structs.replace(SURVEY, models=SURVEY.models[:1])
    assert canvas.stand_ins(plain) == {}


def test_names_of_pictures_are_names_of_files() -> None:
    assert all(kind.name == kind.name.lower() and "/" not in kind.name for kind in FIGURES)
    assert len({kind.name for kind in FIGURES}) == len(FIGURES)
    assert drawing.FIGURES is FIGURES


def with_table(changed: Table) -> Survey:
    others = tuple(it for it in SURVEY.tables if it.name != changed.name)
    return msgspec.structs.replace(SURVEY, tables=(*others, changed))


def column_set(it: Table, **columns: Value) -> Table:
    places = {it.columns.index(name): value for name, value in columns.items()}
    rows = tuple(tuple(places.get(i, value) for i, value in enumerate(row)) for row in it.rows)
    return msgspec.structs.replace(it, rows=rows)


def words(picture: canvas.Picture, panel: int) -> list[str]:
    return [text.get_text() for text in picture.figure.axes[panel].texts]


def test_two_models_with_equal_gains_are_said_to_be(tmp_path: Path) -> None:
    frozen = {"changed": 0.0, "mean_abs": 0.0, "mean_ulps": None, "largest_ulps": 0, "answer": "frozen"}
    equal = column_set(SURVEY.table("changes"), **frozen)
    only = msgspec.structs.replace(SURVEY, tables=(equal,), matrices=())
    assert draw_all(only, tmp_path).captions
    assert words(next(pairs.changes(only)), 2) == ["no value differs"]
    cast = column_set(equal, changed=0.5, largest_ulps=None, smallest_update=None, mean_abs=1e-3)
    picture = next(pairs.changes(with_table(cast)))
    assert picture.figure.axes[1].get_yscale() == "log"
    assert "no steps to count" in words(picture, 2)[0]


def test_the_dashed_line_is_one_value_moved_by_one_whole_step() -> None:
    """`smallest_update` is half a step."""
    table = column_set(SURVEY.table("changes"), smallest_update=2**-9)
    panel = next(pairs.changes(with_table(table))).figure.axes[1]
    dashed = next(line for line in panel.get_lines() if line.get_linestyle() == "--" and len(line.get_xdata()))
    np.testing.assert_allclose(dashed.get_ydata(), 2**-8 / N)


@pytest.mark.parametrize("draw", [experiments.first_layer, experiments.equal_distance, experiments.groups_by_layer])
def test_behind_cosines_lies_what_means_give_for_the_same_pairs(draw) -> None:
    panel = next(draw(SURVEY)).figure.axes[0]
    drawn = [
        line.get_ydata() for line in panel.get_lines() if line.get_label() == "cosine from means and spreads alone"
    ]
    if draw is experiments.groups_by_layer:
        wanted = [SURVEY.table("groups")]
    else:
        kinds = ("layer-0", "equal-distance") if draw is experiments.first_layer else ("equal-distance",)
        table = SURVEY.table("baselines")
        wanted = [where(table, model=model, baseline=kind) for model in MODELS for kind in kinds]
    assert len(drawn) == len(wanted)
    for found, rows in zip(drawn, wanted, strict=True):
        known = np.isfinite(numbers(rows, "distance")) if "distance" in rows.columns else slice(None)
        np.testing.assert_allclose(found, numbers(rows, "expected_cosine")[known])


def test_the_first_layer_is_weighed_by_pairs() -> None:
    """Two distances: 3 pairs at 0.9 and 1 pair at 0.5 make 0.8, not 0.7."""
    rows = [("alpha", ROLE, kind, d, n, c, 0.0, 0.0, 0.0, 1.0, 0.0, c, N)
            for kind in ("layer-0", "equal-distance") for d, n, c in ((1, 3, 0.9), (2, 1, 0.5))]  # fmt: skip
    table = msgspec.structs.replace(SURVEY.table("baselines"), rows=tuple(rows))
    assert "any two layers 0.800" in next(experiments.first_layer(with_table(table))).caption


def test_every_width_has_its_own_band() -> None:
    table = SURVEY.table("groups")
    narrow = column_set(table, width=N // 4)
    both = msgspec.structs.replace(table, rows=table.rows + narrow.rows)
    panel = next(experiments.groups_by_layer(with_table(both))).figure.axes[1]
    tops = [patch.get_extents().transformed(panel.transData.inverted()).ymax for patch in panel.patches]
    np.testing.assert_allclose(sorted(tops), [1.96 / np.sqrt(N - 1), 1.96 / np.sqrt(N / 4 - 1)])


def test_pairs_stand_at_their_layers_and_have_names_however_many() -> None:
    table = SURVEY.table("input-minus-post-pairs")
    rows = [("alpha", f"m{n}", layer, 0.01 * n, 0.5) for n in range(25) for layer in ("3", "4")]
    picture = next(gains.input_minus_post(with_table(msgspec.structs.replace(table, rows=tuple(rows)))))
    lines = [
        line
        for line in picture.figure.axes[1].get_lines()
        if len(line.get_xdata()) == 2 and line.get_marker() != "None"
    ]
    assert len(lines) == gains.PAIRS
    assert all(list(line.get_xdata()) == [3, 4] for line in lines)
    assert {line.get_label() for line in lines} == {f"alpha · m{n}" for n in range(5, 25)}
    assert "5 others pale" in picture.caption


def test_halves_are_those_of_the_table() -> None:
    """Of five layers the middle one is early."""
    table = SURVEY.table("curves")
    five = column_set(msgspec.structs.replace(table, rows=table.rows[:5]), cosine=0.0)
    place = table.columns.index("cosine")
    rows = tuple((*row[:place], float(n), *row[place + 1 :]) for n, row in enumerate(five.rows))
    panel = next(halves.decay(with_table(msgspec.structs.replace(table, rows=rows)))).figure.axes[0]
    found = {str(line.get_label()): line.get_xdata() for line in panel.get_lines()}
    assert float(found["early half"][0]) == 1.0
    assert float(found["late half"][0]) == 3.5


def test_routers_are_measured_by_renumbered_rows() -> None:
    panel = next(weights.routers(SURVEY)).figure.axes[0]
    table = SURVEY.table("routers")
    middle, spread = numbers(table, "renumbered_mean"), numbers(table, "renumbered_std")
    assert panel.collections[0].get_paths()[0].get_extents().ymax == pytest.approx((middle + 1.96 * spread).max())


def test_no_equal_bytes_are_said_in_words() -> None:
    none = column_set(SURVEY.table("bytes"), equal=0, counted=0)
    panel = next(weights.byte_counts(with_table(none))).figure.axes[0]
    assert panel.get_title("left") == "none of 6 tensors is equal byte for byte"
    assert words(next(weights.byte_counts(SURVEY)), 0) == ["3 of 6, 1 count"]


def test_a_bar_of_like_cosines_is_wide_enough_to_see() -> None:
    alike = column_set(SURVEY.table("tokens"), cosine=0.99998)
    panel = next(tokens.embeddings(with_table(alike))).figure.axes[0]
    low, high = panel.get_xlim()
    tallest = max(panel.patches, key=lambda bar: bar.get_height())
    assert tallest.get_height() == 40
    assert tallest.get_width() > (high - low) / 100


def test_long_names_become_names_of_files(tmp_path: Path) -> None:
    long = "한" * 90
    assert file_stem("short") == "short"
    assert len(file_stem(f"a.{long}").encode()) <= 200
    assert file_stem(f"a.{long}") != file_stem(f"a.{long}x")
    table = SURVEY.table("changes")
    only = msgspec.structs.replace(SURVEY, tables=(column_set(table, a="x" * 120, b="y" * 120),), matrices=())
    done = draw_all(only, tmp_path)
    assert all((tmp_path / f"{name}.png").exists() for name in done.captions)


def test_numbers_in_cells_tell_cells_apart() -> None:
    assert decimals(np.array([0.99991, 0.99994, np.nan])) == 6
    assert decimals(np.array([0.1, 0.9])) == 3
    assert matrices._short(0.999914, 6) == ".999914"
    assert matrices._short(-0.02, 3) == "−.020"
    assert matrices._short(0.99999, 4) == "1.000"
    assert matrices._short(1.25, 3) == "1.250"


def test_several_processes_draw_what_one_draws(tmp_path: Path) -> None:
    only = msgspec.structs.replace(SURVEY, tables=(SURVEY.table("gains"), SURVEY.table("changes")), matrices=())
    told: list[tuple[int, int]] = []
    one, two = tmp_path / "one", tmp_path / "two"
    alone, shared = draw_all(only, one), draw_all(only, two, lambda *step: told.append(step), processes=2)
    assert list(shared.captions.items()) == list(alone.captions.items())
    assert [path.name for path in shared.files] == [path.name for path in alone.files]
    for path in one.iterdir():
        assert path.read_bytes() == (two / path.name).read_bytes(), path.name
    assert told[-1] == (len(FIGURES), len(FIGURES))


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_names_the_figure(tmp_path: Path, processes: int) -> None:
    broken = msgspec.structs.replace(SURVEY.table("gains"), columns=("model",))
    only = msgspec.structs.replace(SURVEY, tables=(SURVEY.table("changes"), broken), matrices=())
    with pytest.raises(ValueError, match="not in tuple") as caught:
        draw_all(only, tmp_path, processes=processes)
    assert "while drawing figure-08-gains" in caught.value.__notes__


def many_pairs_of_models(count: int) -> Survey:
    names = [f"a-model-of-many-{n}" for n in range(count)]
    rows = [
        (a, b, "derived", ROLE, layer, layer, N, *some(4))
        for place, a in enumerate(names)
        for b in names[place + 1 :]
        for layer in LAYERS
    ]
    columns = "a b known role layer_a layer_b n cosine expected_cosine pearson l2"
    return msgspec.structs.replace(SURVEY, tables=(table("curves", columns, rows),), matrices=())


@pytest.mark.parametrize("draw", [experiments.pairs_at_one_layer, halves.decay])
@pytest.mark.parametrize("count", [3, 6, 12])
def test_names_of_pairs_do_not_touch_however_many(draw, count: int) -> None:
    pages = list(draw(many_pairs_of_models(count)))
    shown = 0
    for picture in pages:
        canvas.write_words(picture, {})
        picture.figure.draw_without_rendering()
        boxes = [label.get_window_extent() for label in picture.figure.axes[0].get_yticklabels()]
        tops = sorted((box.y0, box.y1) for box in boxes)
        assert all(below[1] <= above[0] + 1 for below, above in pairwise(tops)), picture.name
        assert min(box.x0 for box in boxes) >= 0
        shown += len(boxes)
    assert shown == count * (count - 1) // 2
    assert len({picture.name for picture in pages}) == len(pages)


def test_titles_fit_their_panels_and_names_that_others_stand_for_stay_whole() -> None:
    _, panels = canvas.page(8)
    for panel, name in zip(panels, ("short", "quite-a-long-name-of-a-model", "$a b$" * 20), strict=False):
        canvas.fitted_title(panel, name)
    short, long, foreign = (panel.get_title(loc="left") for panel in panels[:3])
    assert (short, foreign) == ("short", "$a b$" * 20)
    width = panels[1].get_position().width * canvas.SLIDE[0] * 72
    assert max(map(len, long.splitlines())) * canvas.LETTER * canvas.SMALLEST <= width
    assert not canvas.drawable("two\nlines")
