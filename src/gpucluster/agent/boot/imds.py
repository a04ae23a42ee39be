"""Client of the instance metadata service, version 2 (IMDSv2): PUT returns a token, each GET sends it."""

import http.client
import threading
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from gpucluster.agent.machine import NotYetError
from gpucluster.plan import names

TOKEN_TTL_S = 21600  # the longest that the service allows
TIMEOUT_S = 2.0


@dataclass(slots=True)
class Metadata:
    """Call it with a path below /latest/. It renews an expired token once."""

    url: str = names.METADATA
    _token: str | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, path: str) -> str:
        text = self.maybe(path)
        if text is None:
            raise NotYetError(f"the metadata service answered 404 for {path}", limit_s=120)
        return text

    def maybe(self, path: str) -> str | None:
        """Return the text; None for 404. The path of a notice answers 404 until there is a notice."""
        with self._lock:
            status, text = self._get(path)
            if status == http.client.UNAUTHORIZED:
                self._token = None
                status, text = self._get(path)
        if status == http.client.NOT_FOUND:
            return None
        if status != http.client.OK:
            raise NotYetError(f"the metadata service answered {status} for {path}", limit_s=120)
        return text

    def _get(self, path: str) -> tuple[int, str]:
        if self._token is None:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(TOKEN_TTL_S)}
            status, token = self._ask("PUT", "api/token", ttl)
            if status != http.client.OK:
                return status, token
            self._token = token
        return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, str]:
        place = urlsplit(self.url)
        connection = http.client.HTTPConnection(place.hostname or "", place.port or 80, timeout=TIMEOUT_S)
        try:
            connection.request(method, f"/latest/{path}", headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(65536).decode(errors="replace").strip()
        except (OSError, http.client.HTTPException) as error:
            raise NotYetError(f"the metadata service does not answer: {error}", limit_s=120) from error
        finally:
            connection.close()
