"""Write the published JSON Schema of record files: ``docs/schema/record-<version>.json``."""

from __future__ import annotations

import json
from pathlib import Path

from fullgraph.report.json_schema import record_schema

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "schema"


def main() -> None:
    """Write the file of the version that this checkout writes."""
    schema = record_schema()
    version = schema["properties"]["schema"]["const"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"record-{version}.json"
    path.write_text(json.dumps(schema, indent=2) + "\n", encoding="utf-8")
    print(f"wrote {path}")


if __name__ == "__main__":
    main()
