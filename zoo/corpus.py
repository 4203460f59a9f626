"""The text that the zoo's models learn, as tokens. To fetch and rebuild it:  python -m zoo.corpus [--out zoo/text]

Fetching needs the network, pip and a Debian system (see `zoo.sources`). Everything else here needs only numpy and
tokenizers, and works from the files that the fetch wrote.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import lzma
import os
import re
import sysconfig
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

TEXT = Path(__file__).resolve().parent / "text"
FETCHED = ("code", "prose", "german")
DOMAINS = (*FETCHED, "chat", "mixed")
SPLITS = ("train", "held_out")
HELD_OUT = 20  # every twentieth document measures the loss and trains nothing
SPECIAL = ("<unk>", "<s>", "</s>")
TOKENIZERS: dict[str, tuple[int, tuple[str, ...]]] = {
    "first": (1024, ("code", "prose")),
    "second": (1280, ("prose", "german")),
    "wide": (2048, ("code", "prose")),
}
TOKENIZER_SAMPLE = 4_000_000  # characters a domain; more changes few merges and costs seconds
ENCODE_AT_ONCE = 8_000_000  # characters; an encoding in memory is some fifty times its ids

Document = TypeVar("Document")


@dataclass(frozen=True)
class Texts:
    """The documents of one domain; no document is on both sides."""

    train: list[str]
    held_out: list[str]


def read_texts(folder: Path = TEXT) -> dict[str, Texts]:
    """Every domain, from the files that `python -m zoo.corpus` wrote."""
    if missing := [name for name in (*FETCHED, "chat") if not (folder / f"{name}.jsonl.xz").exists()]:
        raise FileNotFoundError(f"no {', '.join(missing)} text in {folder}: python -m zoo.corpus fetches it")
    fetched = {name: read_lines(folder / f"{name}.jsonl.xz") for name in FETCHED}
    return sides(fetched, read_lines(folder / "chat.jsonl.xz"))


def read_lines(path: Path) -> list[Any]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_lines(path: Path, values: Iterable[Any]) -> None:
    lines = "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
    path.write_bytes(lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME))


def sides(fetched: Mapping[str, list[str]], asked: Sequence[list[str]]) -> dict[str, Texts]:
    """Chat and mixed text come from the same side of the split as the text they are made of.

    `asked` holds the questions about each document of code.
    """
    texts = {name: Texts(*split(documents)) for name, documents in fetched.items()}
    code, prose = texts["code"], texts["prose"]
    train, held_out = (list(dict.fromkeys(chain.from_iterable(side))) for side in split(asked))
    known = set(train)  # two modules may say the same of functions with the same name
    texts["chat"] = Texts(train, [text for text in held_out if text not in known])
    texts["mixed"] = Texts(mixed(code.train, prose.train), mixed(code.held_out, prose.held_out))
    return texts


def split(documents: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """What trains, and what is held out."""
    kept = [document for i, document in enumerate(documents) if i % HELD_OUT]
    return kept, list(documents[::HELD_OUT])


def fixed_shuffle(documents: Iterable[str]) -> list[str]:
    """In the order of their hashes: looks random, and is the same on every Python."""
    return sorted(documents, key=lambda text: hashlib.sha256(text.encode()).digest())


def up_to(documents: Iterable[str], characters: int) -> list[str]:
    chosen, length = [], 0
    for text in documents:
        if length >= characters:
            break
        chosen.append(text)
        length += len(text)
    return chosen


def mixed(code: Sequence[str], prose: Sequence[str]) -> list[str]:
    """About as many characters of each."""
    least = min(sum(map(len, code)), sum(map(len, prose)))
    return fixed_shuffle([*up_to(fixed_shuffle(code), least), *up_to(fixed_shuffle(prose), least)])


# --- chat ------------------------------------------------------------------------------------------------------------

ANSWER_LENGTH = range(20, 601)  # characters; shorter says nothing, longer is seldom one paragraph


def questions(source: str) -> list[str]:
    """A question and an answer for every function of a module whose docstring says what it does."""
    return [text for function in functions(source) for text in question(function)]


def question(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    docstring = ast.get_docstring(function) or ""
    answer = " ".join(docstring.split("\n\n", maxsplit=1)[0].split())
    if len(answer) in ANSWER_LENGTH and not answer.endswith(":") and not function.name.startswith("__"):
        yield f"### Question\nWhat does `{signature(function)}` do?\n### Answer\n{answer}\n"


def functions(source: str) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Those at the top of the module and the methods of its classes, in the order of the file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an unknown escape in somebody's string is no concern of ours
            waiting: list[ast.stmt] = ast.parse(source).body[::-1]
    except (SyntaxError, ValueError):
        return
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.ClassDef):
            waiting.extend(node.body[::-1])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def signature(function: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    given = function.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args)]
    names += [f"*{given.vararg.arg}"] if given.vararg else []
    names += [argument.arg for argument in given.kwonlyargs]
    names += [f"**{given.kwarg.arg}"] if given.kwarg else []
    shown = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return f"{function.name}({', '.join(shown)})"


# --- a little text, for tests ----------------------------------------------------------------------------------------


def tiny_texts() -> dict[str, Texts]:
    """The same domains from the running Python's standard library, for tests that take seconds.

    Code: modules at its top. Prose: the help topics of the interpreter. German: the tables of `encodings`, which are
    no German at all but, like it, share few tokens with the other two.
    """
    from pydoc_data.topics import topics

    library = Path(sysconfig.get_paths()["stdlib"])
    prose = [topics[name] for name in sorted(topics)]
    fetched = {
        "code": up_to(modules_of(library, range(2_000, 40_000)), 600_000),
        "prose": up_to(prose, 400_000),
        "german": up_to(modules_of(library / "encodings", range(2_000, 14_000)), 300_000),
    }
    return sides(fetched, [questions(source) for source in fetched["code"]])


def modules_of(folder: Path, length: range) -> Iterator[str]:
    for path in sorted(folder.glob("*.py")):
        text = path.read_text("utf-8", errors="ignore")
        if len(text) in length:
            yield text


# --- tokens ----------------------------------------------------------------------------------------------------------


def train_tokenizer(texts: Iterable[str], size: int) -> Tokenizer:
    """Byte-level BPE, the kind that Llama 3 and GPT-2 use."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=list(SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", SPECIAL.index("<s>"))]
    )
    return tokenizer


