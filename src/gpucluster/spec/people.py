"""People by a directory, instead of a list; and what the spec's own warnings are told."""

from gpucluster.spec.aws_fields import LdapBase, LdapUri, SecretArn, WarningId
from gpucluster.spec.fields import Text, UpdateClass, wish
from gpucluster.spec.part import Part


class Ldap(Part):
    """An LDAP server, asked through sssd."""

    uri: LdapUri = wish(UpdateClass.LIVE, "The server, over TLS.")
    base: LdapBase = wish(UpdateClass.LIVE, "Where people are searched.")
    secret: SecretArn | None = wish(
        UpdateClass.LIVE, "ARN of the secret with the bind password; anonymous if absent.", default=None
    )


class Directory(Part):
    """Where people come from."""

    ldap: Ldap = wish(UpdateClass.LIVE, "LDAP through sssd, on every machine.")


class Accept(Part):
    """A warning that is known and right here."""

    id: WarningId = wish(UpdateClass.NONE, "The warning's id, as it stands in brackets.")
    because: Text = wish(UpdateClass.NONE, "Why it does not hold here.")
