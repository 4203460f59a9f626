"""What the README shows is what the program prints. To show it anew:  python tests/test_docs.py"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
READMES = ("README.md", "README.ko.md")


def transcripts(text: str) -> list[tuple[str, str]]:
    """Indented blocks that start with `$ command`: the command, and what is printed below it."""
    blocks = re.findall(r"^    \$ (.+)\n((?:    .*\n|\n(?=    ))*)", text, re.MULTILINE)
    return [(command, re.sub(r"^    ", "", body, flags=re.MULTILINE)) for command, body in blocks]


def without_what_varies(text: str) -> list[str]:
    """Seconds differ from run to run; everything else must not."""
    lines = re.sub(r"\d+\.\d s\b", "N s", text).strip().splitlines()
    return [line.rstrip() for line in lines if line.strip()]


def assert_shown(shown: list[str], printed: list[str]) -> None:
    """Line by line; a line of `…` alone stands for lines that are left out."""
    at, free = 0, False
    for line in shown:
        if line == "…":
            free = True
            continue
        found = printed.index(line, at) if line in printed[at:] else -1
        assert found >= 0, f"not printed: {line}"
        assert free or found == at, f"printed before it: {printed[at]}"
        at, free = found + 1, False
    assert free or at == len(printed)


def printed_by(command: str) -> str:
    program, *arguments = command.split()
    assert program == "modelkin"
    command_line = [sys.executable, "-m", "modelkin", *arguments]
    return subprocess.run(command_line, capture_output=True, text=True, check=True).stdout


def shown_anew(shown: str, printed: str) -> str:
    """The same paragraphs as they are printed now, each known by the first three words; what is gone is left out."""
    now = {tuple(part.split()[:3]): part for part in printed.strip().split("\n\n")}
    anew = []
    for part in re.split(r"(?m)(^…$|^$)", shown.strip()):
        kept = now.get(tuple(part.split()[:3]), "") if part.strip(" \n…") else part.strip()
        anew.append(kept)
    lines = re.sub(r"\n{3,}", "\n\n", "\n".join(anew)).strip()
    return re.sub(r"\n\n(…)\n\n", r"\n\1\n", lines + "\n")


def rewrite(readme: Path) -> None:
    text = readme.read_text(encoding="utf-8")
    for command, shown in transcripts(text):
        anew = shown_anew(shown, printed_by(command))
        old, new = (re.sub(r"^(?=.)", "    ", body, flags=re.MULTILINE) for body in (shown, anew))
        assert old in text
        text = text.replace(old, new)
    readme.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("readme", READMES)
def test_every_transcript_is_true(readme: str) -> None:
    found = transcripts((ROOT / readme).read_text(encoding="utf-8"))
    assert found
    for command, shown in found:
        assert_shown(without_what_varies(shown), without_what_varies(printed_by(command)))


@pytest.mark.parametrize("readme", READMES)
def test_both_make_commands_are_shown_and_exist(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    for target in ("demo", "test"):
        assert f"make {target}" in text
        assert subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, check=False).returncode == 0
    assert (ROOT / ".ci" / "run").read_text().splitlines()[-1] == "make test"


@pytest.mark.parametrize("readme", READMES)
def test_every_link_leads_somewhere(readme: str) -> None:
    text = (ROOT / readme).read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)#]+)", text)
    assert targets
    assert all((ROOT / target).exists() for target in targets if "://" not in target)


@pytest.mark.parametrize("readme", READMES)
def test_every_command_of_the_program_is_listed(readme: str) -> None:
    from modelkin.cli import main

    text = (ROOT / readme).read_text(encoding="utf-8")
    for name in main.commands:
        assert f"`modelkin {name}" in text


def test_the_python_on_the_first_screen_names_things_that_exist() -> None:
    import modelkin

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    used = set(re.findall(r"modelkin\.(\w+)", text)) - {"md"}
    assert used
    assert used <= set(modelkin.__all__)


if __name__ == "__main__":
    for name in READMES:
        rewrite(ROOT / name)
