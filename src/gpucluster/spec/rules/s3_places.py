"""Places in S3 of a role: how many its policy holds, and none twice."""

from collections.abc import Iterator, Sequence

from gpucluster.spec.problem import Finding, Path
from gpucluster.spec.rules.findings import error
from gpucluster.text import quoted

MOST_PREFIXES, MOST_LETTERS = 20, 1600  # a role's policies have 10240 characters in all (T37)


def amount(read: Sequence[str], write: Sequence[str], path: Path, role: str) -> Iterator[Finding]:
    """Check that there is a place, and that the policy is within AWS's size limit."""
    places = [*read, *write]
    if not places:
        message = f"'read' and 'write' are missing: {role} would have no rights"
        yield error(*path, id="missing-key", message=message)
    letters = sum(map(len, places))
    if len(places) > MOST_PREFIXES or letters > MOST_LETTERS:
        message = (
            f"{len(places)} prefixes of {letters} characters; a role's policy has room for {MOST_PREFIXES} of "
            f"{MOST_LETTERS} characters in all: write the folder or the bucket above them"
        )
        yield error(*path, id="too-many-places", message=message)


def named_once(read: Sequence[str], write: Sequence[str], path: Path, at: str) -> Iterator[Finding]:
    """Refuse a repeated folder. A slash at the end has no effect, and write access includes read access."""
    seen: dict[str, str] = {}
    for key, places in (("write", write), ("read", read)):
        for index, place in enumerate(places):
            folder = f"{place.rstrip('/')}/"
            if "//" in folder.removeprefix("s3://"):
                message = f"{quoted(place)} has an empty name between two slashes"
                yield error(*path, key, index, id="bad-s3", message=message)
            above = next((one for one in seen if folder.startswith(one)), None)
            if above is not None:
                within = "named twice" if above == folder else f"within {quoted(above)}"
                message = f"{quoted(place)} is {within} ({at}{seen[above]}), and has its rights"
                yield error(*path, key, index, id="repeated", message=message)
            seen.setdefault(folder, key)
