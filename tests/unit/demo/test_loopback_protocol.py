"""The loopback Hub answers as the real one does, header by header."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from modelkin.demo.hub import LoopbackHub, Options, Repository

from .conftest import CONFIG, WEIGHTS, Ask, single


def resolved(hub: LoopbackHub, ask: Ask, file: str = "model.safetensors", name: str = "acme/tiny") -> str:
    return ask(f"{hub.endpoint}/{name}/resolve/main/{file}").header("Location")


class Zeros:
    """Larger than any memory."""

    size = 1 << 44

    def read(self, start: int, stop: int) -> bytes:
        return bytes(stop - start)


def test_model_information_states_commit_files_and_card(hub: LoopbackHub, ask: Ask) -> None:
    info = ask(f"{hub.endpoint}/api/models/acme/tiny").json
    assert info["sha"] == hub.repositories["acme/tiny"].refs["main"]
    assert {entry["rfilename"] for entry in info["siblings"]} == set(single())
    assert info["cardData"]["base_model"] == "acme/base"
    assert "base_model:acme/base" in info["tags"]
    assert info["config"] == {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
    assert info["safetensors"] == {"parameters": {"BF16": 8192}, "total": 8192}
    assert info["gated"] is False


def test_expand_returns_only_what_was_named(hub: LoopbackHub, ask: Ask) -> None:
    info = ask(f"{hub.endpoint}/api/models/acme/tiny?expand=sha&expand=gated").json
    assert set(info) == {"_id", "id", "modelId", "sha", "gated"}


def test_a_branch_with_a_slash_is_found_quoted(hub: LoopbackHub, ask: Ask) -> None:
    sha = hub.move("acme/tiny", "refs/pr/1", files={"config.json": b"{}"})
    assert ask(f"{hub.endpoint}/api/models/acme/tiny/revision/refs%2Fpr%2F1").json["sha"] == sha
    assert ask(f"{hub.endpoint}/acme/tiny/resolve/refs%2Fpr%2F1/config.json").body == b"{}"


def test_answers_are_compressed_only_where_gzip_is_accepted(hub: LoopbackHub, ask: Ask) -> None:
    for path in ("/api/models/acme/tiny", "/acme/tiny/resolve/main/config.json"):
        plain = ask(hub.endpoint + path, Accept_Encoding="identity")
        packed = ask(hub.endpoint + path, Accept_Encoding="gzip, deflate")
        assert plain.headers.get("Content-Encoding") is None
        assert packed.header("Content-Encoding") == "gzip"
        assert packed.headers.get("Content-Length") is None
        assert gzip.decompress(packed.body) == plain.body


def test_tree_lists_files_and_folders_with_their_hashes(hub: LoopbackHub, ask: Ask) -> None:
    entries = {
        entry["path"]: entry for entry in ask(f"{hub.endpoint}/api/models/acme/tiny/tree/main?recursive=true").json
    }
    assert entries["assets"]["type"] == "directory"
    assert entries["config.json"]["oid"] == hashlib.sha1(b"blob %d\0%b" % (len(CONFIG), CONFIG)).hexdigest()
    assert "lfs" not in entries["config.json"]
    large = entries["model.safetensors"]
    assert large["lfs"]["oid"] == hashlib.sha256(WEIGHTS).hexdigest()
    assert large["lfs"]["size"] == large["size"] == len(WEIGHTS)
    assert len(large["xetHash"]) == 64


def test_tree_of_a_folder_and_of_the_top_level_alone(hub: LoopbackHub, ask: Ask) -> None:
    tree = f"{hub.endpoint}/api/models/acme/tiny/tree/main"
    assert "assets/notes.txt" not in {entry["path"] for entry in ask(tree).json}
    assert [entry["path"] for entry in ask(f"{tree}/assets").json] == ["assets/notes.txt"]
    assert ask(f"{tree}/nowhere").header("X-Error-Code") == "EntryNotFound"


def test_large_file_redirects_to_a_signed_url_on_the_cdn(hub: LoopbackHub, ask: Ask) -> None:
    reply = ask(f"{hub.endpoint}/acme/tiny/resolve/main/model.safetensors")
    assert reply.status == 302
    assert reply.header("X-Repo-Commit") == hub.repositories["acme/tiny"].refs["main"]
    assert reply.header("X-Linked-Size") == str(len(WEIGHTS))
    assert reply.header("X-Linked-ETag") == f'"{hashlib.sha256(WEIGHTS).hexdigest()}"'
    assert reply.header("Location").startswith(hub.cdn_endpoint)
    assert ask(reply.header("Location")).body == WEIGHTS


@pytest.mark.parametrize(
    ("asked", "span"),
    [("bytes=0-7", (0, 8)), ("bytes=100-", (100, None)), ("bytes=-16", (-16, None)), ("bytes=5-99999999", (5, None))],
)
def test_one_range_is_honoured_on_both_ports(hub: LoopbackHub, ask: Ask, asked: str, span: tuple[int, int]) -> None:
    for url, content in (
        (resolved(hub, ask), WEIGHTS),
        (f"{hub.endpoint}/acme/tiny/resolve/main/config.json", CONFIG),
    ):
        reply = ask(url, Range=asked, Accept_Encoding="gzip")
        expected = content[slice(*span)]
        first = len(content) + span[0] if span[0] < 0 else span[0]
        assert reply.status == 206
        assert reply.body == expected
        assert reply.header("Content-Range") == f"bytes {first}-{first + len(expected) - 1}/{len(content)}"
        assert reply.headers.get("Content-Encoding") is None


def test_a_range_past_the_end_is_416(hub: LoopbackHub, ask: Ask) -> None:
    reply = ask(resolved(hub, ask), Range=f"bytes={len(WEIGHTS)}-")
    assert reply.status == 416
    assert reply.header("Content-Range") == f"bytes */{len(WEIGHTS)}"


def test_several_ranges_get_the_whole_object(hub: LoopbackHub, ask: Ask) -> None:
    reply = ask(resolved(hub, ask), Range="bytes=0-7,16-23")
    assert (reply.status, reply.body) == (200, WEIGHTS)


def test_cdn_refuses_an_authorization_header_and_logs_it(hub: LoopbackHub, ask: Ask) -> None:
    assert ask(resolved(hub, ask), Authorization="Bearer hf_right").status == 400
    assert (hub.log[-1].port, hub.log[-1].authorization) == ("cdn", True)
    assert "authorization" not in hub.log[-1].headers


def test_cdn_refuses_a_url_that_was_changed_or_is_too_old(hub: LoopbackHub, ask: Ask) -> None:
    url = resolved(hub, ask)
    assert ask(url.replace("Expires=1", "Expires=2")).status == 403
    assert ask(url.partition("?")[0]).status == 403
    assert ask(url, Range="bytes=0-0").status == 206
    hub.expire_urls()
    assert ask(url, Range="bytes=0-0").status == 403
    assert ask(resolved(hub, ask), Range="bytes=0-0").status == 206


def test_signed_urls_expire(ask: Ask) -> None:
    with LoopbackHub({"acme/tiny": Repository(files=single())}, signed_url_seconds=0.05) as hub:
        url = resolved(hub, ask)
        time.sleep(0.1)
        reply = ask(url)
    assert reply.status == 403
    assert b"expired" in reply.body


@pytest.mark.parametrize(
    ("path", "token", "status", "code"),
    [
        ("/api/models/acme/nothing", None, 401, "RepoNotFound"),
        ("/api/models/acme/nothing", "hf_right", 404, "RepoNotFound"),
        ("/api/models/acme/private", None, 401, "RepoNotFound"),
        ("/acme/private/resolve/main/config.json", None, 401, "RepoNotFound"),
        ("/acme/gated/resolve/main/config.json", None, 401, "GatedRepo"),
        ("/acme/gated/resolve/main/config.json", "hf_right", 403, "GatedRepo"),
        ("/acme/granted/resolve/main/model.safetensors", None, 401, "GatedRepo"),
        ("/api/models/acme/tiny/revision/nowhere", None, 404, "RevisionNotFound"),
        ("/api/models/acme/tiny/tree/nowhere", None, 404, "RevisionNotFound"),
        ("/acme/tiny/resolve/nowhere/config.json", None, 404, "RevisionNotFound"),
        ("/acme/tiny/resolve/main/nothing.json", None, 404, "EntryNotFound"),
    ],
)
def test_refusals_carry_the_hubs_codes(
    hub: LoopbackHub, ask: Ask, path: str, token: str | None, status: int, code: str
) -> None:
    reply = ask(hub.endpoint + path, **({"Authorization": f"Bearer {token}"} if token else {}))
    assert (reply.status, reply.header("X-Error-Code")) == (status, code)
    assert reply.json["error"] == reply.header("X-Error-Message")


def test_the_right_token_opens_private_and_granted_repositories(hub: LoopbackHub, ask: Ask) -> None:
    for name in ("private", "granted"):
        url = f"{hub.endpoint}/acme/{name}/resolve/main/config.json"
        assert ask(url, Authorization="Bearer hf_right").body == CONFIG
    wrong = ask(f"{hub.endpoint}/api/models/acme/tiny", Authorization="Bearer hf_wrong")
    assert (wrong.status, wrong.header("X-Error-Message")) == (401, "Invalid credentials in Authorization header")


def test_a_gated_repository_still_shows_its_tree(hub: LoopbackHub, ask: Ask) -> None:
    assert ask(f"{hub.endpoint}/api/models/acme/gated").json["gated"] == "manual"
    assert len(ask(f"{hub.endpoint}/api/models/acme/gated/tree/main").json) == 4


def test_a_moved_branch_keeps_the_old_commit(hub: LoopbackHub, ask: Ask) -> None:
    old = hub.repositories["acme/tiny"].refs["main"]
    new = hub.move("acme/tiny", files={**single(), "config.json": b'{"moved": true}'})
    assert new != old
    assert ask(f"{hub.endpoint}/acme/tiny/resolve/main/config.json").header("X-Repo-Commit") == new
    assert ask(f"{hub.endpoint}/acme/tiny/resolve/{old}/config.json").body == CONFIG
    assert hub.move("acme/tiny", commit=old) == old
    assert hub.move("acme/tiny", commit="a" * 40, files=single()) == "a" * 40
    with pytest.raises(KeyError):
        hub.move("acme/tiny", commit="b" * 40)


def test_equal_content_gives_equal_commits() -> None:
    assert Repository(files=single()).refs == Repository(files=single()).refs


def test_rate_limits_are_stated_and_can_be_enforced(ask: Ask) -> None:
    options = Options(quotas={"api": 2, "resolvers": 5}, enforce_quotas=True)
    with LoopbackHub({"acme/tiny": Repository(files=single())}, options=options) as hub:
        replies = [ask(f"{hub.endpoint}/api/models/acme/tiny") for _ in range(3)]
        other = ask(f"{hub.endpoint}/acme/tiny/resolve/main/config.json")
    assert [reply.status for reply in replies] == [200, 200, 429]
    assert replies[0].header("RateLimit").startswith('"api";r=1;t=')
    assert replies[2].header("RateLimit").startswith('"api";r=0;t=')
    assert replies[0].header("RateLimit-Policy") == '"fixed window";"api";q=2;w=300'
    assert (other.status, other.header("RateLimit")[:15]) == (200, '"resolvers";r=4')


def test_small_files_can_pass_through_a_second_path(ask: Ask) -> None:
    options = Options(resolve_cache=True)
    with LoopbackHub({"acme/tiny": Repository(files=single())}, options=options) as hub:
        reply = ask(f"{hub.endpoint}/acme/tiny/resolve/main/assets/notes.txt")
        again = ask(hub.endpoint + reply.header("Location"), Range="bytes=0-2")
    assert (reply.status, reply.header("Location")[0]) == (307, "/")
    assert (again.status, again.body) == (206, b"two")
    assert again.header("X-Repo-Commit") == reply.header("X-Repo-Commit")


def test_a_renamed_repository_redirects(ask: Ask) -> None:
    options = Options(renamed={"old/name": "acme/tiny"})
    with LoopbackHub({"acme/tiny": Repository(files=single())}, options=options) as hub:
        places = [ask(hub.endpoint + path) for path in ("/api/models/old/name", "/old/name/resolve/main/config.json")]
    assert [reply.status for reply in places] == [307, 307]
    assert places[0].header("Location") == "/api/models/acme/tiny"
    assert places[1].header("Location") == "/acme/tiny/resolve/main/config.json"


def test_files_come_from_disk_and_from_bodies_larger_than_memory(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(range(256)))
    repository = Repository(files={"model.bin": tmp_path / "model.bin", "model.safetensors": Zeros()})
    with LoopbackHub({"acme/tiny": repository}) as hub:
        assert ask(resolved(hub, ask, "model.bin"), Range="bytes=250-").body == bytes(range(250, 256))
        reply = ask(resolved(hub, ask), Range=f"bytes={Zeros.size - 3}-")
        assert ask(f"{hub.endpoint}/api/models/acme/tiny/tree/main").json[1]["lfs"]["size"] == Zeros.size
    assert (reply.body, reply.header("Content-Range")) == (
        b"\0\0\0",
        f"bytes {Zeros.size - 3}-{Zeros.size - 1}/{Zeros.size}",
    )


def test_head_has_headers_and_no_body(hub: LoopbackHub, ask: Ask) -> None:
    reply = ask(f"{hub.endpoint}/acme/tiny/resolve/main/config.json", "HEAD", Accept_Encoding="identity")
    assert (reply.body, reply.header("Content-Length")) == (b"", str(len(CONFIG)))
    assert hub.log[-1].bytes == 0
    assert ask(f"{hub.endpoint}/acme/tiny/resolve/main/nothing", "HEAD").header("X-Error-Code") == "EntryNotFound"


def test_a_connection_is_kept_and_told_apart_in_the_log(hub: LoopbackHub) -> None:
    for _ in range(2):
        connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
        for _ in range(3):
            connection.request("GET", "/acme/tiny/resolve/main/config.json")
            connection.getresponse().read()
        connection.close()
    assert [entry.connection for entry in hub.log] == [1, 1, 1, 2, 2, 2]
    assert {(entry.status, entry.bytes) for entry in hub.log} == {(200, len(CONFIG))}


def test_delays_are_per_exchange_and_per_connection() -> None:
    with LoopbackHub({"acme/tiny": Repository(files=single())}, latency=0.1, connect_latency=0.2) as hub:
        connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
        seconds = []
        for _ in range(2):
            began = time.monotonic()
            connection.request("GET", "/acme/tiny/resolve/main/config.json")
            connection.getresponse().read()
            seconds.append(time.monotonic() - began)
        connection.close()
    assert seconds[0] >= 0.3
    assert 0.1 <= seconds[1] < 0.3


def test_hundreds_of_connections_wait_side_by_side() -> None:
    with LoopbackHub({"acme/tiny": Repository(files=single())}, latency=0.2) as hub:
        statuses: list[int] = []

        def one() -> None:
            connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
            connection.request("GET", "/acme/tiny/resolve/main/config.json")
            statuses.append(connection.getresponse().status)
            connection.close()

        threads = [threading.Thread(target=one) for _ in range(200)]
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert statuses == [200] * 200
    assert time.monotonic() - began < 5  # one after the other they would take 40


def test_what_is_no_request_is_refused(hub: LoopbackHub, ask: Ask) -> None:
    connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
    connection.connect()
    connection.sock.sendall(b"\x16\x03\x01 hello\r\n\r\n")
    assert connection.sock.recv(100).startswith(b"HTTP/1.1 400 ")
    connection.close()
    assert ask(f"{hub.endpoint}/api/models/acme/tiny", "DELETE").status == 405
    assert ask(f"{hub.endpoint}/").status == 404


def test_an_error_of_the_server_itself_is_raised_at_the_end(ask: Ask) -> None:
    class Liar(Zeros):
        def read(self, start: int, stop: int) -> bytes:
            return super().read(start, stop)[:1]

    hub = LoopbackHub({"acme/tiny": Repository(files={"model.bin": Liar()})})
    hub.start()
    with pytest.raises(http.client.HTTPException):
        ask(resolved(hub, ask, "model.bin"), Range="bytes=0-9")
    with pytest.raises(RuntimeError, match="expected 10"):
        hub.close()
