"""The access keys that the sandbox knows: the operator's, and one session for each instance with a role.

Another key fails as on AWS. Secrets are never printed, also not by `repr`.
"""

import secrets
import threading
from dataclasses import dataclass, field

_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """The caller. `role` is None for the operator, who may do everything."""

    arn: str
    user_id: str
    role: str | None = None
    instance_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An access key; `token` is empty for a key that does not expire."""

    access_key: str
    secret: str = field(repr=False)
    principal: Principal
    token: str = field(default="", repr=False)
    issued: float = 0.0
    expires: float | None = None


class KeyRing:
    """Issues keys and finds the key of a request. Times are those of the API's clock."""

    def __init__(
        self, account: str, *, operator: tuple[str, str] | None = None, session_s: float = 6 * 3600.0
    ) -> None:
        access_key, secret = operator or (f"AKIA{_letters(16)}", secrets.token_urlsafe(30))
        self.account = account
        self.operator = Key(
            access_key=access_key,
            secret=secret,
            principal=Principal(arn=f"arn:aws:iam::{account}:user/operator", user_id="AIDAOPERATOR000000000"),
        )
        self._session_s = session_s
        self._lock = threading.Lock()
        self._keys: dict[str, Key] = {access_key: self.operator}
        self._sessions: dict[tuple[str, str], Key] = {}

    def session(self, role: str, role_id: str, instance_id: str, now: float) -> Key:
        """Return the instance's session of `role`: the same session until half of its time is over."""
        with self._lock:
            self._drop_expired(now)
            known = self._sessions.get((instance_id, role))
            if known is not None and known.expires is not None and now < known.expires - self._session_s / 2:
                return known
            fresh = self._new_session(
                role, role_id, instance_id, now, seconds=self._session_s, instance_id=instance_id
            )
            self._sessions[instance_id, role] = self._keys[fresh.access_key] = fresh
            return fresh

    def assumed(self, role: str, role_id: str, session: str, now: float, seconds: float) -> Key:
        """Issue keys of an assumed role, new ones each time."""
        with self._lock:
            self._drop_expired(now)
            fresh = self._new_session(role, role_id, session, now, seconds=seconds)
            self._keys[fresh.access_key] = fresh
            return fresh

    def find(self, access_key: str) -> Key | None:
        """Return the key, also an expired one for a while; None for an unknown key."""
        with self._lock:
            return self._keys.get(access_key)

    def _new_session(
        self,
        role: str,
        role_id: str,
        name: str,
        now: float,
        *,
        seconds: float,
        instance_id: str | None = None,
    ) -> Key:
        return Key(
            access_key=f"ASIA{_letters(16)}",
            secret=secrets.token_urlsafe(30),
            token=secrets.token_urlsafe(96),
            principal=Principal(
                arn=f"arn:aws:sts::{self.account}:assumed-role/{role}/{name}",
                user_id=f"{role_id}:{name}",
                role=role,
                instance_id=instance_id,
            ),
            issued=now,
            expires=now + seconds,
        )

    def _drop_expired(self, now: float) -> None:
        # kept for an hour after expiry, so that a late caller reads "expired" instead of "unknown"
        old = [k for k, key in self._keys.items() if key.expires is not None and key.expires + 3600.0 < now]
        for access_key in old:
            del self._keys[access_key]


def _letters(count: int) -> str:
    return "".join(secrets.choice(_BASE32) for _ in range(count))
