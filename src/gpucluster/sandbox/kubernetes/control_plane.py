"""Start etcd, the API server, the controllers, the scheduler and kwok.

    with running(find_or_build(print), folder) as plane:
        plane.client.apply(manifest)

Kueue and JobSet are in `managers`.
"""

import json
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from gpucluster.sandbox.kubernetes.certificates import Authority, Pair, token_keys
from gpucluster.sandbox.kubernetes.client import Client
from gpucluster.sandbox.kubernetes.processes import Processes
from gpucluster.sandbox.kubernetes.programs import Programs

HOST = "127.0.0.1"
SERVICES, API_SERVICE = "10.96.0.0/16", "10.96.0.1"  # the addresses of services, and of the API server's own
ADMIN = ("admin", "system:masters")  # user, group
LEFT_OUT_STAGES = ("pod-complete",)  # it ends the pods of a Job at once; here they run until they are deleted


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """A control plane that runs. Its folder holds logs, certificates and `admin.kubeconfig`."""

    programs: Programs
    folder: Path
    processes: Processes
    client: Client
    port: int

    @property
    def kubeconfig(self) -> Path:
        """Return the file for `kubectl --kubeconfig`, with all rights."""
        return self.folder / "admin.kubeconfig"


@contextmanager
def running(
    programs: Programs, folder: Path, *, authenticator: str = "", address: str = ""
) -> Generator[ControlPlane]:
    """Start a control plane with its state in `folder`; at the end kill its processes.

    `authenticator` is the URL of a webhook that knows more bearer tokens than those of service accounts.
    `address`: the API server also answers there, which is where pods reach it. Without it, only programs of this machine do.
    """
    processes = Processes(folder)
    try:
        plane = _Start(programs, folder, processes, authenticator, address).start()
        try:
            yield plane
        finally:
            plane.client.close()
    finally:
        processes.stop()


