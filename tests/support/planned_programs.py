"""Programs for the offline planner. Each shows one case, and runs by name in its own process."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pulumi
from pulumi import Output, ResourceOptions

SECRET = "planted-7f3a"  # must never appear in output


class Thing(pulumi.CustomResource):
    """A resource without a provider."""

    told: Output[Any]

    def __init__(
        self, name: str, props: dict[str, Any] | None = None, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("test:index:Thing", name, {"told": None, **(props or {})}, opts)


class Box(pulumi.ComponentResource):
    def __init__(self, name: str, opts: ResourceOptions | None = None, kind: str = "test:index:Box") -> None:
        super().__init__(kind, name, None, opts)


def nested(_: object) -> None:
    """Components in components, and a child's dependency on a sibling."""
    outer = Box("outer")
    inner = Box("inner", ResourceOptions(parent=outer))
    first = Thing("first", opts=ResourceOptions(parent=inner))
    Thing("second", {"of": first.id}, ResourceOptions(parent=inner))
    Thing("third", opts=ResourceOptions(depends_on=[first]))
    outer.register_outputs({"first": first.urn})
    Thing("odd::name")


def twice(_: object) -> None:
    Thing("same")
    Thing("same")


def same_name_elsewhere(_: object) -> None:
    """No conflict: another parent type gives another URN."""
    Thing("same")
    Thing("same", opts=ResourceOptions(parent=Box("box")))


def unknown_lookup(_: object) -> None:
    pulumi.runtime.invoke_output("aws:ec2/getVpcs:getVpcs", {})


def lookup_twice(_: object) -> None:
    """Two resources make the same look-up of the table. What depends on its result is unknown."""
    import pulumi_aws as aws

    for name in ("a", "b"):
        image = aws.ec2.get_ami_output(owners=["self"])
        Thing(name, {"image": image.image_id, "of": image.image_id.apply(lambda text: f"from {text}")})


def method_of_a_provider(_: object) -> None:
    pulumi.runtime.call("aws:x/y:z", {})


def remote_component(_: object) -> None:
    pulumi.ComponentResource("aws:x:Remote", "far", {}, None, True)


def secrets(_: object) -> None:
    """Secrets at every place of a value."""
    hidden = Output.secret(SECRET)
    first = Thing(
        "first",
        {
            "plain": hidden,
            "list": ["open", hidden, {"deep": [hidden]}],
            "map": {"open": 1, "hidden": hidden},
            "text": Output.concat("prefix-", hidden),
            "json": Output.json_dumps({"k": hidden}),
            "whole": Output.secret({"a": [SECRET]}),
            "named": f"in-{SECRET}",
            "asset": pulumi.StringAsset("open"),
        },
        ResourceOptions(additional_secret_outputs=["named"]),
    )
    Box("box").register_outputs({"hidden": hidden})
    Thing("second", {"of": first.told, "hidden": hidden.apply(len)})
    pulumi.export("hidden", hidden)
    pulumi.export("list", [hidden, "open"])


def unknowns(_: object) -> None:
    """Values that only the cloud knows, and functions of them, which do not run."""
    made = Thing("made", {"count": 3, "half": 0.5, "none": None, "yes": True})
    Thing(
        "after",
        {"id": made.id, "text": made.told.apply(lambda _: sys.exit("must not run")), "list": [made.id, 1]},
    )
    pulumi.export("id", made.id)


def options(_: object) -> None:
    import pulumi_aws as aws

    first = Thing("first")
    Thing(
        "kept",
        {"a": 1, "ref": first},
        ResourceOptions(
            protect=True,
            retain_on_delete=True,
            delete_before_replace=True,
            ignore_changes=["b", "a"],
            replace_on_changes=["a"],
            deleted_with=first,
            custom_timeouts=pulumi.CustomTimeouts(create="60m"),
            aliases=[pulumi.Alias(name="older")],
            version="1.2.3",
        ),
    )
    Thing("taken", opts=ResourceOptions(import_="i-1"))
    aws.ec2.Vpc.get("theirs", "vpc-9")


def transforms(_: object) -> None:
    """The resource's own transformation runs first, then its parent's, then the stack's."""

    def adding(word: str) -> pulumi.ResourceTransform:
        def transform(args: pulumi.ResourceTransformArgs) -> pulumi.ResourceTransformResult | None:
            if not args.custom:
                return None
            opts = pulumi.ResourceOptions.merge(
                args.opts, ResourceOptions(protect=True, ignore_changes=[word])
            )
            seen = f"{args.props['seen']}{word}"
            return pulumi.ResourceTransformResult({**args.props, "seen": seen}, opts)

        return transform

    pulumi.runtime.register_resource_transform(adding("stack "))
    box = Box("box", ResourceOptions(transforms=[adding("parent ")]))
    Thing("child", {"seen": ""}, ResourceOptions(parent=box, transforms=[adding("own ")]))
    Thing("top", {"seen": ""})


def failing_transform(_: object) -> None:
    def transform(args: pulumi.ResourceTransformArgs) -> None:
        raise ValueError(f"no {args.name} here")

    Thing("one", opts=ResourceOptions(transforms=[transform]))


