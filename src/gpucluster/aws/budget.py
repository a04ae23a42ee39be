"""AWS's own look at the month's bill, by the cluster's tag: beside our ledger, which alone stops launches."""

import pulumi
import pulumi_aws as aws
from pulumi import ResourceOptions

from gpucluster.plan.model import Budget as BudgetPlan
from gpucluster.plan.names import TAG_CLUSTER

MICRO = 1_000_000  # micro-USD in a dollar


class Budget(pulumi.ComponentResource):
    """A monthly budget; those whom the plan names get mail. The tag must be activated for cost allocation."""

    def __init__(self, cluster: str, wish: BudgetPlan, opts: ResourceOptions) -> None:
        super().__init__("gpucluster:aws:Budget", cluster, None, opts)
        budget = aws.budgets.Budget(
            cluster,
            budget_type="COST",
            time_unit="MONTHLY",
            limit_amount=dollars(wish.monthly),
            limit_unit="USD",
            cost_filters=[{"name": "TagKeyValue", "values": [f"user:{TAG_CLUSTER}${cluster}"]}],
            notifications=[
                _notification(amount, wish.notify)
                for amount in sorted({wish.warn_at, wish.stop_scaling_at})
                if wish.notify
            ],
            opts=ResourceOptions(parent=self),
        )
        self.register_outputs({"budget": budget.id})


def dollars(micro: int) -> str:
    """As the API writes an amount: `250000.0`, `12.5`."""
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
