"""The report: facts against needs, one line for each. Pure: the day is an argument."""

import datetime
from collections.abc import Callable, Iterator, Mapping

from gpucluster.catalog import Catalog
from gpucluster.doctor import needs
from gpucluster.doctor.model import (
    Facts,
    ImageFact,
    Line,
    LockFact,
    QuotaFact,
    ReservedFact,
    SubnetFact,
    Unknown,
    Verdict,
)
from gpucluster.plan.market import Market, Source
from gpucluster.plan.model import ClusterPlan, Image

# What no call that only reads can tell; said with every report.
NOT_ASKED = (
    "whether you may create what `up` creates: AWS tells only whoever tries",
    "whether capacity is there at this moment, of spot and on-demand alike",
    "what else will run against the account's quotas",
    "policies of the organization above the account",
)
_SOON = datetime.timedelta(days=30)
_LIVE_RESERVATION = frozenset({"active", "scheduled", "pending"})
_WHO, _STATE = "credentials", "Pulumi's state"
_DEAD_IMAGE = "gpucluster image build, or another `image` in the spec"


def report(plan: ClusterPlan, catalog: Catalog, facts: Facts, now: datetime.datetime) -> tuple[Line, ...]:
    """Every line, in the order in which things are needed."""
    if isinstance(facts.identity, Unknown):
        return tuple(_nobody(facts.identity, facts.lock, plan.name))
    parts: tuple[Callable[[], Iterator[Line]], ...] = (
        lambda: _identity(str(facts.identity)),
        lambda: _zones(plan, facts),
        lambda: _quotas(plan, catalog, facts),
        lambda: _offers(plan, facts),
        lambda: _addresses(plan, facts),
        lambda: _images(plan, facts, now),
        lambda: _reservations(plan, facts),
        lambda: _roles(plan, facts),
        lambda: _secrets(facts),
        lambda: _lock(facts.lock, plan.name),
        lambda: _kubernetes(plan),
    )
    return tuple(line for part in parts for line in part())


def exit_code(lines: tuple[Line, ...]) -> int:
    """2 nobody could be asked or the account told nothing, 1 something fails, 0 nothing does of what was told."""
    if any(line.what == _WHO and line.verdict is not Verdict.OK for line in lines):
        return 2
    told = [line for line in lines if line.what != _WHO and not line.what.startswith(_STATE)]
    if told and all(line.verdict is Verdict.UNKNOWN for line in told):
        return 2
    return 1 if any(line.verdict is Verdict.FAIL for line in lines) else 0


def _nobody(why: Unknown, lock: LockFact | Unknown, name: str) -> Iterator[Line]:
    yield Line(
        what=_WHO,
        verdict=Verdict.FAIL,
        found=why.why,
        expected="credentials that sts:GetCallerIdentity takes",
        next_step="aws configure, aws sso login, or AWS_PROFILE; docs/aws.md says which rights are needed",
    )
    yield Line(
        what="everything in the account",
        verdict=Verdict.UNKNOWN,
        found="nothing was asked: region, quotas, offerings, addresses, image, roles, secrets",
    )
    yield from _lock(lock, name)


def _identity(identity: str) -> Iterator[Line]:
    yield Line(what=_WHO, verdict=Verdict.OK, found=identity)


def _unknown(what: str, why: Unknown, where: str = "") -> Line:
    step = "ask whoever rules the account for that action, or check it by hand" if why.denied else ""
    return Line(what=what, verdict=Verdict.UNKNOWN, found=why.why, where=where, next_step=step)


def _zones(plan: ClusterPlan, facts: Facts) -> Iterator[Line]:
    region = needs.aws_of(plan).region
    if isinstance(facts.zones, Unknown):
        yield _unknown(f"region {region}", facts.zones)
        return
    for zone in sorted({place.zone for place in needs.places(plan)}):
        state = facts.zones.get(zone)
        good = state == "available"
        yield Line(
            what=f"zone {zone}",
            verdict=Verdict.OK if good else Verdict.FAIL,
            found=state or f"{region} has {', '.join(sorted(facts.zones)) or 'no zone'} for this account",
            expected="available",
            where="" if good else "aws.network.zones",
            next_step="" if good else "other zones in the spec; letters are each account's own",
        )


def _quotas(plan: ClusterPlan, catalog: Catalog, facts: Facts) -> Iterator[Line]:
    reserved = () if isinstance(facts.reservations, Unknown) else facts.reservations
    if isinstance(facts.reservations, Unknown):
        yield _unknown("reservations that count against quotas", facts.reservations)
    by_code: dict[str, list[needs.Share]] = {}
    for share in needs.shares(plan, catalog, reserved):
        if share.quota is None or share.vcpus is None:
            lack = "its quota" if share.quota is None else "its vCPUs"
            yield Line(
                what=f"quota of {share.machine}, {share.market}",
                verdict=Verdict.UNKNOWN,
                found=f"the catalog does not know {lack}",
                where=share.where,
                next_step="look at Service Quotas, Amazon EC2",
            )
        else:
            by_code.setdefault(share.quota.code, []).append(share)
    for code, rows in sorted(by_code.items()):
        yield _quota(code, rows, facts.quotas.get(code, Unknown("not asked")))


