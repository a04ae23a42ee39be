"""The GPUs of a node, as its Gres has them: `gpu:2080ti:8`, `gpu:a100:no_consume:4(S:0-1)`, `gpu:1g.10gb:7`, `shard:16`.

A word is NAME[:TYPE][:no_consume][:COUNT]. A part of digits alone is a count, so a type may begin with a digit (gres.c). Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from gpucluster.importer.lines import FileLine
from gpucluster.importer.site import Setting, Settings

_BETWEEN = re.compile(r",(?![^(]{0,99}\))")  # a comma of (S:0,1) is none
_WORD = re.compile(r"([A-Za-z][A-Za-z0-9_.-]*)((?::[^:,()]+)*)(?:\([^)]*\))?")
_COUNT = re.compile(r"([0-9]{1,18})([kmgtp]?)", re.IGNORECASE)
_UNITS = ("", "k", "m", "g", "t", "p")  # each 1024 of the one before
_SLICE = re.compile(  # NVIDIA's name of a MIG profile, behind that of the GPU if NVML finds it: a100_1g.5gb
    r"(?:.*_)?(?:[0-9]+c\.)?[0-9]+g\.[0-9]+gb(?:\+[a-z.]+)?", re.IGNORECASE
)
_FLAG = "no_consume"
_SHARED = {"shard": "shards", "mps": "mps"}  # GRES -> the key of `sharing`
MOST_MPS = 100  # parts of one GPU


@dataclass(frozen=True, slots=True)
class Gpus:
    """The first type of a node's GPUs with its count, and how many parts each GPU has."""

    model: str = ""  # "": the site names none
    count: int = 0
    sharing: tuple[str, int] | None = None

    @property
    def slices(self) -> bool:
        """Whether the type is a MIG profile, so that each is a part of a GPU."""
        return _SLICE.fullmatch(self.model) is not None


def gpus_of(settings: Settings) -> Gpus:
    """The GPUs of a node's line; none without Gres."""
    words = tuple(words_of(settings["gres"].value)) if "gres" in settings else ()
    first = next((word for word in words if word[0] == "gpu"), None)
    if first is None or not first[2]:
        return Gpus()
    _, model, count = first
    parts = next(((name, number) for name, _, number in words if name in _SHARED), None)
    return Gpus(model, count, None if parts is None else _sharing(parts[0], parts[1], count))


def why_changed(value: str) -> str:
    """Why a machine of a spec has not these GRES; empty if it has."""
    words = tuple(words_of(value))
    types = [kind for name, kind, _ in words if name == "gpu"]
    others = [name for name, *_ in words if name != "gpu" and name not in _SHARED]
    gpus = gpus_of({"gres": Setting(value, FileLine("", 0), "Gres")})
    causes = (
        ("the GPUs of a spec have a type, here `gpu`", "" in types),
        ("a machine of a spec has GPUs of one type", len(set(types)) > 1),
        (f"a spec has no {_FLAG}", _FLAG in value.lower()),
        (f"a spec has no GRES {', '.join(others)}", bool(others)),
        (
            "a spec gives each GPU as many parts",
            gpus.sharing is None and any(name in _SHARED for name, *_ in words),
        ),
    )
    return "; ".join(why for why, applies in causes if applies)


def _sharing(name: str, parts: int, gpus: int) -> tuple[str, int] | None:
    """The parts of one GPU: Slurm spreads those of a node evenly. None if they do not divide, or are too many."""
    each, rest = divmod(parts, gpus)
    odd = rest or not each or (name == "mps" and each > MOST_MPS)
    return None if odd else (_SHARED[name], each)


def words_of(value: str) -> Iterator[tuple[str, str, int]]:
    """(name, type, count) of each word; a word of another form is a name of its own."""
    for word in filter(None, map(str.strip, _BETWEEN.split(value))):
        match = _WORD.fullmatch(word)
        if match is None:
            yield word.lower(), "", 1
            continue
        parts = [part for part in match[2].split(":")[1:] if part.lower() != _FLAG]
        last = _COUNT.fullmatch(parts[-1]) if parts else None
        count = 1 if last is None else int(last[1]) * 1024 ** _UNITS.index(last[2].lower())
        types = parts if last is None else parts[:-1]
        if len(types) <= 1:
            yield match[1].lower(), types[0] if types else "", count
        else:
            yield word.lower(), "", 1
