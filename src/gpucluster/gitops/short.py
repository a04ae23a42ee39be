"""Long values for one line of a report."""

import json

_LONGEST = 80


def short(value: object) -> str:
    """A text as it is, anything else as JSON; cut in the middle, where two versions differ least."""
    return cut(value if isinstance(value, str) else json.dumps(value, sort_keys=True), _LONGEST)


def cut(text: str, longest: int) -> str:
    """At most so many characters; what is cut is said."""
    if len(text) <= longest:
        return text
    note = f"...({len(text)} characters)..."
    keep = max(longest - len(note), 2)
    return f"{text[: keep - keep // 2]}{note}{text[len(text) - keep // 2 :]}"
