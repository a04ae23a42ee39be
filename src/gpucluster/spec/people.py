"""The directory of users, and the warnings that the spec accepts."""

from gpucluster.spec.aws_fields import LdapBase, LdapUri, SecretArn, WarningId
from gpucluster.spec.fields import Day, Text, UpdateClass, spec_field
from gpucluster.spec.part import Part


class Ldap(Part):
    """An LDAP server. Machines query it through sssd."""

    uri: LdapUri = spec_field(UpdateClass.LIVE, "URI of the server. It must use TLS.")
    base: LdapBase = spec_field(UpdateClass.LIVE, "Base of the search for user accounts.")
    secret: SecretArn | None = spec_field(
        UpdateClass.LIVE,
        "ARN of the secret with the bind password. Without it the bind is anonymous.",
        default=None,
    )


class Directory(Part):
    """The directory of user accounts."""

    ldap: Ldap = spec_field(UpdateClass.LIVE, "LDAP through sssd, on every machine.")


class Accept(Part):
    """A warning that you accept."""

    id: WarningId = spec_field(UpdateClass.NONE, "Id of the warning: the word in brackets.")
    because: Text = spec_field(UpdateClass.NONE, "The reason.")
    until: Day | None = spec_field(
        UpdateClass.NONE,
        "The last day on which you accept it. A warning about security needs one. `validate` and "
        "`review --today DATE` show the warning again after it; `check` reads no clock.",
        default=None,
    )
