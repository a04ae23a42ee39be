"""`extra` and `remove` of slurm, pools and partitions as settings, with the keys as Slurm's manual writes them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpucluster import catalog
from gpucluster.plan.model import SlurmSetting
from gpucluster.slurm.owned_keys import REPLACES, SITE_WIDE
from gpucluster.spec import ClusterSpec
from gpucluster.spec.part import require
from gpucluster.spec.pools import of_slurm


def settings(spec: ClusterSpec) -> tuple[SlurmSetting, ...]:
    """Return them sorted by kind, name and key."""
    slurm = require(spec.slurm)
    site_wide = {SITE_WIDE[low] for key in slurm.extra if (low := key.lower()) in SITE_WIDE}
    found = [
        *_of("slurm.conf", "", slurm.extra, slurm.remove),
        *(one for pool in of_slurm(spec) for one in _of("node", pool.name, pool.extra, pool.remove)),
        *(
            one
            for part in spec.partitions
            for one in _of("partition", part.name, part.extra, part.remove, site_wide)
        ),
    ]
    return tuple(sorted(found, key=lambda one: (one.kind, one.of, one.key.lower())))


def _of(
    kind: str, of: str, extra: Mapping[str, str], remove: Sequence[str], replaced: Iterable[str] = ()
) -> Iterator[SlurmSetting]:
    names = catalog.slurm_key_names(kind)
    given = {key.lower() for key in extra}
    for key, value in extra.items():
        yield SlurmSetting(kind=kind, of=of, key=names[key.lower()], value=value)
    ours = {REPLACES[kind, low] for low in given if (kind, low) in REPLACES}
    for low in ({key.lower() for key in remove} | ours | set(replaced)) - given:
        yield SlurmSetting(kind=kind, of=of, key=names[low], value=None)
