"""Files of accounts beside slurm.conf: read if the content shows that they are what they seem, else reported."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from gpucluster.importer.files import Folder
from gpucluster.importer.lines import FileLine, NotReadableError
from gpucluster.importer.site import Site
from gpucluster.text import short

_CLUSTER = re.compile(r"^Cluster - '([^':]+)'", re.MULTILINE)
_NAMES: dict[str, Callable[[str], bool]] = {  # kind -> whether a file of this name may be it
    "associations": lambda name: "assoc" in name or name.endswith(".dump"),
    "passwd": lambda name: name == "passwd",
    "group": lambda name: name == "group",
}
_FIELDS = {"passwd": (7, (2, 3)), "group": (4, (2,))}  # fields of a line, and those with a number
_ASK = "name it after the folder if it is the site's"


def accounts_beside(
    site: Site, folder: Folder, named: Collection[str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    """The kind, name and text of each file that is proven. A kind that the user has named is not searched."""
    files = _listed(folder.root)
    for kind, may_be in _NAMES.items():
        found = [file for file in files if may_be(file.name.lower()) and file not in folder.used]
        if kind in named or not found:
            continue
        text, why = _read(site, folder, kind, found)
        if not why:
            yield kind, (str(found[0]), text)
        for file in found if why else ():
            site.complain(FileLine(str(file), 1), f"the file is not read: {why}; {_ASK}")


def _listed(root: Path) -> Sequence[Path]:
    try:
        return sorted(root.iterdir())
    except OSError:
        return ()


def _read(site: Site, folder: Folder, kind: str, found: Sequence[Path]) -> tuple[str, str]:
    """The text of the only file of a kind, and why it is not proven; empty if it is."""
    if len(found) > 1:
        return "", "another one is of the same kind"
    if found[0].is_symlink() or not found[0].is_file():
        return "", "it is no plain file of the folder"
    try:
        text = folder.text(found[0])
    except NotReadableError as error:
        return "", str(error)
    return text, _not_dump(site, text) if kind == "associations" else _not_rows(kind, text.splitlines())


def _not_dump(site: Site, text: str) -> str:
    match, name = _CLUSTER.search(text), site.cluster.get("clustername")
    if match is None:
        return "it has no line of `sacctmgr dump` with the cluster"
    if name is None or match[1].lower() != name.value.lower():
        ours = "slurm.conf names none" if name is None else f"not {short(name.value, 60)}"
        return f"it is of the cluster {short(match[1], 60)}, {ours}"
    return ""


def _not_rows(kind: str, lines: Iterable[str]) -> str:
    count, numbers = _FIELDS[kind]
    rows = [line.split(":") for line in lines]
    for at, row in enumerate(rows, 1):
        if len(row) != count or not all(row[number].isdecimal() for number in numbers):
            return f"line {at} is none of `getent {kind}`"
    return "" if rows else "it is empty"
