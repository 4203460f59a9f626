"""The second host: objects behind signed URLs that expire, and nothing else. It wants no Authorization header."""

from __future__ import annotations

import hashlib
import hmac
import math
import secrets
import time
from urllib.parse import quote, urlencode

from modelkin.demo.messages import Request, Response, of_blob, of_bytes
from modelkin.demo.repository import Blob

SIGNATURE = "&X-Amz-Signature="


class Cdn:
    """Signs URLs for the Hub and answers them."""

    def __init__(self, lifetime: float) -> None:
        self.lifetime = lifetime
        self.endpoint = ""
        self._objects: dict[str, Blob] = {}
        self._secret = secrets.token_bytes(32)

    def sign(self, repository: str, blob: Blob) -> str:
        """A URL that reads this object, any range of it, until it expires."""
        path = f"/repos/{hashlib.sha256(repository.encode()).hexdigest()}/{blob.sha256}"
        self._objects[path] = blob
        query = {
            "X-Amz-Algorithm": "HMAC-SHA256",
            "X-Amz-Date": time.strftime("%Y%m%dT%H%M%SZ", time.gmtime()),
            "X-Amz-Expires": str(math.ceil(self.lifetime)),
            "Expires": f"{time.time() + self.lifetime:.3f}",
            "response-content-disposition": disposition(blob.name),
        }
        target = f"{path}?{urlencode(query)}"
        return f"{self.endpoint}{target}{SIGNATURE}{self._signature(target)}"

    def expire(self) -> None:
        """From now on every URL signed so far is refused."""
        self._secret = secrets.token_bytes(32)

    def answer(self, request: Request) -> Response:
        if "authorization" in request.headers:
            return xml_error(400, "InvalidArgument", "Only one auth mechanism allowed")
        if request.method not in ("GET", "HEAD"):
            return xml_error(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")
        target, _, signature = request.target.partition(SIGNATURE)
        if not hmac.compare_digest(signature.encode("latin-1"), self._signature(target).encode()):
            return xml_error(403, "SignatureDoesNotMatch", "The request signature does not match")
        if float(request.query["Expires"][0]) < time.time():
            return expired()
        blob = self._objects[request.raw_path]
        headers = {
            "ETag": f'"{blob.sha256}"',
            "Cache-Control": "public, max-age=31536000",
            "Content-Disposition": request.query["response-content-disposition"][0],
        }
        return of_blob(request, blob, headers)

    def _signature(self, target: str) -> str:
        return hmac.new(self._secret, target.encode("latin-1"), hashlib.sha256).hexdigest()


def disposition(name: str) -> str:
    quoted = quote(name.rsplit("/", 1)[-1])
    return f"inline; filename*=UTF-8''{quoted}; filename=\"{quoted}\";"


def expired() -> Response:
    return xml_error(403, "AccessDenied", "Request has expired")


def xml_error(status: int, code: str, message: str) -> Response:
    """An error as an object store words it."""
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code><Message>{message}</Message></Error>'
    return of_bytes(status, text.encode(), {"Content-Type": "application/xml"})