def _quota(code: str, rows: list[needs.Share], fact: QuotaFact | Unknown) -> Line:
    need = sum(row.vcpus or 0 for row in rows)
    parts = " + ".join(f"{r.count} x {r.machine} ({r.where})" for r in rows)
    bucket = rows[0].quota
    what = f"quota {code}, {bucket.name if bucket else ''}"
    if isinstance(fact, Unknown):
        return Line(
            what=what, verdict=Verdict.UNKNOWN, found=fact.why, expected=f"{need} vCPUs: {parts}", where=rows[0].where,
            next_step=f"aws service-quotas get-service-quota --service-code ec2 --quota-code {code}",
        )  # fmt: skip
    enough = fact.value >= need
    return Line(
        what=what,
        verdict=Verdict.OK if enough else Verdict.FAIL,
        found=f"{fact.value:g} vCPUs; what else runs in the account counts too",
        expected=f"{need} vCPUs at most: {parts}",
        where="" if enough else ", ".join(dict.fromkeys(r.where for r in rows)),
        next_step=""
        if enough
        else f"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code {code}"
        f" --desired-value {need} (days), or a smaller `nodes.max`",
    )


def _offers(plan: ClusterPlan, facts: Facts) -> Iterator[Line]:
    if isinstance(facts.offered, Unknown):
        yield _unknown("offerings by zone", facts.offered)
        return
    groups: dict[str, list[needs.Place]] = {}
    for place in needs.places(plan):
        groups.setdefault(place.where, []).append(place)
    for where, rows in groups.items():
        missing = [r for r in rows if (r.machine, r.zone) not in facts.offered]
        verdict = (
            Verdict.OK if not missing else Verdict.FAIL if len(missing) == len(rows) else Verdict.WARNING
        )
        told = ", ".join(f"{r.machine} in {r.zone}" for r in missing)
        yield Line(
            what=f"offered: {', '.join(dict.fromkeys(r.machine for r in rows))}",
            verdict=verdict,
            found=f"not offered: {told}" if missing else ", ".join(dict.fromkeys(r.zone for r in rows)),
            expected="offered in each zone",
            where=where,
            next_step="another machine or zone there; what is not offered never comes" if missing else "",
        )


def _addresses(plan: ClusterPlan, facts: Facts) -> Iterator[Line]:
    need = needs.addresses(plan)
    for subnet in needs.aws_of(plan).network.subnets:
        if subnet.id is None:
            continue  # ours: the plan cut it, and a rule of the spec's holds it large enough
        if isinstance(facts.subnets, Unknown):
            yield _unknown(f"subnet {subnet.id}", facts.subnets, "aws.network.subnets")
            continue
        fact = facts.subnets.get(subnet.id)
        wanted = need.get(subnet.zone, 0)
        complaint = _complaint(fact, subnet.zone, wanted, needs.aws_of(plan).network.vpc)
        yield Line(
            what=f"subnet {subnet.id}",
            verdict=Verdict.FAIL if complaint else Verdict.OK,
            found=complaint or f"{fact.free if fact else 0} free addresses in {subnet.zone}",
            expected=f"{wanted} free addresses at most in {subnet.zone}",
            where=f"aws.network.subnets[{subnet.zone}]" if complaint else "",
            next_step="a larger subnet, or a smaller `nodes.max`; old interfaces hold addresses, too"
            if complaint
            else "",
        )


def _complaint(fact: SubnetFact | None, zone: str, wanted: int, vpc: str | None) -> str:
    if fact is None:
        return "there is no such subnet"
    if fact.zone != zone:
        return f"it is in {fact.zone}"
    if vpc is not None and fact.vpc != vpc:
        return f"it is in {fact.vpc}, not in {vpc}"
    return f"{fact.free} free addresses" if fact.free < wanted else ""


def _images(plan: ClusterPlan, facts: Facts, now: datetime.datetime) -> Iterator[Line]:
    for key, (image, where) in sorted(needs.images(plan).items()):
        fact = facts.images.get(key, Unknown("not asked"))
        if isinstance(fact, Unknown):
            yield _unknown(f"image {key}", fact, ", ".join(where))
        else:
            yield _image(key, image, where, fact, now)


