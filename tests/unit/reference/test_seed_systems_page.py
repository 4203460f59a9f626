"""docs/seed-systems.md: every command, option, module, test and table that it names exists, and no cell is empty."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import click

from modelkin.cli import main
from modelkin.reference.claims import all_claims
from modelkin.studies import STUDIES

ROOT = Path(__file__).parent.parent.parent.parent
PAGE = (ROOT / "docs" / "seed-systems.md").read_text(encoding="utf-8")


def tables() -> list[list[list[str]]]:
    """Cells of each table, without its head."""
    blocks = re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)
    rows = [[line.strip("|\n").split("|") for line in block.splitlines()] for block in blocks]
    return [[[cell.strip() for cell in row] for row in block[2:]] for block in rows]


def commands() -> list[list[str]]:
    quoted = re.findall(r"`modelkin ([^`]+)`", PAGE) + re.findall(r"^    modelkin (.+)$", PAGE, re.MULTILINE)
    return [command.split() for command in quoted]


def test_fifteen_defects_and_37_features_without_an_empty_cell() -> None:
    defects, features, _toy = tables()
    assert [row[0] for row in defects] == [str(number) for number in range(1, 16)]
    assert [row[0] for row in features] == [str(number) for number in range(1, 38)]
    assert all(len(row) == 5 and all(row) for row in defects)
    assert all(len(row) == 4 and all(row) for row in features)
    assert all(row[2].startswith("`modelkin ") for row in features)


def test_every_command_and_option_exists() -> None:
    assert len(commands()) > 40
    for name, *words in commands():
        command = main.get_command(click.Context(main), name)
        assert command is not None, name
        known = {option for it in command.params for option in it.opts}
        used = {word for word in words if word.startswith("--")}
        assert used <= known, (name, used - known)


def test_every_command_line_is_understood() -> None:
    """Arguments are parsed, not run; of a group its own commands are looked up."""
    for name, *words in commands():
        command = main.get_command(click.Context(main), name)
        assert command is not None
        if isinstance(command, click.Group):
            assert words[0] in command.commands
        elif "FILE" not in words:
            command.make_context(name, list(words), resilient_parsing=False)


def test_every_study_exists() -> None:
    named = {words[1] for words in commands() if words[0] == "study" and len(words) > 1}
    assert named == STUDIES.keys()


def test_every_module_exists() -> None:
    modules = set(re.findall(r"`(modelkin\.[\w.]+)`", PAGE))
    assert len(modules) > 20
    for module in modules:
        assert importlib.util.find_spec(module) is not None, module


def test_every_test_named_exists() -> None:
    named = re.findall(r"tests/[\w/]+\.py", PAGE)
    assert len(named) == 15
    assert all((ROOT / path).exists() for path in named)


def test_the_count_of_published_numbers_is_true() -> None:
    assert f"{len(all_claims()):,} published numbers" in PAGE
