"""IAM policies of the operator: a plan role that only reads, an apply role that also changes, and a boundary for the machines' roles.

The actions come from the resource types that the program declares (`catalog/calls.py`). This module limits each action to
resources by tag, name, region or id, as far as IAM can. The account is `*` in each ARN: such a policy acts in its own account
only, and subnets of a shared VPC belong to another one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpucluster.aws import operator_eks
from gpucluster.aws.operator_statements import allow
from gpucluster.catalog.calls import CallFacts, call_facts
from gpucluster.cloud.run_command import DOCUMENT
from gpucluster.errors import GpuclusterError
from gpucluster.plan.iam_policies import VOLUME_KEY, Statement
from gpucluster.plan.model import (
    AwsPlan,
    Efs,
    FsxLustre,
    SiteEfs,
    SiteLustre,
    SiteNetwork,
    SlurmOnAws,
    eks_of,
)
from gpucluster.plan.model.aws import OwnNetwork
from gpucluster.plan.names import BUNDLE_KEY, COMMAND_OUTPUT, PROFILE_ROLES, ROLE_JOBS, TAG_CLUSTER
from gpucluster.plan.store_policies import PATTERNS

if TYPE_CHECKING:
    from gpucluster.engine.offline import Planned

SUFFIX = "-???????"  # Pulumi adds a dash and seven characters to each name that the program leaves open
ROLE, PROFILE, RULE = (
    "aws:iam/role:Role",
    "aws:iam/instanceProfile:InstanceProfile",
    "aws:cloudwatch/eventRule:EventRule",
)
EFS, LUSTRE = "aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem"
LINK = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
_NAMED = (ROLE, PROFILE, "aws:sqs/queue:Queue")
_TAG = "ec2:CreateTags"

# Queries of `gpucluster doctor` that read nothing of the program's own resources.
DOCTOR = (
    "ec2:DescribeAvailabilityZones",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypeOfferings",
    "ec2:DescribeNetworkInterfaces",
    "ec2:DescribeSubnets",
    "ec2:GetEbsDefaultKmsKeyId",
    "ec2:GetEbsEncryptionByDefault",
    "ec2:GetSubnetCidrReservations",
    "servicequotas:GetServiceQuota",
)
# Lists of EC2 that `gpucluster validate` compares with the plan; these calls have no narrower resource.
VALIDATE = (
    "ec2:DescribeAddresses",
    "ec2:DescribeImages",
    "ec2:DescribeLaunchTemplateVersions",
    "ec2:DescribeSecurityGroupRules",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:DescribeVolumes",
    "ec2:DescribeVpcEndpoints",
)
# The same of the cluster's own VPC.
VALIDATE_VPC = ("ec2:DescribeNatGateways", "ec2:DescribeNetworkAcls", "ec2:DescribeRouteTables")
# `gpucluster down` terminates the nodes, which no program declares, and lists what else is in their network.
DOWN = ("ec2:DescribeInstances", "ec2:DescribeNetworkInterfaces", "ec2:TerminateInstances")

# EC2: action -> kind of the resource that it creates with the cluster's tag
MADE: Mapping[str, tuple[str, ...]] = {
    "ec2:AllocateAddress": ("elastic-ip",),
    "ec2:AuthorizeSecurityGroupEgress": ("security-group-rule",),
    "ec2:AuthorizeSecurityGroupIngress": ("security-group-rule",),
    "ec2:CreateInternetGateway": ("internet-gateway",),
    "ec2:CreateLaunchTemplate": ("launch-template",),
    "ec2:CreateNatGateway": ("natgateway",),
    "ec2:CreatePlacementGroup": ("placement-group",),
    "ec2:CreateRouteTable": ("route-table",),
    "ec2:CreateSecurityGroup": ("security-group",),
    "ec2:CreateSubnet": ("subnet",),
    "ec2:CreateVolume": ("volume",),
    "ec2:CreateVpc": ("vpc",),
    "ec2:CreateVpcEndpoint": ("vpc-endpoint",),
    "ec2:RunInstances": ("instance", "volume"),
}
# EC2: action -> kinds of existing resources of the cluster
OWN: Mapping[str, tuple[str, ...]] = {
    "ec2:AssociateAddress": ("elastic-ip", "instance"),
    "ec2:AssociateIamInstanceProfile": ("instance",),
    "ec2:AssociateRouteTable": ("route-table", "subnet"),
    "ec2:AttachInternetGateway": ("internet-gateway", "vpc"),
    "ec2:AttachVolume": ("instance", "volume"),
    "ec2:AuthorizeSecurityGroupEgress": ("security-group",),
    "ec2:AuthorizeSecurityGroupIngress": ("security-group",),
    "ec2:CreateLaunchTemplateVersion": ("launch-template",),
    "ec2:CreateNatGateway": ("elastic-ip", "subnet"),
    "ec2:CreateNetworkInterface": ("security-group", "subnet"),
    "ec2:CreateRoute": ("route-table",),
    "ec2:CreateRouteTable": ("vpc",),
    "ec2:CreateSecurityGroup": ("vpc",),
    "ec2:CreateSubnet": ("vpc",),
    "ec2:CreateSubnetCidrReservation": ("subnet",),
    "ec2:CreateVpcEndpoint": ("route-table", "security-group", "subnet", "vpc"),
    "ec2:DeleteInternetGateway": ("internet-gateway",),
    "ec2:DeleteLaunchTemplate": ("launch-template",),
    "ec2:DeleteNatGateway": ("natgateway",),
    "ec2:DeletePlacementGroup": ("placement-group",),
    "ec2:DeleteRoute": ("route-table",),
    "ec2:DeleteRouteTable": ("route-table",),
    "ec2:DeleteSecurityGroup": ("security-group",),
    "ec2:DeleteSubnet": ("subnet",),
    "ec2:DeleteVolume": ("volume",),
    "ec2:DeleteVpc": ("vpc",),
    "ec2:DeleteVpcEndpoints": ("vpc-endpoint",),
    "ec2:DescribeInstanceAttribute": ("instance",),
    "ec2:DescribeVpcAttribute": ("vpc",),
    "ec2:DetachInternetGateway": ("internet-gateway", "vpc"),
    "ec2:DetachVolume": ("instance", "volume"),
    "ec2:DisassociateAddress": ("elastic-ip",),
    "ec2:DisassociateIamInstanceProfile": ("instance",),
    "ec2:DisassociateRouteTable": ("route-table", "subnet"),
    "ec2:GetSecurityGroupsForVpc": ("vpc",),
    "ec2:ModifyInstanceAttribute": ("instance", "security-group"),
    "ec2:ModifyInstanceMetadataOptions": ("instance",),
    "ec2:ModifyLaunchTemplate": ("launch-template",),
    "ec2:ModifyNetworkInterfaceAttribute": ("security-group",),
    "ec2:ModifySecurityGroupRules": ("security-group", "security-group-rule"),
    "ec2:ModifySubnetAttribute": ("subnet",),
    "ec2:ModifyVolume": ("volume",),
    "ec2:ModifyVpcAttribute": ("vpc",),
    "ec2:ModifyVpcEndpoint": ("route-table", "security-group", "subnet", "vpc-endpoint"),
    "ec2:ModifyVpcTenancy": ("vpc",),
    "ec2:ReleaseAddress": ("elastic-ip",),
    "ec2:ReplaceIamInstanceProfileAssociation": ("instance",),
    "ec2:ReplaceRoute": ("route-table",),
    "ec2:ReplaceRouteTableAssociation": ("route-table", "subnet"),
    "ec2:RevokeSecurityGroupEgress": ("security-group",),
    "ec2:RevokeSecurityGroupIngress": ("security-group",),
    "ec2:RunInstances": ("security-group", "subnet"),
    "ec2:StartInstances": ("instance",),
    "ec2:StopInstances": ("instance",),
    "ec2:TerminateInstances": ("instance",),
}
# EC2: action -> kinds of resources that cannot be limited by the tag of the cluster. Interfaces of instances and of EFS have no
# tag at their creation, and the id of an image by name is known only to `pulumi up`. Interfaces that exist are limited to the
# subnets of a site's VPC, whose ids the spec has. The other call has no such condition key (service authorization reference).
FREE: Mapping[str, tuple[str, ...]] = {
    "ec2:AssociateAddress": ("network-interface",),
    "ec2:CreateNetworkInterface": ("network-interface",),
    "ec2:DeleteNetworkInterface": ("network-interface",),
    "ec2:DisassociateAddress": ("network-interface",),
    "ec2:ModifyNetworkInterfaceAttribute": ("network-interface",),
    "ec2:RunInstances": ("image", "network-interface"),
}
_INTERFACE = "network-interface"
_RETAG = ("ec2:CreateTags", "ec2:DeleteTags")
_OBJECTS = frozenset(
    {
        *("s3:DeleteObject", "s3:DeleteObjectVersion", "s3:GetObject", "s3:GetObjectTagging"),
        *("s3:PutObject", "s3:PutObjectTagging"),
    }
)
_CHANGES_BOUND = frozenset({"iam:CreateRole", "iam:DeleteRolePolicy", "iam:PutRolePolicy"})
_BOUNDARY_CALLS = frozenset({"iam:PutRolePermissionsBoundary", "iam:DeleteRolePermissionsBoundary"})
_SPECIAL = frozenset(
    {"iam:AttachRolePolicy", "iam:CreateServiceLinkedRole", "iam:DetachRolePolicy", "iam:PassRole"}
)
_LINKED = {
    **operator_eks.LINKED,
    EFS: ("elasticfilesystem.amazonaws.com", "AWSServiceRoleForAmazonElasticFileSystem"),
    LUSTRE: ("fsx.amazonaws.com", "AWSServiceRoleForAmazonFSx"),
    LINK: (
        "s3.data-source.lustre.fsx.amazonaws.com",
        "AWSServiceRoleForFSxS3Access_*",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBackend:
    """Where Pulumi keeps its state: a bucket, with a folder or none, and the KMS key of its secrets (ARN or alias)."""

    bucket: str
    folder: str = ""
    key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorScope:
    """The resources of the policies: declared types with the names of their resources, and look-ups."""

    plan: AwsPlan
    declared: Mapping[str, Sequence[str]]  # type -> logical names
    # type and logical name -> the name in AWS, where the program sets it
    fixed: Mapping[tuple[str, str], str]
    attached: Sequence[str]  # ARNs of AWS's own policies
    lookups: Sequence[str]  # data sources
    state: StateBackend | None = None


def scope_of(plan: AwsPlan, planned: "Planned", state: StateBackend | None) -> OperatorScope:
    """Return the scope of a planned program."""
    declared: dict[str, list[str]] = {}
    fixed: dict[tuple[str, str], str] = {}
    attached: list[str] = []
    for one in planned.resources:
        if one.type.startswith("aws:"):
            declared.setdefault(one.type, []).append(one.name)
        if one.type in _NAMED and isinstance(name := one.properties.get("name"), str):
            fixed[one.type, one.name] = name
        if one.type == ATTACHMENT:
            attached.append(str(one.properties["policyArn"]))
    lookups = sorted({one.token for one in planned.lookups} & call_facts().lookups.keys())
    return OperatorScope(
        plan=plan, declared=declared, fixed=fixed, attached=attached, lookups=lookups, state=state
    )


def plan_statements(scope: OperatorScope) -> list[Statement]:
    """Return the rights of `pulumi preview --refresh`, `doctor`, `plan --live`: only reads, also of the state."""
    rights = _Rights(scope)
    return [*rights.of(_reads(scope)), *rights.doctor(), *rights.key(writes=False), *_state(scope, writes=False)]  # fmt: skip


def apply_statements(scope: OperatorScope) -> list[Statement]:
    """Return the rights of `pulumi up`, `refresh`, `destroy`, `gpucluster down` and those of the plan role."""
    rights = _Rights(scope)
    actions = _reads(scope) | _writes(scope)
    return [
        *rights.of(actions),
        *rights.tag_at_creation(),
        *rights.retag(),
        *rights.roles(),
        *rights.doctor(),
        *rights.key(writes=True),
        *_state(scope, writes=True),
    ]


def command_statements(scope: OperatorScope) -> list[Statement]:
    """Return the rights of `status`, `why`, `timeline`, `pool`, `node`, `reconcile`, `accounts`, `logs`, `exec` and `validate` by Systems Manager.

    A command runs as root. SendCommand is limited to the machines of the cluster: root on the head is root on the others, too.
    The document is AWS's own, which has no account. `validate` reads the published bundle.
    """
    plan, region = scope.plan, scope.plan.aws.region
    if not isinstance(plan, SlurmOnAws) or not plan.access.ssm:
        raise GpuclusterError(
            f"{plan.name} has no commands by Systems Manager",
            next_step="write `access: {ssm: true}` in the spec",
        )
    of_cluster = {f"ssm:resourceTag/{TAG_CLUSTER}": plan.name}
    own = {f"aws:ResourceTag/{TAG_CLUSTER}": plan.name}
    machines = f"arn:aws:ec2:{region}:*:instance/*"
    bucket = f"arn:aws:s3:::{plan.name}{SUFFIX}"
    output = {"StringLike": {"s3:prefix": f"{COMMAND_OUTPUT}/*"}}
    send = ["ssm:SendCommand"]
    return [
        *allow("Find", ["ec2:DescribeInstances"], ["*"]),
        *allow("UserData", ["ec2:DescribeInstanceAttribute"], [machines], {"StringEquals": own}),
        *allow("SendToMachines", send, [machines], {"StringEquals": of_cluster}),
        *allow("SendScript", send, [f"arn:aws:ssm:{region}::document/{DOCUMENT}", bucket]),
        # these calls have no narrower resource
        *allow("Results", ["ssm:DescribeInstanceInformation", "ssm:GetCommandInvocation"], ["*"]),
        *allow("Bundle", ["s3:GetObject"], [f"{bucket}/{BUNDLE_KEY}"]),
        *allow("ListOutput", ["s3:ListBucketVersions"], [bucket], output),
        *allow("Output", ["s3:DeleteObjectVersion", "s3:GetObject"], [f"{bucket}/{COMMAND_OUTPUT}/*"]),
        *_Rights(scope).key_use(writes=False),
        *_validate_statements(plan),
    ]


def _validate_statements(plan: SlurmOnAws) -> Iterator[Statement]:
    """Yield what `validate` reads of the cloud beside the machines: `validate/cloud_reader.py`, `network_reader.py`, `store_reader.py`."""
    region, sources = plan.aws.region, [mount.source for mount in plan.storage]
    own_vpc = isinstance(plan.aws.network, OwnNetwork)
    yield from allow("ValidateLists", [*VALIDATE, *(VALIDATE_VPC if own_vpc else ())], ["*"])
    if own_vpc:
        own = {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": plan.name}}
        yield from allow("ValidateVpc", ["ec2:DescribeVpcAttribute"], [f"arn:aws:ec2:{region}:*:vpc/*"], own)
    bucket = [
        *("s3:GetBucketPolicy", "s3:GetBucketPublicAccessBlock"),
        *("s3:GetBucketVersioning", "s3:GetEncryptionConfiguration", "s3:GetLifecycleConfiguration"),
    ]
    if plan.aws.kms_key is not None:
        arn, when = _key(plan.aws.kms_key, region)
        yield from allow("ValidateKey", ["kms:DescribeKey"], [arn], when)
    yield from allow("ValidateBucket", bucket, [f"arn:aws:s3:::{plan.name}{SUFFIX}"])
    queue = f"arn:aws:sqs:{region}:*:{plan.name}-events{SUFFIX}"
    yield from allow("ValidateQueue", ["sqs:GetQueueAttributes"], [queue])
    rules = [f"arn:aws:events:{region}:*:rule/{plan.name}-{name}{SUFFIX}" for name in PATTERNS]
    yield from allow("ValidateRules", ["events:DescribeRule", "events:ListTargetsByRule"], rules)
    secret = f"arn:aws:secretsmanager:{region}:*:secret:{plan.name}-munge{SUFFIX}-??????"
    calls = ["secretsmanager:DescribeSecret", "secretsmanager:GetResourcePolicy"]
    yield from allow("ValidateSecret", calls, [secret])
    profiles = [f"arn:aws:iam::*:instance-profile/{plan.name}-{role}{SUFFIX}" for role in PROFILE_ROLES]
    yield from allow("ValidateProfiles", ["iam:GetInstanceProfile"], profiles)
    of_jobs = () if plan.aws.jobs is None else (ROLE_JOBS,)
    roles = [f"arn:aws:iam::*:role/{plan.name}-{role}{SUFFIX}" for role in (*PROFILE_ROLES, *of_jobs)]
    calls = [
        *("iam:GetRole", "iam:GetRolePolicy"),
        *("iam:ListAttachedRolePolicies", "iam:ListRolePolicies"),
    ]
    yield from allow("ValidateRoles", calls, roles)
    if any(isinstance(source, Efs | SiteEfs) for source in sources):
        names = ("DescribeFileSystemPolicy", "DescribeFileSystems", "DescribeMountTargets")
        arn = f"arn:aws:elasticfilesystem:{region}:*:file-system/*"
        yield from allow("ValidateEfs", [f"elasticfilesystem:{name}" for name in names], [arn])
    if any(isinstance(source, FsxLustre | SiteLustre) for source in sources):
        yield from allow("ValidateLustre", ["fsx:DescribeFileSystems"], ["*"])


def _reads(scope: OperatorScope) -> frozenset[str]:
    facts = call_facts()
    of_types = {a for token in scope.declared for a in facts.types[token].read}
    return frozenset(of_types | {a for token in scope.lookups for a in facts.lookups[token]} | {*DOCTOR})


def _writes(scope: OperatorScope) -> frozenset[str]:
    facts = call_facts()
    rows = [facts.types[token] for token in scope.declared]
    return frozenset(a for row in rows for a in (*row.create, *row.update, *row.delete)) | {*DOWN}


class _Rights:
    """Turns actions into statements, one for each group of resources with one condition."""

    def __init__(self, scope: OperatorScope) -> None:
        self._scope, self._plan = scope, scope.plan
        self._region, self._facts = scope.plan.aws.region, call_facts()

    def of(self, actions: frozenset[str]) -> Iterator[Statement]:
        """Yield statements for all actions but those of tags, roles of services and keys."""
        eks = frozenset(a for a in actions if a.partition(":")[0] in operator_eks.SERVICES)
        known = actions - {*_RETAG} - _SPECIAL - eks
        plain = {a for a in known if not self._facts.kinds[a]} | (known & {"servicequotas:GetServiceQuota"})
        created = known & {"elasticfilesystem:CreateFileSystem"}
        regional = {a for a in plain if a.startswith("ec2:Delete")}
        yield from allow("Read", plain - created - regional, ["*"])
        # The call names no resource but a random id.
        yield from allow("Reservations", regional, ["*"], {"StringEquals": {"aws:RequestedRegion": self._region}})  # fmt: skip
        yield from self._ec2({a for a in known if a.startswith("ec2:")})
        yield from self._named(known - plain)
        yield from self._file_systems(known, created)
        yield from operator_eks.statements(self._plan.name, self._region, self._scope.declared, eks)

    # --- EC2 -----------------------------------------------------------------------------------
    def _ec2(self, actions: set[str]) -> Iterator[Statement]:
        for sid, table, when in (("Make", MADE, self._requested()), ("Own", OWN, self._tagged()), ("Any", FREE, None)):  # fmt: skip
            groups: dict[str, set[str]] = {}
            for action in actions & table.keys():
                for kind in table[action]:
                    groups.setdefault(kind, set()).add(action)
            for kind, found in sorted(groups.items()):
                arns, condition = self._place(kind, when) if sid == "Own" else ([self._ec2_arn(kind)], when)
                if (sid, kind) == ("Any", _INTERFACE):
                    yield from self._interfaces(found)
                else:
                    yield from allow(sid + _word(kind), found, arns, condition)

    def _interfaces(self, found: set[str]) -> Iterator[Statement]:
        network, arns = self._plan.aws.network, [self._ec2_arn(_INTERFACE)]
        if not isinstance(network, SiteNetwork):
            yield from allow("AnyNetworkInterface", found, arns)
            return
        made = found & {"ec2:CreateNetworkInterface"}
        subnets = [self._ec2_arn("subnet", one) for one in _subnet_ids(network)]
        yield from allow("MakeNetworkInterface", made, arns)
        yield from allow("OwnNetworkInterface", found - made, arns, {"ArnLike": {"ec2:Subnet": subnets}})

    def _place(self, kind: str, when: Statement | None) -> tuple[list[str], Statement | None]:
        """Return where existing resources are: by tag, or by id in the VPC of a site, which has no tag of ours."""
        network = self._plan.aws.network
        if not isinstance(network, SiteNetwork) or kind not in ("vpc", "subnet"):
            return [self._ec2_arn(kind)], when
        ids = [network.vpc] if kind == "vpc" else _subnet_ids(network)
        return [self._ec2_arn(kind, one) for one in ids], None

    def tag_at_creation(self) -> Iterator[Statement]:
        """Allow tags at creation: a resource of another owner gets no tag of this cluster."""
        actions = _writes(self._scope)
        kinds = {kind for action in actions & MADE.keys() for kind in MADE[action]}
        calls = sorted({action.removeprefix("ec2:") for action in actions & MADE.keys()})
        when = {"StringEquals": {**self._requested()["StringEquals"], "ec2:CreateAction": calls}}
        yield from allow("TagAtCreation", [_TAG], [self._ec2_arn(k) for k in sorted(kinds)], when)

    def retag(self) -> Iterator[Statement]:
        actions = _writes(self._scope)
        kinds = {kind for action in actions & MADE.keys() for kind in MADE[action]}
        yield from allow("Retag", _RETAG, [self._ec2_arn(k) for k in sorted(kinds)], self._tagged())

    # --- services with names ---------------------------------------------------------------------
    def _named(self, actions: set[str] | frozenset[str]) -> Iterator[Statement]:
        bound = self._plan.aws.boundary
        groups: dict[tuple[str, str], set[str]] = {}
        for action in actions:
            if action.partition(":")[0] in ("ec2", "elasticfilesystem", "fsx", "servicequotas"):
                continue
            if action in _BOUNDARY_CALLS and (
                bound is None or action.endswith(":DeleteRolePermissionsBoundary")
            ):
                continue  # without a boundary there is nothing to set, and no one may remove it
            key = _kind(action), "bound" if bound and action in _CHANGES_BOUND | _BOUNDARY_CALLS else ""
            groups.setdefault(key, set()).add(action)
        for (kind, limit), found in sorted(groups.items()):
            when = {"StringEquals": {"iam:PermissionsBoundary": bound}} if limit else None
            sid = f"Own{_word(kind)}{_word(limit) if limit else ''}"
            yield from allow(sid, found, self._arns(kind), when)

    def _arns(self, kind: str) -> list[str]:
        """Return the ARNs of the program's resources: their names with the characters that Pulumi adds."""
        region = self._region
        forms = {
            "role": (ROLE, "arn:aws:iam::*:role/{}"),
            "instance-profile": (PROFILE, "arn:aws:iam::*:instance-profile/{}"),
            "bucket": ("aws:s3/bucket:Bucket", "arn:aws:s3:::{}"),
            "object": ("aws:s3/bucket:Bucket", "arn:aws:s3:::{}/*"),
            "secret": (
                "aws:secretsmanager/secret:Secret",
                f"arn:aws:secretsmanager:{region}:*:secret:{{}}-??????",
            ),
            "queue": ("aws:sqs/queue:Queue", f"arn:aws:sqs:{region}:*:{{}}"),
            "rule": (RULE, f"arn:aws:events:{region}:*:rule/{{}}"),
            "budget": ("aws:budgets/budget:Budget", "arn:aws:budgets::*:budget/{}"),
        }
        fixed = {
            "billing-view": "arn:aws:billing::*:billingview/*",
            "hosted-zone": "arn:aws:route53:::hostedzone/*",
        }
        if kind in fixed:  # AWS's own: of the account, and of the private names of endpoints
            return [fixed[kind]]
        token, form = forms[kind]
        return [form.format(name) for name in sorted(self._names(token).values())]

    def _names(self, token: str) -> Mapping[str, str]:
        """Logical name -> the name in AWS: the one that the program sets, or the logical one with what Pulumi adds."""
        known = self._scope.fixed
        return {one: known.get((token, one), one + SUFFIX) for one in self._scope.declared.get(token, ())}

    # --- EFS and FSx -----------------------------------------------------------------------------
    def _file_systems(self, actions: frozenset[str], created: frozenset[str]) -> Iterator[Statement]:
        requested, tagged = self._requested(), self._tagged()
        efs = {
            k: f"arn:aws:elasticfilesystem:{self._region}:*:{k}/*" for k in ("access-point", "file-system")
        }
        fsx = {k: f"arn:aws:fsx:{self._region}:*:{k}/*" for k in ("association", "file-system")}
        fsx["association"] += "/*"  # its name is that of its file system, and its own
        yield from allow("MakeEfs", created, ["*"], requested)
        for prefix, arns, word in (("elasticfilesystem", efs, "Efs"), ("fsx", fsx, "Fsx")):
            of = {a for a in actions if a.startswith(f"{prefix}:") and self._facts.kinds[a]}
            new = of & {"fsx:CreateFileSystem", "fsx:CreateDataRepositoryAssociation"}
            for kind, arn in arns.items():
                fits = {a for a in of - new if kind in self._facts.kinds[a]}
                # What is deleted has no tag any more, and a deletion waits until the resource is not found.
                reads = {a for a in fits if a.partition(":")[2].startswith("Describe")}
                yield from allow(f"Read{word}{_word(kind)}", reads, [arn])
                yield from allow(f"Own{word}{_word(kind)}", fits - reads, [arn], tagged)
                made = {a for a in new if kind in self._facts.kinds[a]}
                own = made - ({"fsx:CreateFileSystem"} if kind == "file-system" else made)
                yield from allow(f"Make{word}{_word(kind)}", made - own, [arn], requested)
                yield from allow(f"Link{word}", own, [arn], tagged)
        yield from self._tag_file_systems(actions, [*efs.values()], [*fsx.values()])
        yield from self._site_file_systems()

    def _site_file_systems(self) -> Iterator[Statement]:
        """Allow to look up the file systems that the spec names by id: they have no tag of the cluster."""
        sources = [mount.source for mount in self._plan.storage]
        efs = sorted({source.id for source in sources if isinstance(source, SiteEfs)})
        fsx = sorted({source.id for source in sources if isinstance(source, SiteLustre)})
        for word, service, ids in (("Efs", "elasticfilesystem", efs), ("Lustre", "fsx", fsx)):
            reads = {a for token in self._scope.lookups for a in self._facts.lookups[token]}
            named = {a for a in reads if a.startswith(f"{service}:") and self._facts.kinds[a]}
            arns = [f"arn:aws:{service}:{self._region}:*:file-system/{one}" for one in ids]
            yield from allow(f"Site{word}", named, arns)

    def _tag_file_systems(
        self, actions: frozenset[str], efs: Sequence[str], fsx: Sequence[str]
    ) -> Iterator[Statement]:
        """Allow tags at creation. FSx sends no key for that: its statement also fits a file system without our tag."""
        requested = self._requested()["StringEquals"]
        calls = ["CreateAccessPoint", "CreateFileSystem"]
        at_creation = {"StringEquals": {**requested, "elasticfilesystem:CreateAction": calls}}
        yield from allow("TagEfsAtCreation", actions & {"elasticfilesystem:TagResource"}, efs, at_creation)
        yield from allow("TagFsx", actions & {"fsx:TagResource"}, fsx, {"StringEquals": requested})

    # --- roles -----------------------------------------------------------------------------------
    def roles(self) -> Iterator[Statement]:
        """Yield the right to pass roles to the services that take them, to attach AWS's policies, and to create the roles of services."""
        every = {one: f"arn:aws:iam::*:role/{name}" for one, name in self._names(ROLE).items()}
        profiles = {*self._scope.declared.get(PROFILE, ())}
        machines = {one: arn for one, arn in every.items() if one in profiles}
        to_ec2 = {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}}
        yield from allow(
            "PassMachines", ["iam:PassRole"], [machines[one] for one in sorted(machines)], to_ec2
        )
        if operator_eks.CLUSTER in self._scope.declared:
            yield from operator_eks.passed(
                self._plan.name, {k: v for k, v in every.items() if k not in profiles}
            )
            yield from operator_eks.attached(sorted(every.values()), self._scope.attached)
            groups = () if (plane := eks_of(self._plan)) is None else plane.groups
            reserved = sorted({one.reservation for one in groups if one.reservation is not None})
            yield from operator_eks.launches(self._plan.name, self._region, reserved)
        for token, (service, role) in _LINKED.items():
            if token in self._scope.declared:
                arn = f"arn:aws:iam::*:role/aws-service-role/{service}/{role}"
                named = {"StringLike": {"iam:AWSServiceName": service}}
                yield from allow(f"Service{_word(token.rpartition(':')[2])}", ["iam:CreateServiceLinkedRole"], [arn], named)  # fmt: skip
                if token == LINK:
                    yield from allow("ServicePolicy", ["iam:AttachRolePolicy", "iam:PutRolePolicy"], [arn])

    # --- account checks and keys ------------------------------------------------------------------
    def doctor(self) -> Iterator[Statement]:
        """Yield what `gpucluster doctor` reads by name: roles of services, and the secret of the directory."""
        arn = "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
        yield from allow("DoctorRoles", ["iam:GetRole"], [arn])
        directory = self._plan.directory if isinstance(self._plan, SlurmOnAws) else None
        if directory is not None and directory.secret is not None:
            yield from allow("DoctorSecret", ["secretsmanager:DescribeSecret"], [directory.secret])

    def key(self, *, writes: bool) -> Iterator[Statement]:
        """Yield the rights on the key of the spec: to look it up, and to use it."""
        if self._plan.aws.kms_key is not None:
            arn, when = _key(self._plan.aws.kms_key, self._region)
            yield from allow("KeyRead", ["kms:DescribeKey"], [arn], when)
            yield from self.key_use(writes=writes)

    def key_use(self, *, writes: bool) -> Iterator[Statement]:
        """Yield the rights to use the key of the spec: only through the services that use it."""
        named = self._plan.aws.kms_key
        if named is None:
            return
        arn, when = _key(named, self._region)
        services = ["s3", *(["ec2", "elasticfilesystem", "fsx", "secretsmanager"] if writes else [])]
        services += ["eks"] if writes and eks_of(self._plan) is not None else []
        via = {"kms:ViaService": [f"{one}.{self._region}.amazonaws.com" for one in sorted(services)]}
        actions = {*VOLUME_KEY, "kms:GenerateDataKey"} if writes else {"kms:Decrypt"}
        yield from allow("KeyUse", actions, [arn], _merged(when, {"StringEquals": via}))
        if writes:
            granted = {"StringEquals": via, "Bool": {"kms:GrantIsForAWSResource": "true"}}
            yield from allow("KeyGrant", ["kms:CreateGrant"], [arn], _merged(when, granted))

    def _requested(self) -> Statement:
        return {"StringEquals": {f"aws:RequestTag/{TAG_CLUSTER}": self._plan.name}}

    def _tagged(self) -> Statement:
        return {"StringEquals": {f"aws:ResourceTag/{TAG_CLUSTER}": self._plan.name}}

    def _ec2_arn(self, kind: str, name: str = "*") -> str:
        account = "" if kind == "image" else "*"
        return f"arn:aws:ec2:{self._region}:{account}:{kind}/{name}"


