"""A monthly AWS budget over the cluster's tag. It only notifies; the ledger of the daemon stops launches."""

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpucluster.plan.model import Budget as BudgetPlan
from gpucluster.plan.names import TAG_CLUSTER

MICRO = 1_000_000  # micro-USD in a dollar


class Budget(pulumi.ComponentResource):
    """A monthly budget with mail to the addresses of the plan. The tag must be activated for cost allocation."""

    def __init__(self, cluster: str, limits: BudgetPlan, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Budget", cluster, None, opts)
        budget = aws.budgets.Budget(
            cluster,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=dollars(limits.monthly),
            limit_unit="USD",
            cost_filters=[{"name": "TagKeyValue", "values": [f"user:{TAG_CLUSTER}${cluster}"]}],
            notifications=[
                _notification(amount, limits.notify)
                for amount in sorted({limits.warn_at, limits.stop_scaling_at})
                if limits.notify
            ],
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"budget": budget.id})


def dollars(micro: int) -> str:
    """Return an amount in the form of the API: `250000.0`, `12.5`."""
    whole, part = divmod(micro, MICRO)
    return f"{whole}.{f'{part:06}'.rstrip('0') or '0'}"


def _notification(amount: int, mail: tuple[str, ...]) -> aws.budgets.BudgetNotificationArgsDict:
    return {
        "comparison_operator": "GREATER_THAN",
        "notification_type": "ACTUAL",
        "threshold": amount / MICRO,
        "threshold_type": "ABSOLUTE_VALUE",
        "subscriber_email_addresses": list(mail),
    }
