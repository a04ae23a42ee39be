"""Write tests/recorded/chart-definitions.json: the kinds that each pinned chart of the catalog defines, and where the chart has them.

    .venv/bin/python tools/record_definitions.py CHART=FOLDER...

FOLDER is the chart of the pinned version, with the charts inside it that its values leave on; tests/recorded/README.md says where each is.
`crds`: helm installs these once. `templates`: helm upgrades these, and an uninstall deletes them.
"""

import json
import re
import sys
from pathlib import Path

from gpucluster import catalog

FILE = Path(__file__).parent.parent / "tests/recorded/chart-definitions.json"
PLACES = {"crds": ("crds/*.yaml", "charts/*/crds/*.yaml"), "templates": ("templates/crd/*.yaml",)}
# A template is no YAML, so these are read as text: `group` and `names.kind` of the definition have these indents.
_GROUP = re.compile(r"^  group: (\S+)$", re.MULTILINE)
_KIND = re.compile(r"^  names:\n(?:    .*\n)*?    kind: (\S+)$", re.MULTILINE)


def main() -> None:
    folders = dict(word.split("=", 1) for word in sys.argv[1:])
    charts = catalog.kubernetes_charts()
    made = {
        name: {"version": row.version} | {place: kinds(Path(folders[name]), place) for place in PLACES}
        for name, row in sorted(charts.items())
    }
    FILE.write_text(json.dumps(made, indent=1) + "\n")


def kinds(folder: Path, place: str) -> list[str]:
    """Return GROUP/KIND of each definition that the chart has in this place."""
    found: set[str] = set()
    for path in (path for pattern in PLACES[place] for path in folder.glob(pattern)):
        for text in re.split(r"^---$", path.read_text(), flags=re.MULTILINE):
            if "kind: CustomResourceDefinition" in text:
                found.add(f"{_only(_GROUP, text, path)}/{_only(_KIND, text, path)}")
    return sorted(found)


def _only(pattern: re.Pattern[str], text: str, path: Path) -> str:
    words = pattern.findall(text)
    if len(words) != 1:
        raise SystemExit(f"{path}: a definition with {len(words)} matches of {pattern.pattern!r}")
    return words[0]


if __name__ == "__main__":
    main()
