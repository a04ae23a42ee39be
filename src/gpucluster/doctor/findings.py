"""The findings: facts compared with requirements, one finding for each. Pure: the time is an argument."""

import datetime
from collections.abc import Callable, Iterator, Mapping

from gpucluster.catalog import Catalog
from gpucluster.doctor import requirements
from gpucluster.doctor.facts import (
    AccountFinding,
    AccountStatus,
    AddressFact,
    DefaultKeyFact,
    Facts,
    ImageFact,
    KeyFact,
    LockFact,
    QuotaFact,
    ReservationFact,
    SubnetFact,
    Unknown,
)
from gpucluster.plan.model import AwsPlan, Image, ImageByName, SiteNetwork, eks_of
from gpucluster.plan.model.capacity import Source
from gpucluster.plan.model.values import Market

# No read-only call can check these; they are printed with every report.
NOT_CHECKED = (
    "your permission to create the resources of `pulumi up`: only `pulumi up` itself shows it",
    "free capacity at this moment, spot and on-demand",
    "what else will use the quotas of the account",
    "service control policies of the organization",
)
_SOON = datetime.timedelta(days=30)
_LIVE_RESERVATION = frozenset({"active", "scheduled", "pending"})
_BEGUN = "active"
_RESERVATION_STEP = "the id, machine and zone that `aws ec2 describe-capacity-reservations` shows"
_AFTER_ITS_START = "`pulumi up` after its start; until then, a spec without the pool"
_CREDENTIALS, _STATE = "credentials", "Pulumi's state"
_IMAGE_STEP = "gpucluster image build, or another `image` in the spec"


def report(
    plan: AwsPlan, catalog: Catalog, facts: Facts, now: datetime.datetime
) -> tuple[AccountFinding, ...]:
    """Return the findings, in the order in which a deployment needs them."""
    if isinstance(facts.identity, Unknown):
        return tuple(_no_credentials(facts.identity, facts.lock, plan.name))
    parts: tuple[Callable[[], Iterator[AccountFinding]], ...] = (
        lambda: _identity(str(facts.identity)),
        lambda: _zones(plan, facts),
        lambda: _quotas(plan, catalog, facts),
        lambda: _offers(plan, facts),
        lambda: _addresses(plan, facts),
        lambda: _fixed_addresses(plan, facts),
        lambda: _endpoints(plan, facts),
        lambda: _images(plan, facts, now),
        lambda: _reservations(plan, facts),
        lambda: _roles(plan, facts),
        lambda: _secrets(facts),
        lambda: _keys(plan, facts),
        lambda: _lock(facts.lock, plan.name),
        lambda: _kubernetes(plan),
        lambda: _creator(plan, str(facts.identity)),
    )
    return tuple(line for part in parts for line in part())


def exit_code(lines: tuple[AccountFinding, ...]) -> int:
    """Return 2 without credentials or without any answer of the account, 1 if a finding fails, else 0."""
    if any(line.what == _CREDENTIALS and line.verdict is not AccountStatus.OK for line in lines):
        return 2
    checked = [line for line in lines if line.what != _CREDENTIALS and not line.what.startswith(_STATE)]
    if checked and all(line.verdict is AccountStatus.UNKNOWN for line in checked):
        return 2
    return 1 if any(line.verdict is AccountStatus.FAIL for line in lines) else 0


def _no_credentials(unknown: Unknown, lock: LockFact | Unknown, name: str) -> Iterator[AccountFinding]:
    yield AccountFinding(
        what=_CREDENTIALS,
        verdict=AccountStatus.FAIL,
        found=unknown.reason,
        expected="valid credentials",
        next_step="aws configure, aws sso login, or AWS_PROFILE; docs/permissions.md lists the permissions",
    )
    yield AccountFinding(
        what="everything in the account",
        verdict=AccountStatus.UNKNOWN,
        found="not queried: region, quotas, offerings, addresses, image, roles, secrets",
    )
    yield from _lock(lock, name)


def _identity(identity: str) -> Iterator[AccountFinding]:
    yield AccountFinding(what=_CREDENTIALS, verdict=AccountStatus.OK, found=identity)


def _unknown(what: str, unknown: Unknown, where: str = "") -> AccountFinding:
    step = (
        "ask the administrator of the account for that action, or check it by hand" if unknown.denied else ""
    )
    return AccountFinding(
        what=what, verdict=AccountStatus.UNKNOWN, found=unknown.reason, where=where, next_step=step
    )


