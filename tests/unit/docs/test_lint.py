"""docs/lint.md has every rule of the linter, and no other."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
IDS = re.compile(r'(?:found|warned|Complaint)\(\s*"([a-z][a-z-]*)"|rule="([a-z-]+)"')


def test_rules_of_the_page_are_those_of_the_linter() -> None:
    sources = "".join(file.read_text() for file in sorted((ROOT / "src/gpucluster/k8s/lint").glob("*.py")))
    rules = {one or other for one, other in IDS.findall(sources)}
    page = (ROOT / "docs/lint.md").read_text().partition("## Rules")[2]
    first = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`([a-z-]+)`", first)) == rules
