"""Pages of docs/ that are made from the code, or can be followed. To make them anew:  python tests/test_pages.py"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from shutil import copytree, ignore_patterns

import click
import pytest

from modelkin.architectures import families
from modelkin.architectures.family import Family, parse_family
from modelkin.cli import EXIT_CODES, main
from modelkin.compare import compare
from modelkin.demo import bundled
from modelkin.formats.dtypes import BITS, is_readable
from modelkin.records import Comparison, Evidence
from modelkin.verdict import ALPHA, ALPHA_B, WEIGHTS, words
from modelkin.verdict.policy import LARGEST_DETECTABLE, LEAST_COMPARED, SETS_NEEDED

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = "<!-- made by tests/test_pages.py -->"
PAGES = sorted(DOCS.glob("*.md"))


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


# Command reference.


def commands_page() -> str:
    parts = [
        f"# Commands\n\n{MADE}",
        "`modelkin COMMAND --help` prints the same. Results go to standard output, progress to standard error.",
        _filled(main.help or ""),
        *_commands("modelkin", main),
        f"## Exit codes\n\n{_filled(EXIT_CODES).removeprefix('Exit codes: ')}",
        "Where models come from, what the cache keeps and what `--out` writes: [How bytes are got](reading.md). "
        "What `--json` holds: [The record](json.md).",
    ]
    return "\n\n".join(parts) + "\n"


def _commands(path: str, group: click.Group) -> Iterator[str]:
    for name, command in sorted(group.commands.items()):
        if isinstance(command, click.Group):
            yield f"## `{path} {name}`\n\n{_filled(command.help or '')}"
            yield from _commands(f"{path} {name}", command)
        else:
            yield _command(f"{path} {name}", command)


def _command(path: str, command: click.Command) -> str:
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [one for one in command.params if isinstance(one, click.Option) and not one.hidden]
    usage = " ".join([path, *(["[OPTIONS]"] if options else []), *(_argument(one) for one in arguments)])
    rows = [f"| {_names(one)} | {_escaped(one.help or '')}{_default(one)} |" for one in options]
    table = ["| option | meaning |\n| --- | --- |\n" + "\n".join(rows)] if rows else []
    return "\n\n".join([f"## `{path}`", f"    {usage}", _filled(command.help or ""), *table])


def _argument(argument: click.Argument) -> str:
    name = (argument.name or "").upper()
    several = f"{name} …" if argument.nargs == -1 else name
    return several if argument.required else f"[{several}]"


def _names(option: click.Option) -> str:
    takes = "" if option.is_flag else f" {option.metavar or _choices(option)}"
    return ", ".join(f"`{_escaped(name + takes)}`" for name in option.opts)


def _choices(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(option.type.choices)
    return "N" if isinstance(option.type, click.types.IntParamType) else "TEXT"


def _default(option: click.Option) -> str:
    return f" Default: `{option.default}`." if option.show_default else ""


def _filled(text: str) -> str:
    """Paragraphs as click means them, each on one line."""
    return "\n\n".join(" ".join(part.replace("\b", "").split()) for part in text.split("\n\n"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


# Families.


def families_list() -> str:
    rows = [f"| `{each.name}` | {_types(each)} | {', '.join(each.examples)} |" for each in families()]
    return "\n".join(["| family | `model_type` | for example |", "| --- | --- | --- |", *rows])


def _types(family: Family) -> str:
    return ", ".join(f"`{name}`" for name in family.model_types)


def with_families(text: str) -> str:
    return re.sub(
        r"(<!-- families -->\n).*?(\n<!-- /families -->)",
        lambda found: found[1] + families_list() + found[2],
        text,
        flags=re.DOTALL,
    )


def test_every_command_and_option_is_in_the_reference() -> None:
    assert page("commands.md") == commands_page(), "python tests/test_pages.py"
    assert "`--budget quick\\|standard\\|full`" in page("commands.md")


def test_every_family_is_listed() -> None:
    assert page("families.md") == with_families(page("families.md")), "python tests/test_pages.py"
    assert page("families.md").count("\n| `llama` |") == 1


# Links.


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_of_a_page_leads_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, anchor = target.partition("#")
        aim = (path.parent / name) if name else path
        assert aim.exists(), target
        assert not anchor or anchor in _anchors(aim.read_text(encoding="utf-8")), target


def _anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_index_leads_to_every_page() -> None:
    named = set(re.findall(r"\]\(([\w.-]+\.md)\)", page("index.md")))
    assert {path.name for path in PAGES} - {"index.md"} <= named


# How it decides.


@cache
def compared(a: str, b: str) -> Comparison:
    models = bundled()
    return compare(str(models[a]), str(models[b]))


@pytest.mark.parametrize("pair", [("dune", "heath"), ("dune", "grove")])
def test_the_worked_example_is_what_is_found(pair: tuple[str, str]) -> None:
    case = compared(*pair)
    rows = re.findall(
        rf"^\| {pair[0]} and {pair[1]} \| ([\w ]+) \| (.+?) \| (.+?) \|$", page("how-it-decides.md"), re.M
    )
    given = {answer.question: answer for answer in case.answers if isinstance(answer, Evidence)}
    assert len(rows) == 2
    for (_, observed, strangers), question in zip(rows, ("hidden-axes-by-gains", "neurons"), strict=True):
        assert (observed, strangers) == (given[question].observed, given[question].strangers)
    assert case.verdict.outcome.upper() in page("how-it-decides.md")


def test_the_rules_on_the_page_are_those_of_the_policy() -> None:
    text = " ".join(page("how-it-decides.md").split())
    assert (ALPHA, ALPHA_B, SETS_NEEDED, LARGEST_DETECTABLE, LEAST_COMPARED) == (1e-6, 1e-3, 2, 0.1, 0.5)
    for question, share in WEIGHTS.items():
        assert f"| `{question}` | {share:.0%} |".replace("%", " %") in text, question
    for sentence in (words.UNRELATED, words.UNRELATED_UNMASKED):
        assert sentence.partition(": ")[2] in text
    assert "fewer than one pair of strangers in a thousand gives" in text
    assert (
        "| – | layers, axes, neurons, heads or experts that only one of the two has: left out here or put in there |"
        in text
    )


@pytest.mark.parametrize(("readme", "language"), [("README.md", "en"), ("README.ko.md", "ko")])
def test_a_picture_stands_on_the_first_screen_and_is_small(readme: str, language: str) -> None:
    """`make picture` makes it anew."""
    before_transcript = (ROOT / readme).read_text(encoding="utf-8").partition("    $ modelkin")[0]
    found = re.search(r"!\[(.{40,})\]\((docs/img/.+?)\)", before_transcript)
    assert found is not None
    assert found[2] == f"docs/img/report-{language}.png"
    body = (ROOT / found[2]).read_bytes()
    assert body.startswith(b"\x89PNG")
    assert len(body) <= 200_000


# Formats.


def test_every_number_format_is_named_on_the_right_side() -> None:
    read, only_known = re.findall(r"^- \*\*(?:Read|Known by size)[^:]*:\*\* (.+?)\.$", page("formats.md"), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", read)) == {name for name in BITS if is_readable(name)}
    assert set(re.findall(r"`(\w+)`", only_known)) == {name for name in BITS if not is_readable(name)}


# A family, added as the page says.


def blocks(name: str) -> list[str]:
    return re.findall(r"```toml\n(.*?)```", page(name), re.DOTALL)


def test_following_the_page_adds_a_family(tmp_path: Path) -> None:
    """In a copy of the code, with the commands of the page."""
    places = re.findall(r"^`((?:src|tests)/\S+\.toml)`", page("adding-a-family.md"), re.MULTILINE)
    copytree(ROOT / "src", tmp_path / "src", ignore=ignore_patterns("__pycache__", "*.safetensors"))
    copytree(ROOT / "tests" / "contracts", tmp_path / "tests" / "contracts", ignore=ignore_patterns("__pycache__"))
    for place, text in zip(places, blocks("adding-a-family.md"), strict=True):
        assert (tmp_path / place).parent.is_dir()
        (tmp_path / place).write_text(text, encoding="utf-8")
    commands = re.findall(r"^    (python -m pytest .+|modelkin families)$", page("adding-a-family.md"), re.MULTILINE)
    tried, listed = (_run(command, tmp_path) for command in commands)
    passed = re.search(r"(\d+) passed", tried)
    assert passed is not None
    assert int(passed[1]) >= 10
    assert "failed" not in tried
    assert re.search(r"^acme +acme/acme-1b$", listed, re.MULTILINE)


def _run(command: str, folder: Path) -> str:
    words_of_it = command.removeprefix("python ").split()
    arguments = words_of_it if words_of_it[0] == "-m" else ["-m", *words_of_it]
    quiet = ["-p", "no:cacheprovider"] if "pytest" in arguments else []
    paths = os.pathsep.join([str(folder / "src"), *(path for path in sys.path if path)])
    done = subprocess.run(
        [sys.executable, *arguments, *quiet],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("name", ["families.md", "adding-a-family.md"])
def test_every_family_on_a_page_is_read_strictly(name: str) -> None:
    parse_family(blocks(name)[0], name)


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands_page(), encoding="utf-8")
    (DOCS / "families.md").write_text(with_families(page("families.md")), encoding="utf-8")
