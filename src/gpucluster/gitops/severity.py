"""How grave a sentence about jobs, sessions or data is, by its words. A report begins with the worst, and so does each list. Pure."""

import re
from enum import IntEnum


class Severity(IntEnum):
    """Worst first."""

    LOST = 0
    ENDED = 1  # ended, deleted, refused, requeued, or those of another user
    BLOCKED = 2  # a person must act, or the jobs never start
    WAITS = 3
    STARTS = 4
    NOTHING = 5


_WORDS = {
    Severity.LOST: r"\b(?:(?:is|are) lost|lose)\b",
    Severity.ENDED: r"\b(?:(?<!it )(?:is|are) (?:deleted|ended|refused|requeued)|is that of \S+ until|which (?!no user)\S+ has then|fail|end(?= where|[;,:]|$))(?:\b|$)",
    Severity.BLOCKED: r"\b(?:never starts?|until it is (?:lowered|UP)|cannot log in)\b|^after the change, sbatch refuses",
    Severity.WAITS: r"\bwaits?\b",
    Severity.STARTS: r"\bstarts?\b",
}


def says(severity: Severity, text: str) -> bool:
    """Whether the text says something of this severity, beside what else it says."""
    return re.search(_WORDS[severity], text) is not None


def severity_of(text: str) -> Severity:
    """Return the worst that the text says."""
    return next((one for one in _WORDS if says(one, text)), Severity.NOTHING)
