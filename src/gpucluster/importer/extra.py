"""Settings of a site that the spec does not model, for `extra`. The rules of the spec say which of them stay there."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gpucluster.catalog.slurm_values import Weights, slurm_values
from gpucluster.importer import keys
from gpucluster.importer.site import Settings
from gpucluster.slurm.owned_keys import LISTS, OWNED

_REFUSED = re.compile(r"(slurm|pools|partitions)(?:\[(.*)\])?\.extra\.'?([A-Za-z0-9_]+)'?")
_VALUE = re.compile(r"[!-~]{1,1000}")
PLUGINS = frozenset(
    ("mpidefault", "jobsubmitplugins", "clifilterplugins", "debugflags")
)  # the check of rendered keys refuses values that `extra` takes
_OF_HOSTS = frozenset({"tmpfs"})  # a file system of the site's hosts: TmpDisk of a node is its size
_NEVER = f"/#\"'\\`{keys.HIDDEN}"  # a path or a plugin of the site's machines, a quote, and a hidden password


def extra_of(kind: str, every: Iterable[Settings]) -> dict[str, str]:
    """The keys that all these lines have with the same value; a path or a plugin is none of them, but TmpFS."""
    first, *others = every
    return dict(
        sorted(
            _candidates(
                kind,
                {k: s.value for k, s in first.items() if all(_same(k, s.value, o) for o in others)},
                first,
            )
        )
    )


def refused(path: str) -> tuple[str, str, str] | None:
    """(part, name of the pool or partition, key) of a finding about a key of `extra`."""
    match = _REFUSED.match(path)
    return None if match is None else (match[1], match[2] or "", match[3].lower())


def _has_weights(kind: str, key: str) -> bool:
    return isinstance(slurm_values().form(kind, key, ""), Weights)


def _weighs_licence(kind: str, key: str, word: str) -> bool:
    """Whether a word weighs a licence. Slurm knows it as a TRES only by AccountingStorageTRES, where gpucluster writes GPUs."""
    return word.strip().lower().startswith("license/") and _has_weights(kind, key)


def _never(kind: str, key: str) -> set[str]:
    """The names of TRES have a slash: GRES/gpu."""
    slash = key in _OF_HOSTS or _has_weights(kind, key)
    return set(_NEVER) - {"/"} if slash else set(_NEVER)


def _same(key: str, value: str, other: Settings) -> bool:
    return key in other and other[key].value == value


def _candidates(kind: str, values: Mapping[str, str], settings: Settings) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        written = settings[key].written
        if (
            key in PLUGINS
            or key in OWNED[kind]
            or written.lower() in OWNED[kind]
            or " " in key
            or not keys.versions(kind, written)
        ):
            continue
        ours = LISTS.get(key, frozenset())
        words = [
            word
            for word in value.split(",")
            if word.partition("=")[0] not in ours and not _weighs_licence(kind, key, word)
        ]
        kept = ",".join(words)
        if _VALUE.fullmatch(kept) and not set(kept) & _never(kind, key):
            yield keys.spelled(kind, written), kept
