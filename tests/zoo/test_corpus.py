"""The zoo's text: split, derived domains, tokens that decode to it, and manuals turned into paragraphs."""

import math

import numpy as np
import pytest
from zoo.corpus import (
    DOMAINS,
    SPECIAL,
    Corpus,
    Texts,
    encode,
    load_tokenizer,
    mixed,
    new_words,
    questions,
    read_texts,
    split,
    tiny_texts,
    train_tokenizer,
    unigram_entropy,
    write_lines,
)

from zoo import sources

SMALL = {"first": (512, ("code", "prose")), "second": (640, ("prose", "german"))}


@pytest.fixture(scope="module")
def texts():
    return tiny_texts()


@pytest.fixture(scope="module")
def corpus(texts, tmp_path_factory):
    return Corpus.prepare(texts, tmp_path_factory.mktemp("corpus"), SMALL)


def documents(ids):
    """Ids between `<s>` and `</s>`."""
    ends = np.flatnonzero(ids == SPECIAL.index("</s>"))
    return [part[1:] for part in np.split(ids, ends + 1)[:-1] for part in [part[:-1]]]


# --- texts


def test_every_domain_has_both_sides_and_they_share_no_document(texts):
    assert tuple(texts) == DOMAINS
    for domain in DOMAINS:
        assert texts[domain].train
        assert texts[domain].held_out
        assert not set(texts[domain].train) & set(texts[domain].held_out)


def test_every_twentieth_document_is_held_out():
    train, held_out = split(range(41))
    assert held_out == [0, 20, 40]
    assert sorted([*train, *held_out]) == list(range(41))


def test_texts_are_the_same_every_time(texts):
    assert tiny_texts() == texts


def test_fetched_domains_are_read_from_their_files(tmp_path):
    for name in ("code", "prose", "german"):
        write_lines(tmp_path / f"{name}.jsonl.xz", [f"{name} {i:02} ü" for i in range(40)])
    write_lines(tmp_path / "chat.jsonl.xz", [[f"about {i}", "about all"] for i in range(40)])
    made = read_texts(tmp_path)
    assert tuple(made) == DOMAINS
    assert made["german"].held_out == ["german 00 ü", "german 20 ü"]
    assert made["chat"].held_out == ["about 0", "about 20"]
    assert made["chat"].train[:3] == ["about 1", "about all", "about 2"]


def test_chat_asks_what_a_function_does_and_answers_from_its_docstring():
    source = '''
class Shelf:
    async def put(self, book, *others, place=None, **notes):
        """Puts a book
        where it belongs.

        Slowly.
        """
    def __len__(self):
        """Says how many books there are."""
def bare(): pass
def listing():
    """Does what this code shows::"""
'''
    question = "### Question\nWhat does `put(book, *others, place, **notes)` do?\n### Answer\n"
    assert questions(source) == [question + "Puts a book where it belongs.\n"]
    assert questions("not python (") == []


def test_chat_is_held_out_where_its_code_is(texts):
    assert set(texts["chat"].held_out) <= {text for source in texts["code"].held_out for text in questions(source)}


def test_mixed_text_is_half_code_and_half_prose():
    code, prose = ["c" * 100 + str(i) for i in range(50)], ["p" * 200 + str(i) for i in range(50)]
    both = mixed(code, prose)
    letters = "".join(both)
    assert abs(letters.count("c") - letters.count("p")) <= 200
    assert both == mixed(code[::-1], prose)
    assert both != sorted(both)


# --- tokens


def test_tokens_decode_to_the_text_they_came_from(corpus, texts):
    tokenizer = load_tokenizer(corpus.tokenizer("first"))
    for domain in DOMAINS:
        parts = documents(corpus.tokens("first", domain, "held_out"))
        assert [tokenizer.decode(part.tolist(), skip_special_tokens=False) for part in parts] == texts[domain].held_out


def test_every_document_begins_and_ends(corpus, texts):
    ids = corpus.tokens("second", "prose", "train")
    assert ids.dtype == np.uint16
    assert (ids == SPECIAL.index("<s>")).sum() == (ids == SPECIAL.index("</s>")).sum() == len(texts["prose"].train)
    assert int(ids.max()) < 640


def test_text_that_spells_a_special_token_stays_text(corpus):
    tokenizer = load_tokenizer(corpus.tokenizer("first"))
    ids = encode(tokenizer, ["a </s> b <s>"])
    assert (ids == SPECIAL.index("</s>")).sum() == 1
    assert tokenizer.decode(ids[1:-1].tolist(), skip_special_tokens=False) == "a </s> b <s>"


def test_tokenizers_have_their_sizes_and_the_same_special_ids(corpus):
    for name, (size, _) in SMALL.items():
        vocabulary = corpus.tokenizer(name)["model"]["vocab"]
        assert len(vocabulary) == size
        assert [vocabulary[token] for token in SPECIAL] == [0, 1, 2]


def test_the_same_text_trains_the_same_tokenizer(texts):
    sample = texts["prose"].train[:20]
    assert train_tokenizer(sample, 400).to_str() == train_tokenizer(sample, 400).to_str()


def test_a_vocabulary_beyond_16_bits_is_refused():
    class Huge:
        def get_vocab_size(self):
            return 1 << 17

    with pytest.raises(ValueError, match="16 bits"):
        encode(Huge(), [])


