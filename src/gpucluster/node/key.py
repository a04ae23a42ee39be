"""The cluster's munge key: the head makes it at its first boot, everyone takes it from the secret.

The key is never in an argument, a log or a state file; only in memory and in names.MUNGE_KEY (0400, munge).
"""

import hashlib
import secrets

from gpucluster.node import systemd
from gpucluster.node.known import Known, of
from gpucluster.node.machine import Machine, NotYetError, StepError, Store
from gpucluster.plan import names

KEY_BYTES = 128  # what mungekey makes; munge takes 32 to 1024
OPTIONS = f"{names.AGENT_RUN}/munge.env"
SHORTEST, LONGEST = 32, 1024


def take(machine: Machine, known: Known) -> Known:
    """A node's: wait until the secret has a value, then start munge with it."""
    value = _store(machine, known).secret(_arn(known))
    if value is None:
        raise NotYetError("the head has not made the cluster's key yet")
    return _use(machine, known, value)


def make_or_take(machine: Machine, known: Known) -> Known:
    """The head's: offer a new key if there is none. Whoever offered first, all read back the one that stands."""
    store, arn = _store(machine, known), _arn(known)
    value = store.secret(arn)
    if value is None:
        # one fixed token for a secret's first value: of two heads that race, the second offer does nothing
        token = hashlib.sha256(f"gpucluster first munge key {arn}".encode()).hexdigest()
        store.offer_secret(arn, secrets.token_bytes(KEY_BYTES), token=token)
        value = store.secret(arn)
    if value is None:
        raise NotYetError("the cluster's key was offered, but the secret does not show it yet")
    return _use(machine, known, value)


def there(machine: Machine, known: Known) -> Known:
    """On a host that exists Ansible brought it; munge starts with what is there."""
    try:
        value = machine.place(names.MUNGE_KEY).read_bytes()
    except FileNotFoundError as error:
        raise StepError(f"there is no {names.MUNGE_KEY}: run the playbook again") from error
    return _use(machine, known, value)


def _store(machine: Machine, known: Known) -> Store:
    return machine.store(of(known.identity).region)


def _arn(known: Known) -> str:
    return of(of(known.bundle).bindings).secret


def _use(machine: Machine, known: Known, value: bytes) -> Known:
    if not SHORTEST <= len(value) <= LONGEST:
        raise StepError(f"the cluster's secret has {len(value)} bytes, munge takes {SHORTEST} to {LONGEST}")
    fresh_key = machine.write(names.MUNGE_KEY, value, mode=0o400, owner="munge")
    # munged takes the host's name for the sender's address, and there is none yet
    fresh_origin = machine.write(OPTIONS, f'OPTIONS="--origin={of(known.identity).address}"\n')
    systemd.ensure(machine, "munge", restart=fresh_key or fresh_origin)
    credential = machine.run(["munge", "-n"], timeout_s=10).stdout
    machine.run(["unmunge", "-o", "/dev/null"], stdin=credential, timeout_s=10)
    return known