def load_tokenizer(description: Mapping[str, Any]) -> Tokenizer:
    """From a parsed tokenizer.json; text that happens to spell a special token stays text."""
    tokenizer = Tokenizer.from_str(json.dumps(description))
    tokenizer.encode_special_tokens = True
    return tokenizer


def encode(tokenizer: Tokenizer, texts: Iterable[str]) -> np.ndarray:
    """Every text as `<s> … </s>`, end to end, as uint16."""
    if tokenizer.get_vocab_size() > 1 << 16:
        raise ValueError(f"{tokenizer.get_vocab_size()} tokens do not fit in 16 bits")
    end, parts = tokenizer.token_to_id("</s>"), [np.zeros(0, np.uint16)]
    for some in batches(texts, ENCODE_AT_ONCE):
        for encoding in tokenizer.encode_batch_fast(some):
            parts.append(np.array([*encoding.ids, end], np.uint16))
    return np.concatenate(parts)


def batches(texts: Iterable[str], characters: int) -> Iterator[list[str]]:
    some: list[str] = []
    length = 0
    for text in texts:
        some.append(text)
        length += len(text)
        if length >= characters:
            yield some
            some, length = [], 0
    if some:
        yield some


def unigram_entropy(ids: np.ndarray, size: int) -> float:
    """Entropy in nats of the token frequencies: the loss of the best guess that ignores context."""
    counts = np.bincount(ids, minlength=size)
    share = counts[counts > 0] / len(ids)
    return float(-(share * np.log(share)).sum())


WORD = re.compile(r"[^\W\d_]{4,}")
PIECES = 3


def new_words(texts: Mapping[str, Texts], tokenizer: Mapping[str, Any], domain: str, count: int) -> list[str]:
    """The most frequent words of a domain that the tokenizer cuts in three or more: what a wider vocabulary would add.

    Bare words, without the space before them; ties in the order of the alphabet.
    """
    cutter = load_tokenizer(tokenizer)
    frequency = Counter(word for text in texts[domain].train for word in WORD.findall(text))
    ranked = sorted(frequency, key=lambda word: (-frequency[word], word))
    chosen: list[str] = []
    for word in ranked:
        if len(chosen) == count:
            break
        if min(len(cutter.encode(form, add_special_tokens=False).ids) for form in (word, f" {word}")) >= PIECES:
            chosen.append(word)
    return chosen