def _key(named: str, region: str) -> tuple[str, Statement | None]:
    """Return the ARN of a key, and for an alias a condition: a policy cannot name an alias as resource."""
    if ":key/" in named:
        return named, None
    alias = named[named.find("alias/") :]
    account = named.split(":")[4] if named.startswith("arn:") else "*"
    return f"arn:aws:kms:{region}:{account}:key/*", {
        "ForAnyValue:StringEquals": {"kms:ResourceAliases": alias}
    }


def _state(scope: OperatorScope, *, writes: bool) -> Iterator[Statement]:
    """Yield the rights on Pulumi's state. A preview takes no lock, so it writes nothing."""
    state = scope.state
    if state is None:
        return
    folder = f"{state.folder.strip('/')}/" if state.folder.strip("/") else ""
    bucket = f"arn:aws:s3:::{state.bucket}"
    objects = ["s3:GetObject", *(["s3:DeleteObject", "s3:PutObject"] if writes else [])]
    yield from allow("StateList", ["s3:ListBucket"], [bucket])
    yield from allow("State", objects, [f"{bucket}/{folder}.pulumi/*"])
    if state.key is not None:
        arn, when = _key(state.key, scope.plan.aws.region)
        yield from allow("StateKey", ["kms:Decrypt", *(["kms:Encrypt"] if writes else [])], [arn], when)


def _merged(first: Statement | None, second: Statement) -> Statement:
    return {**(first or {}), **second}


def _subnet_ids(network: SiteNetwork) -> list[str]:
    every = [one for span in network.subnets for one in (span.id, span.public_id) if one is not None]
    return sorted(set(every))


def _kind(action: str) -> str:
    """Return the kind of resource of an action with a name: `role`, `instance-profile`, `bucket` and others."""
    service, _, name = action.partition(":")
    if service == "iam":
        return "instance-profile" if "InstanceProfile" in name and name != "ListInstanceProfilesForRole" else "role"  # fmt: skip
    if service == "s3":
        return "object" if action in _OBJECTS else "bucket"
    return {
        "secretsmanager": "secret",
        "sqs": "queue",
        "events": "rule",
        "budgets": "budget",
        "billing": "billing-view",
        "route53": "hosted-zone",
    }[service]


def _word(kind: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in kind.split("-"))


def unknown_actions(facts: CallFacts) -> list[str]:
    """Return the EC2 actions of the facts that no table above limits and that take a resource."""
    return sorted(
        a
        for a, kinds in facts.kinds.items()
        if a.startswith("ec2:") and kinds and a not in {*MADE, *OWN, *FREE, *_RETAG}
    )