def reference(_: object) -> None:
    other = pulumi.StackReference("other", stack_name="organization/gpucluster/shared")
    Thing("user", {"vpc": other.get_output("vpc"), "must": other.require_output("vpc")})


def logs(_: object) -> None:
    pulumi.log.info("told by the log")
    pulumi.log.warn("warned\nin two lines")
    print("printed")  # noqa: T201
    os.write(1, b"written\n")
    Thing("one")


def raises(_: object) -> None:
    Thing("one")
    raise ValueError("the plan is upside down")


def raises_later(_: object) -> None:
    """Raise in a function of an output, long after the program's last line."""
    Output.from_input(3).apply(lambda n: n / 0)


def exits(_: object) -> None:
    sys.exit(3)


def dies(_: object) -> None:
    print("the last words", flush=True)  # noqa: T201
    os._exit(7)


def is_killed(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kills_its_parent(_: object) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    Thing("one")


def says_its_processes(_: object) -> None:
    print("from", os.getppid(), "in", os.getpid(), flush=True)  # noqa: T201
    Thing("one")


def leaves_a_process(_: object) -> None:
    """Start a process that holds the program's output, and end without it."""
    left = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("left", left.pid, flush=True)  # noqa: T201
    Thing("one")


def nothing(_: object) -> None:
    """End at once."""


def hangs(_: object) -> None:
    Thing("one")
    threading.Event().wait()


def hangs_aloud(_: object) -> None:
    print(os.getppid(), os.getpid(), flush=True)  # noqa: T201
    threading.Event().wait()


def stops(_: object) -> None:
    """No thread of the process runs on, so its own limit does not end it."""
    os.kill(os.getpid(), signal.SIGSTOP)


def says_how_much_it_loads(_: object) -> None:
    import pulumi_aws as aws

    from gpucluster.engine.offline.lazy_sdk import LOADED

    before = len(LOADED)
    assert aws.athena.Workgroup
    print(len(LOADED) - before, flush=True)  # noqa: T201
    Thing("one")


def never_told(_: object) -> None:
    """An output that never resolves."""
    Thing("one", {"never": asyncio.get_event_loop().create_future()})


def before(_: object) -> None:
    """The old names; `after` has the new ones."""
    import pulumi_aws as aws

    provider = aws.Provider("aws", region="us-east-2")
    opts = ResourceOptions(provider=provider)
    old = Box("net", opts, kind="gpucluster:test:OldBox")
    for name, parent in (("net-main", old), ("net-other", old), ("loose", None)):
        _vpc(name, "yesterday", ResourceOptions(provider=provider, parent=parent))


def after(_: object) -> None:
    """Another type, other names, another parent, and options: aliases prevent every replacement."""
    import pulumi_aws as aws

    provider = aws.Provider("aws", region="us-east-2")
    opts = ResourceOptions(provider=provider)
    box = Box(
        "web",
        ResourceOptions.merge(
            opts, ResourceOptions(aliases=[pulumi.Alias(name="net", type_="gpucluster:test:OldBox")])
        ),
        kind="gpucluster:test:Box",
    )
    _vpc("web-main", "today", ResourceOptions(parent=box))  # follows the component's name
    _vpc(
        "fresh", "today", ResourceOptions(parent=box, aliases=[pulumi.Alias(name="net-other")], protect=True)
    )
    _vpc(
        "loose",
        "today",
        ResourceOptions(
            parent=box,
            aliases=[pulumi.Alias(parent=pulumi.ROOT_STACK_RESOURCE)],
            custom_timeouts=pulumi.CustomTimeouts(create="1h30m"),
            retain_on_delete=True,
        ),
    )


def _vpc(name: str, day: str, opts: ResourceOptions) -> None:
    import pulumi_aws as aws

    tags = {"day": day, "owner": Output.secret("somebody")}
    aws.ec2.Vpc(name, cidr_block="10.0.0.0/16", tags=tags, opts=opts)


def reads_a_lustre(_: object) -> None:
    """A resource of the site is read, because there is no data source."""
    import pulumi_aws as aws

    found = aws.fsx.LustreFileSystem.get("theirs", "fs-1")
    Thing("user", {"mount": found.mount_name})


def texts_of_names(_: object) -> None:
    """Texts that contain a name from the cloud: two are wrong, one is right, and one is wholly an output of another resource."""
    import pulumi_aws as aws

    bucket = aws.s3.Bucket("data")
    role = aws.iam.Role("role", assume_role_policy="{}")
    for name, action in (("wide", "s3:*"), ("narrow", "s3:GetObject")):
        statement = {"Effect": "Allow", "Action": action, "Resource": Output.concat(bucket.arn, "/x/y")}
        policy = Output.json_dumps({"Version": "2012-10-17", "Statement": [statement]})
        aws.iam.RolePolicy(name, role=role.name, policy=policy)
    told = Output.concat("#!/bin/sh\nexport DB_PASS=hunter22secret\naws s3 ls ", bucket.bucket, "\n")
    aws.ec2.Instance("told", ami="ami-1", instance_type="t3.small", user_data=told)
    key = aws.iam.AccessKey("key", user="x")
    aws.ec2.Instance("whole", ami="ami-1", instance_type="t3.small", user_data=key.create_date)