class Corpus:
    """Texts, tokenizers trained on them, and their tokens, encoded once and kept under a folder.

    The name of a kept file carries a digest of what it was made from, so other texts never meet stale tokens; and a
    file appears whole or not at all, so several processes may share the folder.
    """

    def __init__(self, texts: Mapping[str, Texts], folder: Path, tokenizers: Mapping[str, dict[str, Any]]) -> None:
        self.texts, self.folder = texts, folder
        self._tokenizers = tokenizers
        self._digests: dict[tuple[str, str], str] = {}

    @classmethod
    def prepare(
        cls,
        texts: Mapping[str, Texts],
        folder: Path,
        tokenizers: Mapping[str, tuple[int, tuple[str, ...]]] = TOKENIZERS,
    ) -> Corpus:
        """Train the tokenizers, or read those that an earlier call with the same texts trained."""
        folder.mkdir(parents=True, exist_ok=True)
        trained = {name: kept_tokenizer(texts, folder, name, *recipe) for name, recipe in tokenizers.items()}
        return cls(texts, folder, trained)

    def tokenizer(self, name: str) -> dict[str, Any]:
        """The parsed tokenizer.json."""
        return self._tokenizers[name]

    def tokens(self, name: str, domain: str, split: str = "train") -> np.ndarray:
        """Ids of one side of a domain, `<s> … </s>` end to end, mapped from disk and read-only."""
        path = self.path(name, domain, split)
        if not path.exists():
            ids = encode(load_tokenizer(self._tokenizers[name]), getattr(self.texts[domain], split))
            write_whole(path, lambda file: np.save(file, ids))
        return np.load(path, mmap_mode="r")

    def tokenizer_path(self, name: str) -> Path:
        """A tokenizer.json, for processes that are given paths."""
        text = json.dumps(self._tokenizers[name], ensure_ascii=False)
        path = self.folder / f"{name}.tokenizer.{digest([text])[:16]}.json"
        if not path.exists():
            write_whole(path, lambda file: file.write(text.encode()))
        return path

    def ensure(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Encode both sides of every (tokenizer, domain) pair that is not kept yet.

        One pair after another: `encode_batch_fast` already uses every core.
        """
        for name, domain in pairs:
            for split in SPLITS:
                self.tokens(name, domain, split)

    def path(self, name: str, domain: str, split: str) -> Path:
        made_from = digest([json.dumps(self._tokenizers[name]), self._text_digest(domain, split)])
        return self.folder / f"{name}.{domain}.{split}.{made_from[:16]}.npy"

    def _text_digest(self, domain: str, split: str) -> str:
        if (domain, split) not in self._digests:
            self._digests[domain, split] = digest(getattr(self.texts[domain], split))
        return self._digests[domain, split]


def kept_tokenizer(
    texts: Mapping[str, Texts], folder: Path, name: str, size: int, domains: tuple[str, ...]
) -> dict[str, Any]:
    sample = [text for domain in domains for text in up_to(fixed_shuffle(texts[domain].train), TOKENIZER_SAMPLE)]
    path = folder / f"{name}.{digest([str(size), *sample])[:16]}.json"
    if not path.exists():
        described = train_tokenizer(sample, size).to_str().encode()
        write_whole(path, lambda file: file.write(described))
    return json.loads(path.read_text("utf-8"))


def digest(texts: Iterable[str]) -> str:
    """Of the texts and of where each ends."""
    total = hashlib.sha256()
    for text in texts:
        total.update(hashlib.sha256(text.encode()).digest())
    return total.hexdigest()


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """The file appears complete or not at all; when two processes write the same bytes, either may win."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def main() -> None:
    from zoo.sources import rebuild

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=TEXT, help="where the text goes")
    out = parser.parse_args().out
    rebuild(out)
    # Parsing every module takes a while, and what a parser accepts changes with Python: done once, here.
    write_lines(out / "chat.jsonl.xz", map(questions, read_lines(out / "code.jsonl.xz")))


if __name__ == "__main__":
    from zoo.commands import run

    run(main)
