"""IAM policy documents of EKS: of the control plane, of Karpenter and of pods. Plain values, with the smallest permissions."""

from gpucluster.plan.store_policies import Statement, document

# Encrypt and decrypt the secrets of the cluster. The list is that of the module terraform-aws-eks,
# https://github.com/terraform-aws-modules/terraform-aws-eks/blob/master/main.tf, `cluster_encryption`. [not verified with AWS]
SECRETS_KEY = ("kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:ListGrants")


def trust_service(service: str) -> str:
    """Return the trust policy: only that service of AWS assumes the role."""
    principal = {"Service": service}
    return document({"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"})


POD_IDENTITY = "pods.eks.amazonaws.com"


def trust_pods(account: str, cluster: str, namespace: str, service_account: str) -> str:
    """Return the trust policy: only pods of that cluster (ARN) with that service account assume the role.

    EKS sends the names of namespace and service account as tags of the session (EKS user guide, "Grant Pods access to
    AWS resources based on tags").
    """
    tags = {
        "aws:RequestTag/kubernetes-namespace": namespace,
        "aws:RequestTag/kubernetes-service-account": service_account,
    }
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": POD_IDENTITY},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {
            "StringEquals": {"aws:SourceAccount": account, **tags},
            "ArnEquals": {"aws:SourceArn": cluster},
        },
    }
    return document(statement)


def secrets_policy(key: str) -> str:
    """Return the right of the control plane to use the key of the cluster's secrets."""
    statement: Statement = {
        "Sid": "Secrets",
        "Effect": "Allow",
        "Action": list(SECRETS_KEY),
        "Resource": [key],
    }
    return document(statement)
