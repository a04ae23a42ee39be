"""The rules of gpucluster, in modules by subject. Each rule needs a planted mistake in tests/support/policy_mistakes.py."""

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
