"""A finding: the object, the place in it, the rule, and a message for people."""

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """An error would be refused, would hang for ever, or would waste a GPU. A warning may be intended."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`file`, `document` (from 1) and `line` are 0 or empty where the manifest was not read from a file."""

    level: Severity
    rule: str
    message: str
    path: str = ""
    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    file: str = ""
    document: int = 0
    line: int = 0

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line or "") if part)
        owner = f"{self.namespace}/" if self.namespace else ""
        who = f"{self.kind} {owner}{self.name}" if self.kind else ""
        about = " ".join(part for part in (who, self.path) if part)
        return ": ".join(part for part in (place, f"{self.level}[{self.rule}]", about, self.message) if part)
