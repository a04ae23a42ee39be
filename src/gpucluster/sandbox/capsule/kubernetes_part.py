"""EKS in a capsule: a real API server for the cluster of the plan, nodes for its instances, Karpenter's stand-in, and the kubernetes_listener for kubectl."""

import logging
import socket
import threading
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import boto3

from gpucluster import catalog
from gpucluster.cloud.port import InstanceState
from gpucluster.errors import HostError
from gpucluster.plan.kubernetes import allocatable
from gpucluster.plan.model import AwsPlan
from gpucluster.plan.names import KARPENTER, KUBERNETES_ARCH, SYSTEM_NODES, TAG_POOL
from gpucluster.sandbox import paths
from gpucluster.sandbox.aws.credentials import Key
from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Ec2Instance
from gpucluster.sandbox.aws.eks import clusters, roles, tokens
from gpucluster.sandbox.aws.eks.nodes import CLUSTER_TAG, Nodes
from gpucluster.sandbox.aws.signature import BadSignature
from gpucluster.sandbox.capsule import relay
from gpucluster.sandbox.cloud import Api
from gpucluster.sandbox.kubernetes import charts, eks_nodes, programs
from gpucluster.sandbox.kubernetes.addons import Addons
from gpucluster.sandbox.kubernetes.authenticator import Identity
from gpucluster.sandbox.kubernetes.karpenter import Karpenter
from gpucluster.sandbox.kubernetes.karpenter_ec2 import CLAIM_TAG
from gpucluster.sandbox.kubernetes.planes import RealPlanes
from gpucluster.sandbox.state_dir import SandboxDir

log = logging.getLogger("gpucluster.sandbox")
_STEP_S = 0.4


def is_node(instance: Ec2Instance) -> bool:
    """Say whether the instance is a node of Kubernetes, of a node group or of Karpenter."""
    return CLUSTER_TAG in instance.tags or CLAIM_TAG in instance.tags


