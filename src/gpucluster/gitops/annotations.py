"""Problems as the workflow commands that GitHub shows beside the changed lines; they need no permission."""

from collections.abc import Iterator, Mapping, Sequence

from gpucluster.markdown import printable
from gpucluster.spec import Problem

_KINDS = {"error": "error", "warning": "warning"}


def annotations(problems: Sequence[Problem], uris: Mapping[str, str]) -> Iterator[str]:
    """One line each: `::error file=stacks/burst.yaml,line=3,col=7,title=bad-name::...`."""
    for one in problems:
        kind = _KINDS.get(one.level.value, "notice")
        place = f"file={_property(uris[one.file])},line={one.mark.line},col={one.mark.column}"
        text = f"{one.path}: {one.message}" if one.path else one.message
        yield f"::{kind} {place},title={_property(one.id)}::{_text(text)}"


def _text(value: str) -> str:
    return printable(value).replace("%", "%25")


def _property(value: str) -> str:
    return _text(value).replace(":", "%3A").replace(",", "%2C")