def _zones(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    region = plan.aws.region
    if isinstance(facts.zones, Unknown):
        yield _unknown(f"region {region}", facts.zones)
        return
    for zone in sorted({place.zone for place in requirements.placements(plan)}):
        state = facts.zones.get(zone)
        good = state == "available"
        yield AccountFinding(
            what=f"zone {zone}",
            verdict=AccountStatus.OK if good else AccountStatus.FAIL,
            found=state or f"{region} has {', '.join(sorted(facts.zones)) or 'no zone'} for this account",
            expected="available",
            where="" if good else "aws.network.zones",
            next_step="" if good else "choose other zones in the spec; zone letters differ between accounts",
        )


def _quotas(plan: AwsPlan, catalog: Catalog, facts: Facts) -> Iterator[AccountFinding]:
    reserved = () if isinstance(facts.reservations, Unknown) else facts.reservations
    if isinstance(facts.reservations, Unknown):
        yield _unknown("reservations that count against quotas", facts.reservations)
    by_code: dict[str, list[requirements.QuotaUse]] = {}
    for use in requirements.quota_uses(plan, catalog, reserved):
        if use.quota is None or use.vcpus is None:
            lack = "its quota" if use.quota is None else "its vCPUs"
            yield AccountFinding(
                what=f"quota of {use.machine}, {use.market}",
                verdict=AccountStatus.UNKNOWN,
                found=f"the catalog does not have {lack}",
                where=use.where,
                next_step="see Service Quotas, Amazon EC2, in the AWS console",
            )
        else:
            by_code.setdefault(use.quota.code, []).append(use)
    for code, rows in sorted(by_code.items()):
        yield _quota(code, rows, facts.quotas.get(code, Unknown("not queried")))


def _quota(code: str, rows: list[requirements.QuotaUse], fact: QuotaFact | Unknown) -> AccountFinding:
    need = sum(row.vcpus or 0 for row in rows)
    parts = " + ".join(f"{r.count} x {r.machine} ({r.where})" for r in rows)
    bucket = rows[0].quota
    what = f"quota {code}, {bucket.name if bucket else ''}"
    if isinstance(fact, Unknown):
        return AccountFinding(
            what=what, verdict=AccountStatus.UNKNOWN, found=fact.reason, expected=f"{need} vCPUs: {parts}", where=rows[0].where,
            next_step=f"aws service-quotas get-service-quota --service-code ec2 --quota-code {code}",
        )  # fmt: skip
    enough = fact.value >= need
    return AccountFinding(
        what=what,
        verdict=AccountStatus.OK if enough else AccountStatus.FAIL,
        found=f"{fact.value:g} vCPUs; other machines of the account count, too",
        expected=f"{need} vCPUs at most: {parts}",
        where="" if enough else ", ".join(dict.fromkeys(r.where for r in rows)),
        next_step=""
        if enough
        else f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        f" --desired-value {need} (days), or a smaller `nodes.max`",
    )


def _offers(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    if isinstance(facts.offered, Unknown):
        yield _unknown("offerings by zone", facts.offered)
        return
    groups: dict[str, list[requirements.Placement]] = {}
    for place in requirements.placements(plan):
        groups.setdefault(place.where, []).append(place)
    for where, rows in groups.items():
        missing = [r for r in rows if (r.machine, r.zone) not in facts.offered]
        verdict = (
            AccountStatus.OK
            if not missing
            else AccountStatus.FAIL
            if len(missing) == len(rows)
            else AccountStatus.WARNING
        )
        names = ", ".join(f"{r.machine} in {r.zone}" for r in missing)
        yield AccountFinding(
            what=f"offered: {', '.join(dict.fromkeys(r.machine for r in rows))}",
            verdict=verdict,
            found=f"not offered: {names}" if missing else ", ".join(dict.fromkeys(r.zone for r in rows)),
            expected="offered in each zone",
            where=where,
            next_step="choose another machine or zone; a machine that is not offered cannot launch"
            if missing
            else "",
        )


def _addresses(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    """Check only subnets of the site: a rule of the spec checks the size of ours."""
    need, network = requirements.addresses(plan), plan.aws.network
    if not isinstance(network, SiteNetwork):
        return
    for subnet in network.subnets:
        if isinstance(facts.subnets, Unknown):
            yield _unknown(f"subnet {subnet.id}", facts.subnets, "aws.network.subnets")
            continue
        fact = facts.subnets.get(subnet.id)
        wanted = need.get(subnet.zone, 0)
        fault = _subnet_fault(fact, subnet.zone, wanted, network.vpc)
        yield AccountFinding(
            what=f"subnet {subnet.id}",
            verdict=AccountStatus.FAIL if fault else AccountStatus.OK,
            found=fault or f"{fact.free if fact else 0} free addresses in {subnet.zone}",
            expected=f"{wanted} free addresses at most in {subnet.zone}",
            where=f"aws.network.subnets[{subnet.zone}]" if fault else "",
            next_step="a larger subnet, or a smaller `nodes.max`; leftover network interfaces also use addresses"
            if fault
            else "",
        )


def _endpoints(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    """Check that the caller may create the endpoints of the spec: in a shared VPC only the owner may (T50)."""
    network = plan.aws.network
    if not isinstance(network, SiteNetwork) or not network.endpoints or isinstance(facts.subnets, Unknown):
        return
    owner = next((fact.owner for fact in facts.subnets.values()), "")
    ours = owner == str(facts.identity).split(":")[4]
    yield AccountFinding(
        what=f"endpoints in {network.vpc}",
        verdict=AccountStatus.OK if ours else AccountStatus.FAIL,
        found=f"the subnets belong to the account {owner or 'unknown'}",
        expected="the account of the credentials: only the owner of a VPC can create its endpoints",
        where="" if ours else "aws.network.endpoints",
        next_step=""
        if ours
        else f"remove the field, and ask the owner for endpoints of {', '.join(network.endpoints)}",
    )


def _subnet_fault(fact: SubnetFact | None, zone: str, wanted: int, vpc: str) -> str:
    if fact is None:
        return "the subnet does not exist"
    if fact.zone != zone:
        return f"it is in {fact.zone}"
    if fact.vpc != vpc:
        return f"it is in {fact.vpc}, not in {vpc}"
    return f"{fact.free} free addresses" if fact.free < wanted else ""


def _fixed_addresses(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    """Check the fixed addresses of head and standby: an interface of another owner would end `pulumi up` (T10)."""
    for address, (where, _) in sorted(requirements.fixed_addresses(plan).items()):
        fact = facts.addresses.get(address, Unknown("not queried"))
        if isinstance(fact, Unknown):
            yield _unknown(f"address {address}", fact, where)
            continue
        verdict, found, step = _address_verdict(plan, address, fact)
        yield AccountFinding(
            what=f"address {address}",
            verdict=verdict,
            found=found,
            expected="free or of this cluster, and reserved in its subnet",
            where="" if verdict is AccountStatus.OK else where,
            next_step=step,
        )


def _address_verdict(plan: AwsPlan, address: str, fact: AddressFact) -> tuple[AccountStatus, str, str]:
    """Return verdict, what was found, and the next step."""
    if not fact.subnet:
        return AccountStatus.OK, "its subnet does not exist yet; `pulumi up` reserves it with the subnet", ""
    if fact.holder and not fact.ours:
        text = f"{fact.holder} in {fact.subnet} uses it"
        return AccountStatus.FAIL, text, "delete that interface, or write another address into the spec"
    use = f"used by this cluster: {fact.holder}" if fact.holder else "free"
    if fact.reserved:
        return AccountStatus.OK, f"{use}, reserved in {fact.subnet}", ""
    if not isinstance(plan.aws.network, SiteNetwork):
        return (
            AccountStatus.WARNING,
            f"{use}, not reserved in {fact.subnet}",
            f"pulumi up --stack {plan.name}",
        )
    step = (
        f"the owner of the VPC: aws ec2 create-subnet-cidr-reservation --subnet-id {fact.subnet}"
        f" --cidr {address}/32 --reservation-type explicit"
    )
    return AccountStatus.WARNING, f"{use}, not reserved in {fact.subnet}", step


def _images(plan: AwsPlan, facts: Facts, now: datetime.datetime) -> Iterator[AccountFinding]:
    for key, (image, where) in sorted(requirements.images(plan).items()):
        fact = facts.images.get(key, Unknown("not queried"))
        if isinstance(fact, Unknown):
            yield _unknown(f"image {key}", fact, ", ".join(where))
        else:
            yield _image(key, image, where, fact, now)


def _image(
    key: str, image: Image, where: tuple[str, ...], found: tuple[ImageFact, ...], now: datetime.datetime
) -> AccountFinding:
    newest = max(found, key=lambda i: i.created, default=None)
    if newest is None:
        step = "gpucluster image build" + (
            f" --os {image.os}" if isinstance(image, ImageByName) else "; or another id"
        )
        return AccountFinding(what=f"image {key}", verdict=AccountStatus.FAIL, found="missing", expected="one that is available",
                    where=", ".join(where), next_step=step)  # fmt: skip
    verdict, text = AccountStatus.OK, f"{newest.id} ({newest.name}), {newest.state}, of {newest.created}"
    if newest.state != "available":
        verdict = AccountStatus.FAIL
    elif newest.deprecated:
        end = _date(newest.deprecated)
        text += f", deprecated from {newest.deprecated}"
        verdict = AccountStatus.WARNING if end is None or end - now < _SOON else AccountStatus.OK
    return AccountFinding(
        what=f"image {key}",
        verdict=verdict,
        found=text,
        expected="available, and not deprecated",
        where="" if verdict is AccountStatus.OK else ", ".join(where),
        next_step="" if verdict is AccountStatus.OK else _IMAGE_STEP,
    )


def _date(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _reservations(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    at_once = requirements.needed_now(plan)
    for key, (where, source) in sorted(requirements.reservations(plan).items()):
        if isinstance(facts.reservations, Unknown):
            yield _unknown(f"reservation {key}", facts.reservations, where)
            continue
        found = next((r for r in facts.reservations if r.id == key), None)
        fault, step = _reservation_fault(found, source), _RESERVATION_STEP
        if not fault and found is not None and key in at_once and found.state != _BEGUN:
            fault, step = f"it is {found.state}, and EKS launches always-on nodes at once", _AFTER_ITS_START
        states = _BEGUN if key in at_once else "active or scheduled"
        yield AccountFinding(
            what=f"reservation {key}",
            verdict=AccountStatus.FAIL if fault else AccountStatus.OK,
            found=fault
            or (f"{found.state}, {found.total} x {found.machine} in {found.zone}" if found else ""),
            expected=f"{states}, {' or '.join(source.machines)} in {' or '.join(source.zones)}",
            where=where if fault else "",
            next_step=step if fault else "",
        )


def _reservation_fault(found: ReservationFact | None, source: Source) -> str:
    if found is None:
        return "no reservation with that id in this account and region"
    if found.state not in _LIVE_RESERVATION:
        return f"it is {found.state}"
    if found.machine not in source.machines:
        return f"it holds {found.machine}"
    if found.zone not in source.zones:
        return f"it is in {found.zone}"
    if found.block is not (source.market is Market.CAPACITY_BLOCK):
        return "it is a capacity block" if found.block else "it is not a capacity block"
    return ""


def _roles(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    for role, service in sorted(requirements.roles(plan).items()):
        fact = facts.roles.get(role, Unknown("not queried"))
        if isinstance(fact, Unknown):
            yield _unknown(f"service-linked role {role}", fact)
            continue
        yield AccountFinding(
            what=f"service-linked role {role}",
            verdict=AccountStatus.OK if fact else AccountStatus.FAIL,
            found="exists" if fact else "missing",
            expected="exists: the head's role cannot create it",
            next_step="" if fact else f"aws iam create-service-linked-role --aws-service-name {service}",
        )


def _secrets(facts: Facts) -> Iterator[AccountFinding]:
    for arn, fact in sorted(facts.secrets.items()):
        if isinstance(fact, Unknown):
            yield _unknown(f"secret {arn}", fact, "directory.secret")
            continue
        good = fact == "exists"
        yield AccountFinding(
            what=f"secret {arn}",
            verdict=AccountStatus.OK if good else AccountStatus.FAIL,
            found=fact,
            expected="exists, and not scheduled for deletion",
            where="" if good else "directory.secret",
            next_step="" if good else "aws secretsmanager restore-secret, or another ARN",
        )


def _keys(plan: AwsPlan, facts: Facts) -> Iterator[AccountFinding]:
    """Check the key of the spec, or else the account's default key: EBS uses it for volumes that name no key (T51)."""
    own = facts.key
    if own is None:
        yield _default_key(facts.default_key)
    elif isinstance(own, Unknown):
        yield _unknown(f"KMS key {plan.aws.kms_key}", own, "aws.kms_key")
    else:
        yield _own_key(own)


def _own_key(key: KeyFact) -> AccountFinding:
    good = (key.state, key.manager) == ("Enabled", "CUSTOMER")
    found = f"{key.state}, managed by {key.manager}" if key.state else "no such key in the region of the spec"
    return AccountFinding(
        what=f"KMS key {key.id}",
        verdict=AccountStatus.OK if good else AccountStatus.FAIL,
        found=found,
        expected="Enabled, managed by CUSTOMER",
        where="" if good else "aws.kms_key",
        next_step="" if good else "enable the key (aws kms enable-key), or name another one",
    )


def _default_key(fact: DefaultKeyFact | Unknown) -> AccountFinding:
    what = "default KMS key of EBS"
    if isinstance(fact, Unknown):
        return _unknown(what, fact, "aws.kms_key")
    if isinstance(fact.key, Unknown):
        return _unknown(what, fact.key, "aws.kms_key")
    always = "encrypts every volume" if fact.always else "encrypts volumes that ask for it without a key"
    own = fact.key.manager != "AWS"
    return AccountFinding(
        what=what,
        verdict=AccountStatus.FAIL if own else AccountStatus.OK,
        found=f"{fact.key.id}, managed by {fact.key.manager or 'a customer'}, {always}",
        expected="a key that AWS manages, or aws.kms_key in the spec",
        where="aws.kms_key" if own else "",
        next_step=f"write `kms_key: {fact.key.id}` under `aws`: without it the roles have no rights on the key, and every node ends at its launch"
        if own
        else "",
    )


def _lock(lock: LockFact | Unknown, name: str) -> Iterator[AccountFinding]:
    if isinstance(lock, Unknown):
        yield AccountFinding(
            what=_STATE,
            verdict=AccountStatus.UNKNOWN,
            found=lock.reason,
            next_step="docs/aws.md, 2: choose a backend for the state",
        )
        return
    holders = ", ".join(lock.holders)
    yield AccountFinding(
        what=f"{_STATE} in {lock.backend}",
        verdict=AccountStatus.FAIL if holders else AccountStatus.OK,
        found=f"locked by {holders}" if holders else "not locked",
        expected="not locked",
        next_step=f"wait for that run; if it has ended: pulumi cancel --stack {name}" if holders else "",
    )


def _kubernetes(plan: AwsPlan) -> Iterator[AccountFinding]:
    if plan.kubernetes is not None:
        yield AccountFinding(
            what="Kubernetes pools",
            verdict=AccountStatus.UNKNOWN,
            found="EKS and Karpenter launch their nodes; their quotas and offerings are not checked here",
        )


def _creator(plan: AwsPlan, identity: str) -> Iterator[AccountFinding]:
    """Warn of an access entry of the caller: EKS itself makes the one of a cluster's creator, and takes no second one."""
    plane = eks_of(plan)
    for entry in () if plane is None else plane.entries:
        if _principal(entry.principal) == _principal(identity):
            yield AccountFinding(
                what="access entry of the caller",
                verdict=AccountStatus.WARNING,
                found=f"the spec names {entry.principal}; if it creates the cluster, EKS makes that entry, and `pulumi up` fails at the second one",
                where="kubernetes.admins" if entry.admin else "kubernetes.teams",
                next_step="leave it out of the spec, or let another role run the first `pulumi up`",
            )


def _principal(arn: str) -> tuple[str, str, str]:
    """Return account, kind and name of a user or role. The ARN of a session of a role has neither `role` nor its path."""
    _, _, _, _, account, rest = arn.split(":", 5)
    kind, *names = rest.split("/")
    return (
        (account, "role", names[0]) if kind == "assumed-role" else (account, kind, names[-1] if names else "")
    )


def count_verdicts(lines: tuple[AccountFinding, ...]) -> Mapping[str, int]:
    """Return the number of findings by verdict."""
    return {verdict.value: sum(line.verdict is verdict for line in lines) for verdict in AccountStatus}
