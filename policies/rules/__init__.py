"""The rules of gpucluster, one module a noun. To add one: its function and its Rule there, its planted mistake in tests/planted.py."""

from . import identity, launches, network, protection, storage, tags, userdata

RULES = (
    *network.RULES,
    *launches.RULES,
    *storage.RULES,
    *protection.RULES,
    *identity.RULES,
    *userdata.RULES,
    *tags.RULES,
)
