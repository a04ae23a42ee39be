"""Hosts that stay under their names in another pool: what `diff` says of them is what `plan.removals` finds."""

import pytest
from support.builders import LAB, changed
from support.reviewed import a_diff, a_side

from gpucluster.gitops.model import WAITS, Diff
from gpucluster.plan.removals import removals
from gpucluster.spec import UpdateClass

_H100 = '{name: h100, machine: hgx-h100, hosts: "gpu[01-04]", addresses: "192.0.2.[11-14]"}'
_FIRST = '{name: h100, machine: hgx-h100, hosts: "gpu[01-02]", addresses: "192.0.2.[11-12]"}'
_LAST = '{name: spare, machine: hgx-h100, hosts: "gpu[03-04]", addresses: "192.0.2.[13-14]"}'
_BOTH = ("pools: [h100]", "pools: [h100, spare]")
_PLAIN = "  plain: {sockets: 2, cores_per_socket: 56, threads_per_core: 2, memory: 2000GiB}\n"
_LAB = changed(LAB, ("pools:\n", f"{_PLAIN}pools:\n"))
_SPLIT = changed(_LAB, (_H100, f"{_FIRST}\n  - {_LAST}"), _BOTH)
_RENAMED = changed(
    _LAB, (_H100, _H100.replace("name: h100", "name: other")), ("pools: [h100]", "pools: [other]")
)
_OTHER = changed(_SPLIT, ("spare, machine: hgx-h100", "spare, machine: plain"))
_ADDRESS = changed(_SPLIT, ("[13-14]", "[23-24]"))
_LESS = changed(_SPLIT, ('"gpu[03-04]", addresses: "192.0.2.[13-14]"', '"gpu03", addresses: "192.0.2.13"'), ('leaf2: "gpu[03-04]"', "leaf2: gpu03"))  # fmt: skip
_SWAPPED = changed(_OTHER, ("h100, machine: hgx-h100", "h100, machine: MACHINE"), ("spare, machine: plain", "spare, machine: hgx-h100"), ("machine: MACHINE", "machine: plain"), ('"gpu[01-02]", addresses: "192.0.2.[11-12]"', "HOSTS"), ('"gpu[03-04]", addresses: "192.0.2.[13-14]"', '"gpu[01-02]", addresses: "192.0.2.[11-12]"'), ("HOSTS", '"gpu[03-04]", addresses: "192.0.2.[13-14]"'))  # fmt: skip
EDITS = {
    "split": (_LAB, _SPLIT),
    "joined": (_SPLIT, _LAB),
    "renamed": (_LAB, _RENAMED),
    "split, with other hardware": (_LAB, _OTHER),
    "joined, with other hardware": (_OTHER, _LAB),
    "split, with other addresses": (_LAB, _ADDRESS),
    "split, with one less": (_LAB, _LESS),
    "swapped": (_OTHER, _SWAPPED),
}


def _said(found: Diff) -> list[str]:
    return [
        text
        for text in (*(one.why for one in found.spec), *(one.message for one in found.consequences))
        if text
    ]


@pytest.mark.parametrize("edit", EDITS)
def test_nodes_wait_for_their_jobs_only_if_the_head_holds_the_bundle(edit: str) -> None:
    """It said that the nodes of a pool that is split, joined or renamed are removed, and drained."""
    old, new = EDITS[edit]
    found = a_diff(old, new)
    gone = removals(a_side(old).plan, a_side(new).plan)  # type: ignore[arg-type]
    assert bool(gone) is any(WAITS in one for one in _said(found))
    assert (found.worst is UpdateClass.DRAIN) is (bool(gone) and edit != "split, with one less")
    assert found.effects is not None
    assert ("finish on the nodes" in found.effects.running) is bool(
        gone
    ) or "must have ended" in found.effects.running


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        ("split", ["gpu[03-04] move to the pool spare, and get its features and partitions"]),
        ("joined", ["gpu[03-04] move to the pool h100, and get its features and partitions"]),
        ("renamed", ["gpu[01-04] move to the pool other, and get its features and partitions"]),
        ("split, with other hardware", [f"gpu[03-04] move to the pool spare with other hardware or another address: {WAITS}"]),
        ("joined, with other hardware", [f"gpu[03-04] move to the pool h100 with other hardware or another address: {WAITS}"]),
        ("split, with other addresses", [f"gpu[03-04] move to the pool spare with other hardware or another address: {WAITS}"]),
        ("split, with one less", ["gpu03 move to the pool spare", f"gpu04 are removed from Slurm's files: {WAITS}"]),
        ("swapped", ["gpu[01-02] move to the pool spare", "gpu[03-04] move to the pool h100"]),
    ],
)  # fmt: skip
def test_nodes_are_told_where_they_go(edit: str, words: list[str]) -> None:
    said = _said(a_diff(*EDITS[edit]))
    assert [word for word in words if not any(word in one for one in said)] == []
    removed = [one for one in said if "removed from Slurm's files" in one or "its nodes are removed" in one]
    assert bool(removed) is (edit == "split, with one less")


def test_host_of_another_pool_is_not_added() -> None:
    """It said that a host is added, and that no other host changes."""
    said = _said(a_diff(*EDITS["joined, with other hardware"]))
    assert not [one for one in said if "host is added" in one or "an added host" in one]
    assert "gpu[03-04] come from the pool spare" in said
