"""The Hub's own port: its API and /resolve/, with its status codes and error headers."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, quote, unquote, urlencode

from modelkin.demo import listing
from modelkin.demo.cdn import Cdn, disposition
from modelkin.demo.messages import Request, Response, of_blob, of_bytes_or_gzip, of_json
from modelkin.demo.repository import Blob, Repository

API = "/api/models/"
RESOLVE_CACHE = "/api/resolve-cache/models/"
LOG_IN = "You must have access to it and be authenticated to access it. Please log in."
ASK = "and you are not in the authorized list. Visit the model page to ask for access."


@dataclass(frozen=True)
class Options:
    """The rarer settings of a hub. `quotas` are requests per `window` seconds, stated always and enforced if asked.

    `resolve_cache`: small files answer 307 to a second path of the same host first, as the real Hub does since 2025.
    `renamed` maps old repository names to new ones; the old ones redirect.
    """

    page_size: int = 1000
    quotas: Mapping[str, int] = field(default_factory=lambda: {"api": 500, "resolvers": 3000})
    window: int = 300
    enforce_quotas: bool = False
    resolve_cache: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    port: int = 0


@dataclass(frozen=True)
class Asked:
    """A request to the API, taken apart: what it is about, and what follows the verb."""

    request: Request
    name: str
    repository: Repository
    rest: str


class Refusal(Exception):
    """An answer other than the one asked for."""

    def __init__(self, status: int, message: str, code: str | None = None, **headers: str) -> None:
        message = " ".join(message.split())  # it travels in a header
        super().__init__(message)
        self.status = status
        self.headers = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | headers


class Site:
    def __init__(self, repositories: dict[str, Repository], cdn: Cdn, token: str | None, options: Options) -> None:
        self.repositories = repositories
        self.endpoint = ""
        self._cdn = cdn
        self._token = token
        self._options = options
        self._quota = Quota(options)
        self._headers: dict[tuple[str, str], Blob] = {}
        self._verbs: Mapping[str, Callable[[Asked], Response]] = {
            "revision": self._info,
            "tree": self._tree,
            "paths-info": self._paths_info,
            "refs": self._refs,
            "safetensors-metadata": self._shard_headers,
        }

    def answer(self, request: Request) -> Response:
        bucket = "api" if request.raw_path.startswith(API) else "resolvers"
        allowed, headers = self._quota.count(bucket)
        try:
            if not allowed:
                raise Refusal(429, "Too many requests")
            response = self._route(request)
        except Refusal as refusal:
            response = of_json(request, {"error": str(refusal)}, refusal.headers, refusal.status)
        return response.with_headers(headers)

    def _route(self, request: Request) -> Response:
        path = request.raw_path
        if request.method not in ("GET", "HEAD") and "/paths-info/" not in path:
            raise Refusal(405, "Method not allowed")
        if path.startswith(RESOLVE_CACHE):
            name, commit, file = self._split(path.removeprefix(RESOLVE_CACHE), None)
            return self._resolve(request, name, commit, file, cached=True)
        if path.startswith(API):
            name, verb, rest = self._split(path.removeprefix(API), tuple(self._verbs))
            self._follow_renaming(request, name)
            return self._verbs[verb or "revision"](Asked(request, name, self._repository(request, name), rest))
        name, verb, rest = self._split(path.removeprefix("/"), ("resolve",))
        if verb != "resolve":
            raise Refusal(404, "Sorry, we can't find the page you are looking for.")
        self._follow_renaming(request, name)
        revision, _, file = rest.partition("/")
        return self._resolve(request, name, revision, file)

    def _split(self, path: str, verbs: tuple[str, ...] | None) -> tuple[str, str, str]:
        """`owner/name/verb/rest` or `name/verb/rest`; where no verbs are given, any word may follow a known name."""
        parts = path.split("/")
        for length in (2, 1):
            name, verb = unquote("/".join(parts[:length])), parts[length] if len(parts) > length else ""
            if (name in self.repositories) if verbs is None else (verb in verbs):
                return name, verb, "/".join(parts[length + 1 :])
        return unquote(path), "", ""

    def _follow_renaming(self, request: Request, name: str) -> None:
        if new := self._options.renamed.get(name):
            location = request.target.replace(quote(name), quote(new), 1)
            raise Refusal(307, f"Moved to {new}", Location=location)

    def _repository(self, request: Request, name: str) -> Repository:
        """The repository, where this caller may know of it at all."""
        known = self._signed_in(request)
        repository = self.repositories.get(name)
        if repository is None or (repository.private and not known):
            if known:
                raise Refusal(404, "Repository not found", "RepoNotFound")
            raise Refusal(401, "Invalid username or password.", "RepoNotFound")
        return repository

    def _signed_in(self, request: Request) -> bool:
        """With no token set nobody is known, and whatever is sent is ignored."""
        sent = request.headers.get("authorization")
        if sent is None or self._token is None:
            return False
        if sent != f"Bearer {self._token}":
            raise Refusal(401, "Invalid credentials in Authorization header")
        return True

    def _commit(self, repository: Repository, revision: str) -> str:
        sha = repository.resolve(unquote(revision) or "main")
        if sha is None:
            raise Refusal(404, f"Invalid rev id: {unquote(revision)}", "RevisionNotFound")
        return sha

    def _info(self, asked: Asked) -> Response:
        sha = self._commit(asked.repository, asked.rest)
        info = listing.model_info(asked.name, asked.repository, sha, asked.request.asks("blobs"))
        wanted = asked.request.query.get("expand", []) + asked.request.query.get("expand[]", [])
        if wanted:
            info = {key: value for key, value in info.items() if key in {"_id", "id", "modelId", *wanted}}
        return of_json(asked.request, info, {})

    def _tree(self, asked: Asked) -> Response:
        revision, _, folder = asked.rest.partition("/")
        sha = self._commit(asked.repository, revision)
        recursive, expand = asked.request.asks("recursive"), asked.request.asks("expand")
        entries = listing.tree(asked.repository, sha, unquote(folder).strip("/"), recursive, expand)
        if entries is None:
            raise Refusal(404, f'{unquote(folder)} does not exist on "{unquote(revision)}"', "EntryNotFound")
        begin = cursor_position(asked.request.query.get("cursor", [""])[0])
        end = begin + self._options.page_size
        headers = {}
        if end < len(entries):
            query = urlencode(
                {"recursive": str(recursive).lower(), "expand": str(expand).lower(), "cursor": cursor(end)}
            )
            headers["Link"] = f'<{self.endpoint}{asked.request.raw_path}?{query}>; rel="next"'
        return of_json(asked.request, entries[begin:end], headers)

    def _paths_info(self, asked: Asked) -> Response:
        sha = self._commit(asked.repository, asked.rest)
        wanted = set(parse_qs(asked.request.body.decode("utf-8", "replace")).get("paths", []))
        entries = listing.tree(asked.repository, sha, "", recursive=True, expand=False) or []
        return of_json(asked.request, [entry for entry in entries if entry["path"] in wanted], {})

    def _refs(self, asked: Asked) -> Response:
        branches = [
            {"name": ref, "ref": f"refs/heads/{ref}", "targetCommit": sha} for ref, sha in asked.repository.refs.items()
        ]
        return of_json(asked.request, {"branches": branches, "converts": [], "tags": []}, {})

    def _shard_headers(self, asked: Asked) -> Response:
        """Of `main` only, as the real one."""
        sha = self._commit(asked.repository, "main")
        if (sha, asked.rest) not in self._headers:
            found = listing.shard_headers(asked.repository.commits[sha], unquote(asked.rest))
            if found is None:
                raise Refusal(404, "Index not found", "EntryNotFound")
            plain = of_json(replace(asked.request, headers={}), found, {})
            self._headers[sha, asked.rest] = Blob("headers.json", plain.body.read(0, plain.stop))
        return of_bytes_or_gzip(asked.request, self._headers[sha, asked.rest], {})

    def _resolve(self, request: Request, name: str, revision: str, file: str, cached: bool = False) -> Response:
        repository = self._repository(request, name)
        self._check_gate(request, name, repository)
        sha = self._commit(repository, revision)
        blob = repository.commits[sha].get(unquote(file))
        if blob is None:
            raise Refusal(404, "Entry not found", "EntryNotFound", **{"X-Repo-Commit": sha})
        headers = {"X-Repo-Commit": sha, "Content-Disposition": disposition(blob.name)}
        linked = {"X-Linked-Size": str(blob.size), "X-Linked-ETag": f'"{blob.sha256 if blob.lfs else blob.oid}"'}
        if blob.lfs:
            xet = {"X-Xet-Hash": blob.xet_hash} if repository.xet else {}
            location = {"Location": self._cdn.sign(name, blob)}
            return Response(302, {**headers, **linked, **xet, **location})
        if self._options.resolve_cache and not cached:
            query = urlencode({request.raw_path: "", "etag": f'"{blob.oid}"'})
            location = {"Location": f"{RESOLVE_CACHE}{quote(name)}/{sha}/{quote(blob.name)}?{query}"}
            return Response(307, {**headers, **linked, **location})
        return small_file(request, blob, headers)

    def _check_gate(self, request: Request, name: str, repository: Repository) -> None:
        if not repository.gated:
            return
        if not self._signed_in(request):
            raise Refusal(401, f"Access to model {name} is restricted. {LOG_IN}", "GatedRepo")
        if not repository.granted:
            raise Refusal(403, f"Access to model {name} is restricted {ASK}", "GatedRepo")


def small_file(request: Request, blob: Blob, headers: Mapping[str, str]) -> Response:
    """Served by the Hub itself: ranges honoured, else compressed where the client takes it."""
    if request.accepts_gzip and "range" not in request.headers:
        return of_bytes_or_gzip(request, blob, {**headers, "ETag": f'W/"{blob.oid}"'})
    return of_blob(request, blob, {**headers, "ETag": f'"{blob.oid}"'})


class Quota:
    """Requests left in the running window, as the RateLimit headers state them (IETF draft 9)."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._began = time.monotonic()
        self._used: dict[str, int] = {}

    def count(self, bucket: str) -> tuple[bool, dict[str, str]]:
        """Whether this request is allowed, and what to say about it."""
        window, limit = self._options.window, self._options.quotas[bucket]
        if time.monotonic() - self._began >= window:
            self._began, self._used = time.monotonic(), {}
        self._used[bucket] = used = self._used.get(bucket, 0) + 1
        reset = max(1, round(self._began + window - time.monotonic()))
        headers = {
            "RateLimit": f'"{bucket}";r={max(0, limit - used)};t={reset}',
            "RateLimit-Policy": f'"fixed window";"{bucket}";q={limit};w={window}',
        }
        return not self._options.enforce_quotas or used <= limit, headers


def cursor(position: int) -> str:
    return base64.urlsafe_b64encode(b"%d" % position).decode()


def cursor_position(text: str) -> int:
    """Where a page begins; a cursor that is none of ours is the first page."""
    try:
        return int(base64.urlsafe_b64decode(text) or 0)
    except ValueError:
        return 0
