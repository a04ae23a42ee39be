"""The calls of EKS for pod identities: the role that pods of a service account get."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gpucluster.sandbox.aws.ec2 import views
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.eks import roles
from gpucluster.sandbox.aws.eks.state import Eks, Identity, in_use, wrong
from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto
from gpucluster.sandbox.aws.shapes import Calls, ServiceCall

Result = dict[str, Any]


def calls(model: CloudModel, moto: Moto) -> Calls:
    """Calls of this module by operation name."""
    here = _Identities(model, moto)
    return {
        "CreatePodIdentityAssociation": here.create,
        "DescribePodIdentityAssociation": here.describe,
        "ListPodIdentityAssociations": here.all,
        "UpdatePodIdentityAssociation": here.update,
        "DeletePodIdentityAssociation": here.delete,
    }


def put(
    eks: Eks,
    cluster: str,
    now: float,
    *,
    namespace: str,
    account: str,
    role: str,
    owner: str | None = None,
) -> Identity:
    """Add an association; a service account has one."""
    for known in eks.identities.values():
        if (known.cluster, known.namespace, known.account) == (cluster, namespace, account):
            raise in_use(f"Association already exists: {known.id}")
    identifier = f"a-{eks.vpcs.fresh_id('x')[3:]}"
    region = eks.clusters[cluster].arn.split(":")[3]
    made = Identity(
        cluster=cluster,
        id=identifier,
        arn=f"arn:aws:eks:{region}:{ACCOUNT}:podidentityassociation/{cluster}/{identifier}",
        created_at=now,
        namespace=namespace,
        account=account,
        role=role,
        owner=owner,
    )
    eks.identities[cluster, identifier] = made
    return made


class _Identities:
    def __init__(self, model: CloudModel, moto: Moto) -> None:
        self._eks: Eks = model.eks
        self._moto = moto

    def create(self, call: ServiceCall) -> Result:
        asked = call.asked
        cluster, role = str(asked["clusterName"]), str(asked["roleArn"])
        self._eks.cluster(cluster, call.now)
        roles.check_pods(role, self._moto)
        made = put(
            self._eks,
            cluster,
            call.now,
            namespace=str(asked["namespace"]),
            account=str(asked["serviceAccount"]),
            role=role,
        )
        return self._keep(replace(made, tags=dict(asked.get("tags") or {})))

    def describe(self, call: ServiceCall) -> Result:
        return {"association": _shape(self._one(call))}

    def all(self, call: ServiceCall) -> Result:
        asked = call.asked
        self._eks.cluster(str(asked["clusterName"]), call.now)
        wanted = {"namespace": asked.get("namespace"), "serviceAccount": asked.get("serviceAccount")}
        rows = [_shape(i) for i in self._eks.identities.values() if i.cluster == asked["clusterName"]]
        fitting = [r for r in rows if all(v in (None, r[k]) for k, v in wanted.items())]
        names = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId", "ownerArn")
        return {"associations": [{k: r[k] for k in names} for r in fitting]}

    def update(self, call: ServiceCall) -> Result:
        found = self._own(call)
        role = str(call.asked.get("roleArn") or found.role)
        roles.check_pods(role, self._moto)
        return self._keep(replace(found, role=role))

    def delete(self, call: ServiceCall) -> Result:
        found = self._own(call)
        del self._eks.identities[found.cluster, found.id]
        return {"association": _shape(found)}

    def _one(self, call: ServiceCall) -> Identity:
        return self._eks.identity(str(call.asked["clusterName"]), str(call.asked["associationId"]), call.now)

    def _own(self, call: ServiceCall) -> Identity:
        found = self._one(call)
        if found.owner is not None:
            raise wrong(f"The association {found.id} is owned by {found.owner}")
        return found

    def _keep(self, one: Identity) -> Result:
        self._eks.identities[one.cluster, one.id] = one
        return {"association": _shape(one)}


def _shape(one: Identity) -> Mapping[str, Any]:
    return {
        "clusterName": one.cluster,
        "namespace": one.namespace,
        "serviceAccount": one.account,
        "roleArn": one.role,
        "associationArn": one.arn,
        "associationId": one.id,
        "tags": dict(one.tags),
        "createdAt": views.when(one.created_at),
        "modifiedAt": views.when(one.created_at),
        "ownerArn": one.owner,
        "disableSessionTags": False,
    }
