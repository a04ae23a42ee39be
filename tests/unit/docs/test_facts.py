"""Each fact id that code, tests or documents cite is a heading of docs/facts, and no file names a document outside the repository."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FACTS = ROOT / "docs" / "facts"
FOLDERS = (
    "src",
    "tests",
    "docs",
    "policies",
    "bench",
    "tools",
    "playbooks",
    "templates",
    "monitoring",
    "stacks",
)
TEXT = frozenset({".py", ".md", ".yml", ".yaml", ".toml", ".j2", ".conf", ".service", ".nft", ".sh"})
CITED = re.compile(r"(?<![\w.:-])([TS]\d{2})(?![\w:.-]*\d)\b")
OUTSIDE = re.compile(
    r"\b(?:aws-traps|operations|findings|peers|kubernetes-engine|design|slurm|sandbox|pulumi|spec|style)\.md\b"
)
OWN = frozenset({"docs/facts/slurm.md", "docs/spec.md", "docs/kubernetes.md"})


def texts() -> Iterator[tuple[str, str]]:
    """(path below the root, text) of every file that people write."""
    files = [*ROOT.glob("*.md"), *(p for folder in FOLDERS for p in (ROOT / folder).rglob("*"))]
    for path in sorted(files):
        parts = path.relative_to(ROOT).parts
        if path.suffix in TEXT and path.is_file() and "recorded" not in parts and "golden" not in parts:
            yield str(path.relative_to(ROOT)), path.read_text()


def headings() -> frozenset[str]:
    """Every id that a heading of docs/facts defines."""
    return frozenset(
        found
        for page in FACTS.glob("*.md")
        for found in re.findall(r"^### ([TS]\d{2}):", page.read_text(), re.M)
    )


def test_every_cited_fact_is_a_heading() -> None:
    defined = headings()
    assert {"T01", "T45", "S01"} <= defined
    missing = [
        f"{path}: {cited}"
        for path, text in texts()
        for cited in sorted(set(CITED.findall(text)))
        if cited not in defined and not path.startswith("docs/facts/")
    ]
    assert not missing, "\n".join(missing)


def test_no_file_names_a_document_outside_the_repository() -> None:
    own = {Path(name).name for name in OWN}
    outside = [
        f"{path}: {found}"
        for path, text in texts()
        for found in sorted(set(OUTSIDE.findall(text)))
        if not (found in own and f"docs/{'facts/' if found == 'slurm.md' else ''}{found}" in text)
        and path != "tests/unit/docs/test_facts.py"
    ]
    assert not outside, "\n".join(outside)


def test_each_fact_names_its_source() -> None:
    for page in FACTS.glob("*.md"):
        for section in re.split(r"^### ", page.read_text(), flags=re.M)[1:]:
            if re.match(r"[TS]\d{2}:", section):
                assert "- Source: " in section, section.splitlines()[0]