def _image(
    key: str, image: Image, where: tuple[str, ...], found: tuple[ImageFact, ...], now: datetime.datetime
) -> Line:
    newest = max(found, key=lambda i: i.created, default=None)
    if newest is None:
        step = "gpucluster image build" + (f" --os {image.os}" if image.name else "; or another id")
        return Line(what=f"image {key}", verdict=Verdict.FAIL, found="there is none", expected="one that is available",
                    where=", ".join(where), next_step=step)  # fmt: skip
    verdict, said = Verdict.OK, f"{newest.id} ({newest.name}), {newest.state}, of {newest.created}"
    if newest.state != "available":
        verdict = Verdict.FAIL
    elif newest.deprecated:
        end = _date(newest.deprecated)
        said += f", deprecated from {newest.deprecated}"
        verdict = Verdict.WARNING if end is None or end - now < _SOON else Verdict.OK
    return Line(
        what=f"image {key}",
        verdict=verdict,
        found=said,
        expected="available, and not deprecated",
        where="" if verdict is Verdict.OK else ", ".join(where),
        next_step="" if verdict is Verdict.OK else _DEAD_IMAGE,
    )


def _date(text: str) -> datetime.datetime | None:
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=datetime.UTC)


def _reservations(plan: ClusterPlan, facts: Facts) -> Iterator[Line]:
    for key, (where, source) in sorted(needs.reservations(plan).items()):
        if isinstance(facts.reservations, Unknown):
            yield _unknown(f"reservation {key}", facts.reservations, where)
            continue
        found = next((r for r in facts.reservations if r.id == key), None)
        complaint = _unfit(found, source)
        yield Line(
            what=f"reservation {key}",
            verdict=Verdict.FAIL if complaint else Verdict.OK,
            found=complaint
            or (f"{found.state}, {found.total} x {found.machine} in {found.zone}" if found else ""),
            expected=f"active or scheduled, {' or '.join(source.machines)} in {' or '.join(source.zones)}",
            where=where if complaint else "",
            next_step="the id, machine and zone that `aws ec2 describe-capacity-reservations` shows"
            if complaint
            else "",
        )


def _unfit(found: ReservedFact | None, source: Source) -> str:
    if found is None:
        return "there is none of that id in this account and region"
    if found.state not in _LIVE_RESERVATION:
        return f"it is {found.state}"
    if found.machine not in source.machines:
        return f"it holds {found.machine}"
    if found.zone not in source.zones:
        return f"it is in {found.zone}"
    if found.block is not (source.market is Market.CAPACITY_BLOCK):
        return "it is a capacity block" if found.block else "it is no capacity block"
    return ""


def _roles(plan: ClusterPlan, facts: Facts) -> Iterator[Line]:
    for role, service in sorted(needs.roles(plan).items()):
        fact = facts.roles.get(role, Unknown("not asked"))
        if isinstance(fact, Unknown):
            yield _unknown(f"service-linked role {role}", fact)
            continue
        yield Line(
            what=f"service-linked role {role}",
            verdict=Verdict.OK if fact else Verdict.FAIL,
            found="there" if fact else "there is none",
            expected="there: the head's role launches, and may not make it",
            next_step="" if fact else f"aws iam create-service-linked-role --aws-service-name {service}",
        )


def _secrets(facts: Facts) -> Iterator[Line]:
    for arn, fact in sorted(facts.secrets.items()):
        if isinstance(fact, Unknown):
            yield _unknown(f"secret {arn}", fact, "directory.secret")
            continue
        good = fact == "there"
        yield Line(
            what=f"secret {arn}",
            verdict=Verdict.OK if good else Verdict.FAIL,
            found=fact,
            expected="there, and not on its way out",
            where="" if good else "directory.secret",
            next_step="" if good else "aws secretsmanager restore-secret, or another ARN",
        )


def _lock(lock: LockFact | Unknown, name: str) -> Iterator[Line]:
    if isinstance(lock, Unknown):
        yield Line(
            what=_STATE,
            verdict=Verdict.UNKNOWN,
            found=lock.why,
            next_step="docs/aws.md, 2: a place for the state",
        )
        return
    held = ", ".join(lock.holders)
    yield Line(
        what=f"{_STATE} in {lock.backend}",
        verdict=Verdict.FAIL if held else Verdict.OK,
        found=f"locked by {held}" if held else "not locked",
        expected="not locked",
        next_step=f"wait for that run; if it is over: pulumi cancel --stack {name}" if held else "",
    )


def _kubernetes(plan: ClusterPlan) -> Iterator[Line]:
    if plan.kubernetes is not None:
        yield Line(
            what="Kubernetes' pools",
            verdict=Verdict.UNKNOWN,
            found="their nodes are Karpenter's: neither their quotas nor their offerings are added up here",
        )


def counted(lines: tuple[Line, ...]) -> Mapping[str, int]:
    """How many lines of each verdict."""
    return {verdict.value: sum(line.verdict is verdict for line in lines) for verdict in Verdict}