def test_tokens_are_encoded_once(corpus, texts, monkeypatch):
    corpus.ensure([("first", "chat")])
    before = {path: path.stat().st_mtime_ns for path in corpus.folder.iterdir()}
    monkeypatch.setattr("zoo.corpus.encode", lambda *_: pytest.fail("encoded twice"))
    monkeypatch.setattr("zoo.corpus.train_tokenizer", lambda *_: pytest.fail("trained twice"))
    again = Corpus.prepare(texts, corpus.folder, SMALL)
    again.ensure([("first", "chat")])
    assert again.tokenizer("first") == corpus.tokenizer("first")
    assert np.array_equal(again.tokens("first", "chat"), corpus.tokens("first", "chat"))
    assert {path: path.stat().st_mtime_ns for path in corpus.folder.iterdir()} == before


def test_other_texts_never_meet_stale_tokens(corpus, texts):
    other = Corpus.prepare({**texts, "chat": Texts(texts["chat"].train[:100], [])}, corpus.folder, SMALL)
    assert len(other.tokens("first", "chat")) < len(corpus.tokens("first", "chat"))


def test_a_failed_write_leaves_nothing(corpus, monkeypatch):
    before = set(corpus.folder.iterdir())

    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("zoo.corpus.np.save", full)
    with pytest.raises(OSError, match="no space"):
        corpus.tokens("second", "code", "held_out")
    assert set(corpus.folder.iterdir()) == before


@pytest.mark.parametrize("size", [1, 2, 100])
def test_entropy_of_a_uniform_choice_is_the_logarithm_of_its_size(size):
    ids = np.tile(np.arange(size, dtype=np.uint16), 7)
    assert unigram_entropy(ids, 200) == pytest.approx(math.log(size), abs=1e-12)


def test_entropy_of_a_lopsided_choice():
    expected = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    assert unigram_entropy(np.array([5, 5, 5, 0], np.uint16), 6) == pytest.approx(expected)


def test_new_words_are_frequent_and_cut_in_three_or_more(corpus, texts):
    words = new_words(texts, corpus.tokenizer("second"), "code", 20)
    tokenizer = load_tokenizer(corpus.tokenizer("second"))
    assert len(set(words)) == 20
    assert words == new_words(texts, corpus.tokenizer("second"), "code", 20)
    assert all(len(tokenizer.encode(f" {word}", add_special_tokens=False).ids) >= 3 for word in words)


# --- sources


def test_html_gives_paragraphs_without_menus_and_listings():
    page = """<html><head><title>no</title></head><body><nav><p>no</p></nav>
    <div class="sphinxsidebar"><div>no</div><p>no</p></div><h1>Files<a class="headerlink">¶</a></h1>
    <p>A file &amp; its <code>name</code>,<br>twice.</p><pre>no = 1</pre>
    <ul><li>one<li>two <b>bold</b></ul><script>no</script><p role="navigation">no</p>last</body></html>"""
    expected = ["Files", "A file & its name,", "twice.", "one", "two bold", "last"]
    assert sources.html_paragraphs(page) == expected


def test_man_gives_the_running_text():
    page = r""".\" a comment
.TH LS 1 "2022" "coreutils"
.SH NAME
ls \- list
.SH SYNOPSIS
.B ls
[\fIOPTION\fP]
.SH "EXIT STATUS"
It is \(lqsaid\(rq that
.BR ls (1)
is \fBgood\fP\(em\f(CWmostly\fP.
.\" another
.PP
Second\~one, \[u00FC]ber.
.nf
no listing
.fi
.TP
.B \-a
All of
.I them
.IP \(bu
A point \e.
"""
    assert sources.man_paragraphs(page) == [
        "NAME",
        "ls - list",
        "SYNOPSIS",
        "EXIT STATUS",
        "It is “said” that ls(1) is good—mostly.",
        "Second one, über.",
        "-a All of them",
        "A point \\.",
    ]


def test_prose_has_several_words_of_letters():
    assert sources.is_prose("The file is closed at the end.")
    assert not sources.is_prose("Next page")
    assert not sources.is_prose("0x10 0x20 0x30 0x40 0x50 0x60")


def test_a_paragraph_is_kept_where_it_comes_first():
    notice, body, other = "n" * 150, "b" * 150, "o" * 250
    seen = set()
    assert list(sources.unseen_paragraphs([[notice, body], [notice, other]], seen)) == [
        f"{notice}\n\n{body}\n",
        f"{other}\n",
    ]


def test_a_long_text_becomes_several_documents():
    parts = list(sources.parts([str(i) * 1_000 for i in range(1, 10)] * 4))
    assert len(parts) == 3
    assert all(len(part) < 17_000 for part in parts)


@pytest.mark.parametrize(
    ("name", "code"),
    [("pkg/a.py", True), ("pkg/tests/a.py", False), ("pkg/test_a.py", False), ("pkg/a.pyi", False)],
)
def test_modules_are_code_unless_they_test(name, code):
    assert sources.is_code(name) is code


def test_every_source_names_its_licence_and_every_wheel_its_hash():
    import tomllib

    wanted = tomllib.loads(sources.SOURCES.read_text("utf-8"))
    assert all(source["licence"] for kind in ("wheel", "package") for source in wanted[kind])
    assert all(len(wheel["sha256"]) == 64 for wheel in wanted["wheel"])
    assert {package["domain"] for package in wanted["package"]} == {"prose", "german"}
