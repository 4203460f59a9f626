"""What a comparison would read, in lines for a reader: `--dry-run`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain

from modelkin.alignment import bytes_needed
from modelkin.fingerprints import PROBE, PROBES, weights
from modelkin.inspection import SMALL_FILE
from modelkin.questions import QUESTIONS, QUICK_STAGES, CannotAsk, Cuts, Pair, every_neuron
from modelkin.questions.copies import ID as COPIES
from modelkin.questions.identity import worth_hashing
from modelkin.questions.stored_tensors import is_nameless, sides_of
from modelkin.questions.unmasked import ID as UNMASKED
from modelkin.questions.whole_tensors import bytes_left
from modelkin.records import Cut, Unanswered
from modelkin.sampling.budget import STANDARD_BYTES, whole
from modelkin.sampling.readings import bytes_of, transfer_of
from modelkin.sources.local import LocalSource

Sizes = tuple[int, int]  # bytes of a and of b
Wanted = Mapping[str, Cuts | Unanswered]


def plan_lines(pair: Pair, wanted: Wanted, is_one_place: bool) -> list[str]:
    """A line a question, then what is read besides, then the sum a model.

    Nothing that is on this machine already is taken off.
    """
    lines = [_asked(pair, question, cuts) for question, cuts in wanted.items()]
    batches = _batches(wanted)
    sums = [_transferred(pair, batches)]
    between = [sums[0][side] - sum(bytes_of((pair.a, pair.b)[side], cuts[side]) for cuts in batches) for side in (0, 1)]
    if any(between):
        lines.append(f"between near ranges, sent along by the Hub: {between[0]:,} + {between[1]:,} bytes")
    for line, sizes in () if is_one_place else _besides(pair, batches):
        lines.append(line)
        sums.append(sizes)
    a, b = (sum(side) for side in zip(*sums, strict=True))
    if pair.budget != "quick" and not is_one_place:
        for line, sizes in _later(pair, (a, b)):
            lines.append(line)
            a, b = a + sizes[0], b + sizes[1]
    most = "" if pair.budget == "quick" and not any(between) else "at most "
    more = ", and more where layers were moved" if pair.budget == "full" and not is_one_place else ""
    return [*lines, f"all together: {most}{a:,} bytes of the weights of A, {most}{b:,} of those of B{more}"]


def _besides(pair: Pair, batches: Sequence[Cuts]) -> Iterator[tuple[str, Sizes]]:
    """What depends on what is found. Hashing a local file is told, and not counted as reading weights."""
    if pair.budget == "quick":
        return
    if pair.budget == "full":
        yield _every_neuron(pair)
        yield _whole_tensors(pair)
        yield from _hashing(pair, "")
        return
    if is_nameless(pair.a) or is_nameless(pair.b):
        read = list(chain.from_iterable(a for a, _ in batches)), list(chain.from_iterable(b for _, b in batches))
        yield _whole_tensors(pair, bytes_left(pair, read))
    if worth_hashing(weights(pair.a), weights(pair.b), True):
        if not any(chain.from_iterable(batches)):
            size = PROBES * PROBE
            yield f"identity: {PROBES} blocks of the files, {size:,} + {size:,} bytes", (size, size)
        yield from _hashing(pair, ", if nothing that was read of one differs from the other's")


def _later(pair: Pair, before: Sizes) -> Iterator[tuple[str, Sizes]]:
    """Stage 5, and what is told of related pairs: at `standard` if they fit into what that may read."""
    sides = pair.a, pair.b
    further = {
        f"{UNMASKED}, if the weights do not agree in their places": bytes_needed(*sides),
        "kind and direction, if the two are related": (whole(pair.a), whole(pair.b)),
    }
    for what, sizes in further.items():
        fits = all(size + first <= STANDARD_BYTES for size, first in zip(sizes, before, strict=True))
        if pair.budget == "full" or fits:
            yield f"{what}: {sizes[0]:,} + {sizes[1]:,} bytes", sizes
            before = before[0] + sizes[0], before[1] + sizes[1]
        else:
            yield f"{what}: only if {sizes[0]:,} + {sizes[1]:,} bytes fit into {STANDARD_BYTES:,} with the rest", (0, 0)


def _asked(pair: Pair, question: str, cuts: Cuts | Unanswered) -> str:
    if isinstance(cuts, Unanswered):
        return f"{question}: not asked, {cuts.unanswered}"
    sizes = [bytes_of(anatomy, side) for anatomy, side in zip((pair.a, pair.b), cuts, strict=True)]
    return f"{question}: {len(cuts[0])} + {len(cuts[1])} ranges, {sizes[0]:,} + {sizes[1]:,} bytes"


def _batches(wanted: Wanted) -> list[Cuts]:
    """What is read together; what two questions want is read once."""
    quick = {question.id for question in QUESTIONS if question.stage in QUICK_STAGES}
    found: list[Cuts] = []
    had: tuple[Collection[Cut], Collection[Cut]] = ((), ())
    for names in (quick, wanted.keys() - quick):
        asked = [cuts for name, cuts in wanted.items() if name in names and not isinstance(cuts, Unanswered)]
        a, b = (dict.fromkeys(chain.from_iterable(cuts[side] for cuts in asked)) for side in (0, 1))
        found.append(([cut for cut in a if cut not in had[0]], [cut for cut in b if cut not in had[1]]))
        had = a, b
    return found


def _transferred(pair: Pair, batches: Sequence[Cuts]) -> Sizes:
    """With what lies between near ranges, which a Hub sends along and a disk does not."""
    return sum(transfer_of(pair.a, a) for a, _ in batches), sum(transfer_of(pair.b, b) for _, b in batches)


def _every_neuron(pair: Pair) -> tuple[str, Sizes]:
    """Facing layers alone: which others the layer map will choose, nobody knows yet."""
    try:
        tasks = every_neuron.tasks(pair, {}, None)
    except CannotAsk as reason:
        return f"{every_neuron.ID}: not asked, {reason}", (0, 0)
    sizes = [every_neuron.bytes_of(pair, task) for task in tasks]  # one range a request: nothing comes along
    a, b = sum(size[0] for size in sizes), sum(size[1] for size in sizes)
    number = "1 pair" if len(tasks) == 1 else f"{len(tasks)} pairs"
    return f"{every_neuron.ID}: {number} of layers, {a:,} + {b:,} bytes, more where layers were moved", (a, b)


def _whole_tensors(pair: Pair, limit: int | None = None) -> tuple[str, Sizes]:
    sides = sides_of(pair.a, pair.b, limit)
    least = [side.least_bytes() for side in sides]
    most = [side.most_bytes() for side in sides]
    sample = f", sampled from {sides[0].stored:,} + {sides[1].stored:,}" if limit is not None else ""
    text = (
        f"{COPIES}: a row of {len(sides[0].tensors):,} + {len(sides[1].tensors):,} tensors{sample}, {least[0]:,} + "
        f"{least[1]:,} bytes; up to {most[0]:,} + {most[1]:,} where they begin alike"
    )
    return text, (most[0], most[1])


def _hashing(pair: Pair, condition: str) -> Iterator[tuple[str, Sizes]]:
    whole = pair.budget == "full"
    sizes = [
        fact.size
        for anatomy in (pair.a, pair.b)
        if isinstance(anatomy.checkpoint.source, LocalSource)
        for fact in (anatomy.checkpoint.source.files().values() if whole else weights(anatomy))
        if fact.sha256 is None and (whole or fact.size > SMALL_FILE)
    ]
    if sizes:
        yield f"sha256 of {'' if whole else 'the weights in '}local files: {sum(sizes):,} bytes{condition}", (0, 0)