class _Start:
    """The steps of a start, in order."""

    def __init__(
        self, programs: Programs, folder: Path, processes: Processes, authenticator: str, address: str
    ) -> None:
        self._programs, self._folder, self._processes = programs, folder, processes
        self._authenticator, self._address = authenticator, address
        self._authority = Authority("control-plane")
        ports = processes.ports()
        self._etcd, self._peer, self._api = next(ports), next(ports), next(ports)
        self._controllers, self._scheduler, self._kwok = next(ports), next(ports), next(ports)

    def start(self) -> ControlPlane:
        (self._folder / "ca.crt").write_bytes(self._authority.pair.certificate)
        hosts = (HOST, "localhost", *((self._address, API_SERVICE) if self._address else ()))
        self._write("server", self._authority.signed("server", hosts=hosts))
        private, public = token_keys()
        (self._folder / "tokens.key").write_bytes(private)
        (self._folder / "tokens.pub").write_bytes(public)
        self._kubeconfig("admin", *ADMIN)
        self._start_etcd()
        self._start_api_server()
        self._start_controllers()
        self._start_kwok()
        self._await()
        own = self._folder
        client = Client(self._api, own / "ca.crt", own / "admin.crt", own / "admin.key")
        return ControlPlane(self._programs, own, self._processes, client, self._api)

    def _start_etcd(self) -> None:
        own, peer = f"http://{HOST}:{self._etcd}", f"http://{HOST}:{self._peer}"
        argv = ["--name=one", f"--data-dir={self._folder / 'etcd'}", "--unsafe-no-fsync", "--log-level=warn"]
        argv += [f"--listen-client-urls={own}", f"--advertise-client-urls={own}"]
        argv += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}"]  # fmt: skip
        self._run("etcd", argv)
        self._processes.await_ready("etcd", f"{own}/health")

    def _start_api_server(self) -> None:
        own = self._folder
        argv = [
            f"--etcd-servers=http://{HOST}:{self._etcd}",
            *self._listens(),
            f"--secure-port={self._api}",
            f"--tls-cert-file={own}/server.crt",
            f"--tls-private-key-file={own}/server.key",
            f"--client-ca-file={own}/ca.crt",
            f"--service-account-key-file={own}/tokens.pub",
            f"--service-account-signing-key-file={own}/tokens.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-cluster-ip-range={SERVICES}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
            f"--cert-dir={own / 'api-server'}",
            *self._authentication(),
        ]
        self._run("kube-apiserver", argv)
        self._processes.await_ready(
            "kube-apiserver", f"https://{HOST}:{self._api}/readyz", self._trusts_ours()
        )

    def _listens(self) -> list[str]:
        if self._address:
            reaches = "--kubelet-preferred-address-types=InternalIP"  # by default the name of the node, which no DNS has
            return ["--bind-address=0.0.0.0", f"--advertise-address={self._address}", reaches]
        # an address of the loopback cannot be an endpoint
        return [f"--bind-address={HOST}", f"--advertise-address={HOST}", "--endpoint-reconciler-type=none"]

    def _authentication(self) -> list[str]:
        if not self._authenticator:
            return []
        config = self._folder / "authenticator.json"
        row = {"name": "authenticator", "cluster": {"server": self._authenticator}}
        context = {"name": "authenticator", "context": {"cluster": "authenticator"}}
        words = {"apiVersion": "v1", "kind": "Config", "current-context": "authenticator"}
        config.write_text(json.dumps({**words, "clusters": [row], "contexts": [context]}))
        return [
            f"--authentication-token-webhook-config-file={config}",
            "--authentication-token-webhook-version=v1",
            "--authentication-token-webhook-cache-ttl=0s",  # the API server itself remembers a token for ten seconds
        ]

    def _start_controllers(self) -> None:
        own = self._folder
        tokens = [f"--service-account-private-key-file={own}/tokens.key", f"--root-ca-file={own}/ca.crt"]
        tokens += ["--use-service-account-credentials=true"]
        tokens += ["--node-monitor-grace-period=3600s"]  # kwok's nodes report every ten minutes
        self._component("kube-controller-manager", self._controllers, tokens)
        self._component("kube-scheduler", self._scheduler, [])

    def _component(self, name: str, port: int, argv: list[str]) -> None:
        self._kubeconfig(name, f"system:{name}")
        config = self._folder / f"{name}.kubeconfig"
        common = [f"--{use}kubeconfig={config}" for use in ("", "authentication-", "authorization-")]
        common += [f"--bind-address={HOST}", f"--secure-port={port}", "--leader-elect=false"]
        common += [f"--tls-cert-file={self._folder}/server.crt", f"--tls-private-key-file={self._folder}/server.key"]  # fmt: skip
        self._run(
            name, [*common, "--kube-api-qps=200", "--kube-api-burst=400", *argv]
        )  # many objects at once

    def _start_kwok(self) -> None:
        stages = [one for one in yaml.safe_load_all(self._programs.manifests("stages.yaml")) if one]
        kept = [one for one in stages if one["metadata"]["name"] not in LEFT_OUT_STAGES]
        (self._folder / "stages.yaml").write_text(yaml.safe_dump_all(kept))
        argv = [f"--kubeconfig={self._folder / 'admin.kubeconfig'}", "--manage-all-nodes"]
        argv += [f"--server-address={HOST}:{self._kwok}", f"--node-ip={HOST}", "--cidr=10.244.0.0/16"]
        self._run("kwok", [*argv, f"--config={self._folder / 'stages.yaml'}"])

    def _await(self) -> None:
        ours = self._trusts_ours()
        await_ready = self._processes.await_ready
        await_ready("kube-controller-manager", f"https://{HOST}:{self._controllers}/healthz", ours)
        await_ready("kube-scheduler", f"https://{HOST}:{self._scheduler}/healthz", ours)
        await_ready("kwok", f"http://{HOST}:{self._kwok}/healthz")

    def _run(self, program: str, argv: list[str]) -> None:
        self._processes.start(program, [str(self._programs[program]), *argv])

    def _trusts_ours(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self._folder / "ca.crt"))

    def _kubeconfig(self, name: str, user: str, group: str = "") -> None:
        self._write(name, self._authority.signed(user, group=group))
        own = self._folder
        person = {"client-certificate": f"{own}/{name}.crt", "client-key": f"{own}/{name}.key"}
        write_kubeconfig(own / f"{name}.kubeconfig", self._api, own / "ca.crt", person)

    def _write(self, name: str, pair: Pair) -> None:
        (self._folder / f"{name}.crt").write_bytes(pair.certificate)
        (self._folder / f"{name}.key").write_bytes(pair.key)


def write_kubeconfig(path: Path, port: int, authority: Path, person: dict[str, str]) -> None:
    """Write a kubeconfig for the server at 127.0.0.1:`port`. JSON is YAML."""
    cluster = {"server": f"https://{HOST}:{port}", "certificate-authority": str(authority)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "sandbox",
        "clusters": [{"name": "sandbox", "cluster": cluster}],
        "users": [{"name": "sandbox", "user": person}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}],
    }
    path.write_text(json.dumps(config))
