"""Two teams share idle GPUs by their `share`, and an owner takes its quota back: rendered queues with the real Kueue.

kwok plays the lives of nodes and pods.
"""

import json
import re
import ssl
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families
from real_kubernetes import Kubernetes
from support.builders import SERVICES, a_kube_plan
from support.kube import BOUND, MONITORED, files, objects
from support.waiting import BOUND_S
from waves import by_wave

from gpucluster.k8s_apply.objects import is_true
from gpucluster.sandbox.kubernetes import nodes

pytestmark = [pytest.mark.in_order]
NAME = "share"
OWNER, LIGHT, HEAVY = "share-owner", "share-light", "share-heavy"
TEAMS = f"""\
    - {{name: {OWNER}, quota: {{nvidia.com/gpu: 8}}}}
    - {{name: {LIGHT}, quota: {{nvidia.com/gpu: 0}}, may_borrow: true, share: 1}}
    - {{name: {HEAVY}, quota: {{nvidia.com/gpu: 0}}, may_borrow: true, share: 3}}
"""
CHANGES = (
    ("name: kube\n", f"name: {NAME}\n"),
    ("    - {name: serving, quota: {nvidia.com/mig-1g.10gb: 28}, may_borrow: true}\n", ""),
    ("    - {name: research, quota: {nvidia.com/gpu: 32}}\n", TEAMS),
    (
        """\
  - name: serve
    nodes: {min: 1, max: 6}
    sharing: {mig: {1g.10gb: 7}}
    capacity: [{from: spot, machines: [p4de.24xlarge]}]
""",
        "",
    ),
)
RUNNING = (
    ("cluster: kube", f"cluster: {NAME}"),
    (SERVICES, ""),
    ("team: research", f"team: {LIGHT}"),
    ("    nodes: 4\n", "    nodes: 1\n"),
)
JOBSET = ("jobset.x-k8s.io/v1alpha2", "JobSet")
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")


