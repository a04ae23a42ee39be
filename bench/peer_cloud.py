"""The cloud of the peer benchmark as a process: our EC2 front end over the sandbox's EC2 state, and moto for the rest.

Both programs use this server, which records every call with its time. `python -m bench.peer_cloud` prints the created
resources as one JSON line, and runs until its input ends.
"""

import json
import random
import socket
import sys
import time
from typing import Any

from gpucluster.sandbox.aws.ec2.state.instances import CloudModel
from gpucluster.sandbox.aws.ec2.state.values import Timing

REGION, ZONE, MACHINE = "us-east-1", "us-east-1a", "p5en.48xlarge"
OPERATOR = ("AKIAPEERBENCH0000001", "peer-bench-secret")
CLUSTER, QUEUE, RESOURCE = "peer", "q", "c"
TABLE, DOMAIN, BUCKET = "peer-slurm", "peer.pcluster", "peer-bucket"


class Door:
    """WSGI: DynamoDB and Route 53 go to moto, and their calls to `calls`. Everything else goes to our front end, which logs calls."""

    def __init__(self, face: Any, moto: Any) -> None:
        self._face, self._moto = face, moto
        self.calls: list[tuple[float, str, str]] = []

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        service = _service(environ)
        if service not in ("dynamodb", "route53"):
            return self._face(environ, start_response)
        target = str(environ.get("HTTP_X_AMZ_TARGET", "")).rpartition(".")[2]
        self.calls.append((time.time(), target or _route53(environ), ""))
        environ["HTTP_HOST"] = f"{service}.{REGION}.amazonaws.com"
        return self._moto(environ, start_response)


def _service(environ: dict[str, Any]) -> str:
    """Return the service of `Credential=KEY/DATE/REGION/SERVICE/aws4_request`."""
    parts = str(environ.get("HTTP_AUTHORIZATION", "")).partition("Credential=")[2].split("/")
    return parts[3] if len(parts) > 3 else ""


def _route53(environ: dict[str, Any]) -> str:
    changes = str(environ["PATH_INFO"]).rstrip("/").endswith("rrset")
    return "ChangeResourceRecordSets" if changes else f"Route53{environ['REQUEST_METHOD'].title()}"


def main() -> None:
    """Serve until the input ends. A line of input prints the calls so far."""
    from moto.moto_server.werkzeug_app import (  # noqa: PLC0415 -- seconds
        DomainDispatcherApplication,
        create_backend_app,
    )

    from gpucluster.sandbox import cloud  # noqa: PLC0415
    from gpucluster.sandbox.aws.credentials import KeyRing  # noqa: PLC0415
    from gpucluster.sandbox.aws.front_end import make_app  # noqa: PLC0415
    from gpucluster.sandbox.aws.moto_state import ACCOUNT, Moto  # noqa: PLC0415

    model = CloudModel(random.Random(1), timing=Timing(pending_s=1.0), region=REGION)  # noqa: S311
    moto = Moto(REGION)
    model.set_zones(moto.zones())
    image = moto.register_image("peer")
    ring = KeyRing(ACCOUNT, operator=OPERATOR, session_s=6 * 3600.0)
    backend: Any = DomainDispatcherApplication(create_backend_app)
    door = Door(make_app(model, moto, ring, clock=time.time), backend)
    bound = socket.create_server(("127.0.0.1", 0), backlog=128)
    server = cloud._serve(bound, door)  # noqa: SLF001 -- the sandbox's own way to serve, behind another door
    endpoint = f"http://127.0.0.1:{bound.getsockname()[1]}"
    _tell({"endpoint": endpoint, **_furnish(endpoint, image)})
    for _ in sys.stdin:
        trail = [(call.at, call.action, call.code) for call in model.trail]
        living = [i for i in model.describe((), time.time()) if i.state.value in ("pending", "running")]
        _tell({"calls": sorted([*trail, *door.calls]), "living": len(living)})
    server.shutdown()


def _furnish(endpoint: str, image: str) -> dict[str, str]:
    """Create a network, a launch template for each program, the bucket, and ParallelCluster's table and hosted zone."""
    ec2, s3 = client("ec2", endpoint), client("s3", endpoint)
    vpc = ec2.create_vpc(CidrBlock="10.42.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.42.0.0/18", AvailabilityZone=ZONE)["Subnet"][
        "SubnetId"
    ]
    group = ec2.create_security_group(GroupName="nodes", Description="nodes", VpcId=vpc)["GroupId"]
    common = {"ImageId": image, "InstanceType": MACHINE}
    door = {"DeviceIndex": 0, "NetworkCardIndex": 0, "SubnetId": subnet, "Groups": [group]}
    ours = ec2.create_launch_template(
        LaunchTemplateName="ours", LaunchTemplateData={**common, "SecurityGroupIds": [group]}
    )
    ec2.create_launch_template(
        LaunchTemplateName=f"{CLUSTER}-{QUEUE}-{RESOURCE}",
        LaunchTemplateData={**common, "NetworkInterfaces": [door]},
    )
    s3.create_bucket(Bucket=BUCKET)
    client("dynamodb", endpoint).create_table(
        TableName=TABLE,
        KeySchema=[{"AttributeName": "Id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "Id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    zone = client("route53", endpoint).create_hosted_zone(Name=DOMAIN, CallerReference="peer")
    template = ours["LaunchTemplate"]["LaunchTemplateId"]
    return {"subnet": subnet, "template": template, "zone": zone["HostedZone"]["Id"].rpartition("/")[2]}


def client(service: str, endpoint: str) -> Any:
    """Return a boto3 client of this server."""
    import boto3  # noqa: PLC0415

    session: Any = boto3.Session()
    return session.client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id=OPERATOR[0],
        aws_secret_access_key=OPERATOR[1],
    )


def _tell(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
