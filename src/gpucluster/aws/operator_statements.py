"""One statement of a policy."""

from collections.abc import Iterable, Iterator, Sequence

from gpucluster.plan.iam_policies import Statement


def allow(
    sid: str, actions: Iterable[str], resources: Sequence[str], when: Statement | None = None
) -> Iterator[Statement]:
    """Yield the statement, if it has actions and resources."""
    found = sorted(set(actions))
    if found and resources:
        statement: Statement = {"Sid": sid, "Effect": "Allow", "Action": found, "Resource": list(resources)}
        yield statement | ({"Condition": when} if when else {})