class Shared:
    """Four nodes of eight GPUs. Each gang takes one node."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes, self.client = kubernetes, kubernetes.client
        texts = files(*CHANGES, running=RUNNING, bindings=BOUND)
        (self.jobset,) = (one for one in objects(texts).values() if one["kind"] == "JobSet")
        self.others = [one for wave in by_wave(texts) for one in wave if one != self.jobset]
        plan = a_kube_plan(*CHANGES).kubernetes
        assert plan is not None
        self.machines = list(nodes.of_pool(NAME, plan.pools[0], 4))

    def submit(self, team: str, count: int) -> None:
        for number in range(count):
            text = json.dumps(self.jobset).replace(LIGHT, team)
            one = json.loads(text)
            one["metadata"]["name"] = one["spec"]["network"]["subdomain"] = f"gang-{number}"
            self.client.apply(one)

    def admitted(self, team: str) -> int:
        return sum(is_true(one, "Admitted") for one in self.client.list(*WORKLOAD, team))

    def running(self, team: str) -> int:
        found = self.client.list("v1", "Pod", team)
        alive = (one for one in found if "deletionTimestamp" not in one["metadata"])
        return sum(1 for one in alive if one.get("status", {}).get("phase") == "Running")

    def settle(self, **wanted: int) -> None:
        """Each team has so many gangs, whose pods run."""
        teams = {"owner": OWNER, "light": LIGHT, "heavy": HEAVY}

        def there() -> bool:
            return all(
                self.admitted(teams[name]) == self.running(teams[name]) == count
                for name, count in wanted.items()
            )

        self.kubernetes.wait(there, f"gangs that run: {wanted}")


@pytest.fixture(scope="module")
def shared(kubernetes: Kubernetes) -> Iterator[Shared]:
    made = Shared(kubernetes)
    for one in made.others:
        kubernetes.client.apply(one)
    for machine in made.machines:
        nodes.start(kubernetes.client, machine)
    yield made
    for team in (OWNER, LIGHT, HEAVY):
        for one in kubernetes.client.list(*JOBSET, team):
            kubernetes.client.delete(*JOBSET, one["metadata"]["name"], team)
    for machine in made.machines:
        kubernetes.client.delete("v1", "Node", machine["metadata"]["name"])


def test_team_alone_borrows_what_is_idle(shared: Shared) -> None:
    shared.submit(LIGHT, 5)
    shared.settle(light=4)


def test_second_team_gets_its_part_by_weight(shared: Shared) -> None:
    """3 to 1: Kueue preempts gangs of the first team, whole, until the parts are those of the shares."""
    shared.submit(HEAVY, 5)
    shared.settle(light=1, heavy=3)


def test_owner_takes_its_quota_back(shared: Shared) -> None:
    shared.submit(OWNER, 1)
    shared.settle(owner=1)
    assert shared.admitted(LIGHT) + shared.admitted(HEAVY) == 3


def test_what_the_owner_leaves_is_borrowed_again(shared: Shared) -> None:
    shared.client.delete(*JOBSET, "gang-0", OWNER)
    shared.settle(owner=0, light=1, heavy=3)


# --- what the metrics say of it --------------------------------------------------------------------------
def scraped(kubernetes: Kubernetes) -> list[tuple[str, dict[str, str], float]]:
    """Every sample of Kueue's metrics, read with a token as Prometheus has one."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "scraper", "namespace": OWNER},
    }
    rule = {"nonResourceURLs": ["/metrics"], "verbs": ["get"]}
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "scraper"},
        "rules": [rule],
    }
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "scraper"}
    who = {"kind": "ServiceAccount", "name": "scraper", "namespace": OWNER}
    binding = {**role, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [who]}
    del binding["rules"]
    for one in (account, role, binding):
        kubernetes.client.apply(one)
    request = urllib.request.Request(
        f"https://127.0.0.1:{kubernetes.metrics_port}/metrics",
        headers={"Authorization": f"Bearer {kubernetes.client.token('scraper', OWNER)}"},
    )
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = (
        False,
        ssl.CERT_NONE,
    )  # its own certificate; the chart's monitor does the same
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=anybody)
    )
    with opener.open(request, timeout=BOUND_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [(sample.name, sample.labels, sample.value) for family in families for sample in family.samples]


def test_metrics_have_what_each_team_uses(shared: Shared) -> None:
    def used() -> dict[str, float]:
        rows = (row for row in scraped(shared.kubernetes) if row[0] == "kueue_cluster_queue_resource_usage")
        return {
            labels["cluster_queue"]: value
            for _, labels, value in rows
            if labels["resource"] == "nvidia.com/gpu"
        }

    wanted = {f"{NAME}-{OWNER}": 0.0, f"{NAME}-{LIGHT}": 8.0, f"{NAME}-{HEAVY}": 24.0}
    shared.kubernetes.wait(lambda: wanted.items() <= used().items(), f"GPUs in use: {wanted}")


def test_alerts_and_dashboard_read_metrics_that_kueue_has(shared: Shared) -> None:
    """By name and by label."""
    there: dict[str, set[str]] = {}
    for name, labels, _ in scraped(shared.kubernetes):
        there.setdefault(name, set()).update(labels)
    made = objects(files(MONITORED, bindings=BOUND))
    (rules,) = (one for one in made.values() if one["kind"] == "PrometheusRule")
    (board,) = (one for one in made.values() if one["kind"] == "ConfigMap")
    asked = [rule["expr"] for group in rules["spec"]["groups"] for rule in group["rules"]]
    panels = json.loads(board["data"]["dashboard.json"])["panels"]
    asked += [target["expr"] for panel in panels for target in panel.get("targets", [])]
    found = [pair for text in asked for pair in re.findall(r"(kueue_[a-z_]+)(?:\{([^}]*)\})?", text)]
    assert len({name for name, _ in found}) > 7
    for name, inside in found:
        assert name in there, name
        assert set(re.findall(r'(\w+)=~?"', inside)) <= there[name], (name, inside)
    for text in asked:
        for words in re.findall(r"(?:by|on) \(([^)]*)\)", text) if "kueue_" in text else ():
            labels = {word.strip() for word in words.split(",")} - {"le"}
            assert all(labels <= there[name] for name in re.findall(r"kueue_[a-z_]+", text)), text
