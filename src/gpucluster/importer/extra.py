"""Settings of a site that the spec does not model, for `extra`. The rules of the spec say which of them stay there."""

import re
from collections.abc import Iterable, Iterator, Mapping

from gpucluster.importer import keys
from gpucluster.importer.site import Settings
from gpucluster.slurm.owned_keys import LISTS, OWNED

_REFUSED = re.compile(r"(slurm|pools|partitions)(?:\[.*\])?\.extra\.'?([A-Za-z0-9_]+)'?")
_VALUE = re.compile(r"[!-~]{1,1000}")
_PLUGINS = frozenset(
    ("mpidefault", "jobsubmitplugins", "clifilterplugins", "debugflags")
)  # the check of rendered keys refuses values that `extra` takes
_NEVER = "/#\"'\\`…"  # a path or a plugin of the site's machines, a quote, and a hidden password


def extra_of(kind: str, every: Iterable[Settings]) -> dict[str, str]:
    """The keys that all these lines have with the same value; a path or a plugin is none of them."""
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


def refused(paths: Iterable[str]) -> frozenset[tuple[str, str]]:
    """(part, key) of each finding about a key of `extra`."""
    return frozenset((m[1], m[2].lower()) for path in paths if (m := _REFUSED.match(path)))


def _same(key: str, value: str, other: Settings) -> bool:
    return key in other and other[key].value == value


def _candidates(kind: str, values: Mapping[str, str], settings: Settings) -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        written = settings[key].written
        if (
            key in _PLUGINS
            or key in OWNED[kind]
            or written.lower() in OWNED[kind]
            or " " in key
            or not keys.versions(kind, written)
        ):
            continue
        ours = LISTS.get(key, frozenset())
        words = [word for word in value.split(",") if word.partition("=")[0] not in ours]
        kept = ",".join(words)
        if _VALUE.fullmatch(kept) and not set(kept) & set(_NEVER):
            yield keys.spelled(kind, written), kept