class KubernetesPart:
    """Made before the program's first call. Its thread goes on until the capsule ends."""

    def __init__(
        self, served: Api, plan: AwsPlan, home: SandboxDir, kubernetes_listener: socket.socket
    ) -> None:
        built = programs.find()
        if built is None:
            raise HostError(
                "the programs of the control plane are not built",
                next_step="gpucluster sandbox up kube",
            )
        self._model: CloudModel = served.model
        self._served, self._plan = served, plan
        port = int(kubernetes_listener.getsockname()[1])
        self._planes = RealPlanes(
            built,
            home.path / "kubernetes",
            self._identify,
            url_of=lambda _, __: f"https://127.0.0.1:{port}",
            charts=lambda plane: charts.stand_in(plane, plan),
        )
        self._nodes = Nodes(served.model, served.moto)
        self._karpenter: Karpenter | None = None
        self._addons: Addons | None = None
        self._controller: tuple[Key, Any] | None = None
        served.model.eks.planes = self._planes
        relay.serve(kubernetes_listener, self._target)
        threading.Thread(target=self._run, name="kubernetes", daemon=True).start()

    @staticmethod
    def is_machine(instance: Ec2Instance) -> bool:
        """Say whether a machine starts for the instance: kwok plays the nodes of EKS."""
        return not is_node(instance)

    def _run(self) -> None:
        while True:
            try:
                self._step()
            except Exception:  # a failure of one look must not end the others
                log.exception("a step of EKS failed")
            time.sleep(_STEP_S)

    def _step(self) -> None:
        """Let node groups take a step, instances run or end, Karpenter decide, and nodes follow."""
        now = time.time()
        with self._model.lock:
            self._nodes.step(now)
        for instance in self._model.wanted(now):
            if is_node(instance) and instance.state is InstanceState.PENDING:
                self._model.mark_running(instance.id, now)
        for instance in self._model.ending(now):
            if is_node(instance):
                self._model.mark_ended(instance.id, now)
        plane = self._planes.plane(self._plan.name)
        if plane is None:
            self._karpenter = self._addons = None
            return
        if self._addons is None:
            self._addons = Addons(plane.client)
        with self._model.lock:
            addons = {
                one.name: one.configuration or ""
                for one in self._model.eks.addons.values()
                if one.cluster == self._plan.name
            }
        self._addons.follow(addons)
        if self._karpenter is None:
            self._karpenter = Karpenter(
                plane.client,
                self._plan.name,
                self._model.region,
                ec2=self._ec2_of_controller,
                offers=self._offers,
                joins=self._joins,
                clock=time.time,
            )
        self._karpenter.step()
        nodes = [*self._of(self._plan.name, now), *self._karpenter.nodes()]
        self._planes.nodes(self._plan.name, nodes)

    def _ec2_of_controller(self) -> Any | None:
        """EC2 with the credentials that Pod Identity gives to Karpenter's service account; None without an association."""
        now = time.time()
        with self._model.lock:
            rows = self._model.eks.identities.values()
            found = next((i for i in rows if (i.namespace, i.account) == (KARPENTER, KARPENTER)), None)
        role = None if found is None else self._served.moto.role(found.role)
        if role is None:
            self._controller = None
            return None
        known = self._controller
        if known is None or known[0].principal.role != role.name or (known[0].expires or 0.0) < now + 600:
            key = self._served.ring.assumed(role.name, role.id, "eks-karpenter", now, 6 * 3600.0)
            session: Any = boto3.Session(
                key.access_key, key.secret, key.token, region_name=self._model.region
            )
            known = self._controller = (key, session.client("ec2", endpoint_url=paths.API_ENDPOINT))
        return known[1]

    def _joins(self, identifier: str) -> bool:
        """Say whether the node of an instance of Karpenter becomes ready."""
        with self._model.lock:
            found = next((i for i in self._model.wanted(time.time()) if i.id == identifier), None)
        if found is None or found.spec.profile is None:
            return False
        role = self._served.moto.profile(None, found.spec.profile).role
        return role is not None and roles.joins(role, self._served.moto)

    def _of(self, cluster: str, now: float) -> list[Mapping[str, object]]:
        found: list[Mapping[str, object]] = []
        for group in self._model.eks.groups_of(cluster):
            running = [i for i in self._nodes.living(group, now) if i.state is InstanceState.RUNNING]
            for one in running:
                pool = one.tags.get(TAG_POOL, SYSTEM_NODES)
                arch = KUBERNETES_ARCH[_catalog().machines[one.spec.machine].arch]
                found += eks_nodes.nodes(
                    group, [one], self._model.region, pool=pool, arch=arch, offers=self._offers
                )
        return found

    def _offers(self, machine: str, pool: str) -> Mapping[str, int]:
        """What the plan says that a node of the pool offers, with slices of its GPUs; else what the machine has."""
        part = self._plan.kubernetes
        known = () if part is None else part.pools
        own = next((one.allocatable for one in known if pool in (one.name, one.of)), None)
        return own or allocatable((_catalog().machines[machine],), {})

    def _identify(self, cluster: str, token: str) -> Identity | None:
        now = time.time()
        try:
            who = tokens.caller(token, cluster, self._served.ring, now=now, wall=now)
        except BadSignature:
            return None
        role = "" if who.role is None else self._served.moto.role_arn(who.role)
        with self._model.lock:
            return tokens.identity(self._model.eks, cluster, who, role)

    def _target(self) -> tuple[str, int] | None:
        """The API server of the one cluster that the plan makes, if its network lets the caller in."""
        plane = self._planes.plane(self._plan.name)
        with self._model.lock:
            cluster = self._model.eks.clusters.get(self._plan.name)
        if plane is None or cluster is None or not clusters.reached(cluster, self._served.moto):
            return None
        return "127.0.0.1", plane.port


@cache
def _catalog() -> catalog.Catalog:
    return catalog.load()
