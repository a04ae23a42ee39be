"""The roles of machines and jobs in the sandbox's IAM, as the program declares them."""

import json
from typing import Any

from gpucluster.checks.policy_documents import UNKNOWN
from gpucluster.plan import names
from gpucluster.plan.model import Bindings, SlurmOnAws
from gpucluster.validate.declared_roles import declared_roles
from support.clouds import RunningCloud

MARK = "-1234567"


def declare_roles(cloud: RunningCloud, plan: SlurmOnAws, bindings: Bindings) -> None:
    """Create each role with its policies, as `pulumi up --refresh` leaves them. Machines' roles have a profile of their name."""
    iam: Any = cloud.client("iam")
    known = {one["RoleName"] for one in iam.list_roles()["Roles"]}
    for want in declared_roles(plan, bindings):
        name = want.name + MARK
        trust, policy = (json.dumps(one).replace(UNKNOWN, MARK) for one in (want.trust, want.policy))
        if name not in known:
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)
            if want.name != f"{plan.name}-{names.ROLE_JOBS}":
                iam.create_instance_profile(InstanceProfileName=name)
                iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=name)
        iam.update_assume_role_policy(RoleName=name, PolicyDocument=trust)
        iam.put_role_policy(RoleName=name, PolicyName=name, PolicyDocument=policy)
