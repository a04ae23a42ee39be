"""The images that machines boot from: the account's own by name, or any by its id. Each is asked for once."""

import pulumi
import pulumi_aws as aws
from pulumi import Output

from gpucluster.plan.model import ClusterPlan, Image, Pool, there

Found = Output[aws.ec2.GetAmiResult]


class Images:
    """The look-ups of one program."""

    def __init__(self, plan: ClusterPlan, provider: pulumi.ProviderResource) -> None:
        self._plan = plan
        self._default = there(there(plan.aws).image)
        self._opts = pulumi.InvokeOutputOptions(provider=provider)
        self._found: dict[Image, Found] = {}

    @property
    def default(self) -> Found:
        return self._of(self._default)

    def of(self, pool: Pool) -> Found:
        """The pool's own, or the cluster's."""
        return self._of(pool.image or self._default)

    def every(self) -> list[Found]:
        """All that machines of the cluster boot from."""
        wanted = dict.fromkeys([self._default, *(pool.image or self._default for pool in self._plan.pools)])
        return [self._of(image) for image in wanted]

    def _of(self, image: Image) -> Found:
        if image not in self._found:
            self._found[image] = self._look_up(image)
        return self._found[image]

    def _look_up(self, image: Image) -> Found:
        """A name is taken from our own account alone: anybody may publish an image of any name."""
        if image.id is not None:
            by_id: list[aws.ec2.GetAmiFilterArgsDict] = [{"name": "image-id", "values": [image.id]}]
            return aws.ec2.get_ami_output(filters=by_id, opts=self._opts)
        named: list[aws.ec2.GetAmiFilterArgsDict] = [{"name": "name", "values": [there(image.name)]}]
        return aws.ec2.get_ami_output(owners=["self"], filters=named, opts=self._opts)
