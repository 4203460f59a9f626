"""The terminal page of an inspection. Names come from strangers' files, so they are shown as plain text only."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from modelkin.records import GainStatistics, Inspection, Role

SHOWN_LAYERS = 8
SHOWN_FILES = 8
SHOWN_NAMES = 12
LONGEST_NAME = 300
GAIN_NOTE = (
    "These numbers describe one model. Two models whose gains have like means and spreads are not thereby related: "
    "strangers' gains look alike too, and even a cosine near 1 between them follows from the means alone."
)


def plain(value: object) -> str:
    """Printable characters only: a tensor name must not move the cursor or colour the page."""
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in str(value))


def inspection_page(inspection: Inspection, *, all_layers: bool = False) -> RenderableType:
    parts: list[RenderableType] = [
        _head(inspection),
        _files(inspection),
        _anatomy(inspection),
        *_left_out(inspection),
        _gains(inspection, all_layers),
        _vocabulary(inspection),
        *_notes(inspection.notes),
        _cost(inspection),
    ]
    return Group(*parts)


def render(page: RenderableType, width: int = 110) -> str:
    """The page as plain characters, for files and tests."""
    stream = io.StringIO()
    Console(file=stream, width=width, no_color=True).print(page)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def _head(inspection: Inspection) -> RenderableType:
    model, facts = inspection.model, inspection.facts
    grid = Table.grid(padding=(0, 2))
    for label, value in (
        ("model", model.id),
        ("commit", model.revision or "none (local files)"),
        ("family", _family_line(inspection)),
        ("parameters", f"{model.parameters:,} stored, {model.format}"),
        ("layers", "; ".join(_layer_line(check) for check in inspection.layer_checks) or "none found"),
        ("hidden", _dimensions(facts)),
        ("norms", _norm_line(facts)),
        ("positions", _position_line(facts)),
        ("head", _head_line(inspection)),
    ):
        grid.add_row(Text(label, style="bold"), Text(plain(value)))
    return Padding(grid, (1, 0, 0, 0))


def _family_line(inspection: Inspection) -> str:
    guessed = (
        ", guessed by names: see the notes" if any("guessed by names" in note for note in inspection.notes) else ""
    )
    return f"{inspection.family} (model_type {inspection.facts.get('model_type') or 'not given'}{guessed})"


def _head_line(inspection: Inspection) -> str:
    if inspection.facts.get("tied"):
        return "tied to the embedding"
    if any(row.role is Role.HEAD for row in inspection.anatomy):
        return "a tensor of its own"
    return "none" if any(row.role is Role.EMBEDDING for row in inspection.anatomy) else "none recognised"


def _layer_line(check: Any) -> str:
    stack = f"{check.stack}: " if check.stack else ""
    if check.announced is None:
        return f"{stack}{check.found} found; the config does not say how many"
    if not check.found:
        return f"{stack}none recognised; the config says {check.announced}"
    verdict = "as the config says" if check.agrees else f"BUT the config says {check.announced}"
    return f"{stack}{check.found} found, {verdict}"


def _dimensions(facts: dict[str, Any]) -> str:
    named = [
        (facts.get("hidden"), "wide"),
        (facts.get("heads"), "heads"),
        (facts.get("kv_heads"), "key/value heads"),
        (facts.get("head_dim"), "a head"),
        (facts.get("intermediate"), "neurons"),
        (facts.get("experts"), "experts"),
    ]
    return ", ".join(f"{value:,} {name}" for value, name in named if value) or "not known"


def _norm_line(facts: dict[str, Any]) -> str:
    kind = {"rms": "RMSNorm", "layer": "LayerNorm", "none": "without parameters"}.get(str(facts.get("norm")), "unknown")
    offset = ", stored minus one (shown with it added)" if facts.get("gain_offset") else ""
    if facts.get("gain_offset") is None:
        offset = ", gains as stored (whether one is to be added is not known)"
    bias = ", with bias" if facts.get("norm_bias") else ""
    return f"{kind}{bias}, placement {facts.get('norm_placement') or 'unknown'}{offset}"


def _position_line(facts: dict[str, Any]) -> str:
    positions = str(facts.get("positions") or "unknown")
    pinned = " (these pin the hidden axes: tests that permute them do not apply)" if positions == "fixed" else ""
    return positions + pinned


def _table(title: str, columns: Sequence[tuple[str, str]]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, justify in columns:
        # A folded number reads as another number, so only words may be folded.
        table.add_column(name, justify=justify, overflow="fold", no_wrap=justify == "right")  # type: ignore[arg-type]
    return table


def _files(inspection: Inspection) -> RenderableType:
    files = sorted(inspection.model.files, key=lambda fact: -fact.size)
    total = sum(fact.size for fact in files)
    table = _table(f"Files ({len(files)}, {size(total)})", [("name", "left"), ("size", "right"), ("sha256", "left")])
    for fact in files[:SHOWN_FILES]:
        table.add_row(Text(plain(fact.name)), size(fact.size), Text(plain(fact.sha256 or "not computed")))
    if len(files) > SHOWN_FILES:
        table.add_row(f"… and {len(files) - SHOWN_FILES} more", "", "all in --json and --out")
    return Padding(table, (1, 0, 0, 0))


def _anatomy(inspection: Inspection) -> RenderableType:
    columns = [("role", "left"), ("layers", "right"), ("experts", "right"), ("shape (out, in)", "left")]
    table = _table("Anatomy", [*columns, ("dtype", "left"), ("parameters", "right")])
    for row in inspection.anatomy:
        role = f"{row.stack} {row.role}" if row.stack else str(row.role)
        coverage = f"{row.layers}/{row.of_layers}" if row.layers else "–"
        shapes = ", ".join(" × ".join(f"{n:,}" for n in shape) or "scalar" for shape in row.shapes[:3])
        more = f" and {len(row.shapes) - 3} more" if len(row.shapes) > 3 else ""
        dtypes = Text(plain(" ".join(row.dtypes)))
        table.add_row(role, coverage, str(row.experts or "–"), shapes + more, dtypes, f"{row.parameters:,}")
    return Padding(table, (1, 0, 0, 0))


def _left_out(inspection: Inspection) -> Iterable[RenderableType]:
    if inspection.apart:
        reasons = Counter(item.reason for item in inspection.apart)
        yield _lines("Set apart", [f"{count:,} × {reason}" for reason, count in reasons.most_common(SHOWN_NAMES)])
    names = _first(inspection.unmapped) or ["nothing: every tensor has a role, or a reason to be apart"]
    yield _lines(f"Not mapped ({len(inspection.unmapped)})", names)


def _lines(title: str, lines: Sequence[str]) -> RenderableType:
    body = Group(Text(title, style="bold"), *(Text("  " + plain(line)) for line in lines))
    return Padding(body, (1, 0, 0, 0))


def _gains(inspection: Inspection, all_layers: bool) -> RenderableType:
    numbers = ("mean", "std", "min", "max", "L2 norm", "CV")
    table = _table(
        "Norm gains", [("role", "left"), ("layer", "right"), ("n", "right"), *[(n, "right") for n in numbers]]
    )
    by_role: dict[str, list[GainStatistics]] = {}
    for line in inspection.gains:
        by_role.setdefault(line.role, []).append(line)
    for lines in by_role.values():
        for line in lines if all_layers else _spread(lines):
            table.add_row(*_gain_cells(line))
    if not inspection.gains:
        return _lines("Norm gains", ["none was recognised; the tensors that are not mapped may hold some"])
    hidden = len(inspection.gains) - table.row_count
    rest = f" {hidden} more norms lie between those shown; --all-layers shows each." if hidden else ""
    return Padding(Group(table, Text(GAIN_NOTE + rest, style="dim")), (1, 0, 0, 0))


def _spread(lines: Sequence[GainStatistics]) -> list[GainStatistics]:
    """At most SHOWN_LAYERS of them, evenly over the depth, first and last included."""
    if len(lines) <= SHOWN_LAYERS:
        return list(lines)
    last = len(lines) - 1
    return [lines[round(i * last / (SHOWN_LAYERS - 1))] for i in range(SHOWN_LAYERS)]


def _gain_cells(line: GainStatistics) -> list[str]:
    values = (line.mean, line.std, line.min, line.max, line.l2, line.cv)
    broken = f" ({line.nonfinite} not finite)" if line.nonfinite else ""
    return [str(line.role), line.layer or "–", f"{line.n:,}{broken}", *(number(value) for value in values)]


def _vocabulary(inspection: Inspection) -> RenderableType:
    facts = inspection.vocabulary
    if facts is None:
        return _lines("Vocabulary", [inspection.vocabulary_missing or "not read"])
    scripts = Counter({str(k): int(v) for k, v in facts.get("scripts", {}).items()})
    lines = [
        f"{facts['kind']}, {facts['entries']:,} entries, {facts['added']:,} added, {len(facts['special']):,} special",
        f"{facts['merges']:,} merges" + (f", sha256 {facts['merges_sha256_all']}" if facts["merges"] else ""),
        "scripts: " + ", ".join(f"{name} {count:,}" for name, count in scripts.most_common(6) if count),
    ]
    return _lines("Vocabulary", lines)


def _notes(notes: Sequence[str]) -> Iterable[RenderableType]:
    if notes:
        yield _lines("Notes", _first(notes))


def _first(names: Sequence[str]) -> list[str]:
    rest = len(names) - SHOWN_NAMES
    shown = [name if len(name) <= LONGEST_NAME else name[:LONGEST_NAME] + "…" for name in names[:SHOWN_NAMES]]
    return [*shown, *([f"… and {rest} more (--json has all)"] if rest > 0 else [])]


def _cost(inspection: Inspection) -> RenderableType:
    cost = inspection.cost
    total = sum(fact.size for fact in inspection.model.files)
    hashed = f", hashed {size(cost.hashed_bytes)}" if cost.hashed_bytes else ""
    line = (
        f"read {size(cost.bytes)} ({size(cost.tensor_bytes)} of it tensors){hashed}; all files have {size(total)}; "
        f"{cost.requests} network requests, {size(cost.network_bytes)}; {cost.seconds:.1f} s"
    )
    return Padding(Text(line, style="dim"), (1, 0, 1, 0))


def number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 1e5 or value == 0 else f"{value:.3e}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def percent(share: float) -> str:
    """Whole percents, but never 0 or 100 for what is only near it."""
    shown = f"{100 * share:.0f}"
    if (shown == "100" and share < 1) or (shown == "0" and share > 0):
        shown = "> 99" if share > 0.5 else "< 1"
    return f"{shown} %"


def interval(low: float, high: float) -> str:
    return f"{percent(low)} – {percent(high)}"
