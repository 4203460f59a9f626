"""JSON Schema (2020-12) of the records, made from the structs, so that no page can promise what no record holds.

python -m modelkin.report.schema FOLDER           writes one file a record
python -m modelkin.report.schema FOLDER --check   says which differ, and fails if any does
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec

from modelkin.records import Comparison, Inspection, Study, Survey
from modelkin.report.files import to_json

RECORDS: Mapping[str, type[msgspec.Struct]] = {
    "comparison.json": Comparison,
    "inspection.json": Inspection,
    "study.json": Study,
    "survey.json": Survey,
}
DIALECT = "https://json-schema.org/draft/2020-12/schema"
PLACE = "#/$defs/{name}"


def schema(record: type[msgspec.Struct]) -> dict[str, Any]:
    """Every key is required, for every key is always written; others may be added in later versions."""
    (_,), parts = msgspec.json.schema_components([record], ref_template=PLACE)
    names = dict(sorted((name, _whole(part)) for name, part in parts.items()))
    top = names.pop(record.__name__)
    version = next(field.default for field in msgspec.structs.fields(record) if field.name == "schema")
    top["properties"]["schema"] = {"const": version}
    return {"$schema": DIALECT, "title": version, **{k: v for k, v in top.items() if k != "title"}, "$defs": names}


def _whole(part: dict[str, Any]) -> dict[str, Any]:
    """A struct with all its keys required. What is true by default is the program's business, not the reader's."""
    part = part | ({"description": cleandoc(part["description"])} if "description" in part else {})
    if "properties" not in part:
        return part
    properties = {
        name: {key: value for key, value in rule.items() if key != "default"}
        for name, rule in part["properties"].items()
    }
    return {**part, "properties": properties, "required": list(properties)}


def texts() -> dict[str, str]:
    return {name: to_json(schema(record)) for name, record in RECORDS.items()}


def outdated(folder: Path) -> list[str]:
    """Files in the folder that are not what the records say, or not there."""
    return [
        name
        for name, text in texts().items()
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text
    ]


def main(arguments: Sequence[str]) -> int:
    folders = [Path(word) for word in arguments if word != "--check"]
    if len(folders) != 1:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    if "--check" in arguments:
        stale = outdated(folders[0])
        sys.stderr.write("".join(f"{folders[0] / name} is not what the records say\n" for name in stale))
        return 1 if stale else 0
    folders[0].mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folders[0] / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
