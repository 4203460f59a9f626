"""Each fault of the loopback Hub is what it says, on the wire."""

from __future__ import annotations

import gzip
import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from modelkin.demo.faults import (
    BadJson,
    Drop,
    EncodedBody,
    Expire,
    Fault,
    Garbage,
    Headers,
    IgnoreRange,
    RedirectLoop,
    Resized,
    Short,
    Stall,
    Status,
    WrongCommit,
    WrongRange,
    WrongTotal,
    rate_limited,
)
from modelkin.demo.hub import LoopbackHub, Repository

from .conftest import CONFIG, WEIGHTS, Ask, single

CONFIG_PATH = "/acme/tiny/resolve/main/config.json"
INFO_PATH = "/api/models/acme/tiny"


@contextmanager
def faulty(*faults: Fault) -> Iterator[LoopbackHub]:
    with LoopbackHub({"acme/tiny": Repository(files=single())}, faults=faults) as hub:
        yield hub


def weights(hub: LoopbackHub, ask: Ask) -> str:
    return ask(f"{hub.endpoint}/acme/tiny/resolve/main/model.safetensors").header("Location")


def everything(url: str, *headers: str) -> bytes:
    """All that comes back on a raw connection, until the other side closes."""
    parts = urlsplit(url)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    request = "\r\n".join([f"GET {target} HTTP/1.1", f"Host: {parts.netloc}", *headers, "", ""])
    host, port = parts.netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as client:
        client.sendall(request.encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_a_script_of_statuses_plays_in_order(ask: Ask) -> None:
    with faulty(Status(429, {"Retry-After": "1"}), Status(503), Status(500, count=2)) as hub:
        replies = [ask(hub.endpoint + CONFIG_PATH) for _ in range(5)]
    assert [reply.status for reply in replies] == [429, 503, 500, 500, 200]
    assert replies[0].header("Retry-After") == "1"
    assert [entry.fault for entry in hub.log] == ["Status"] * 4 + [""]


def test_rate_limited_says_nothing_is_left(ask: Ask) -> None:
    with faulty(rate_limited(7, "resolvers", path="/resolve/")) as hub:
        assert ask(hub.endpoint + INFO_PATH).status == 200
        reply = ask(hub.endpoint + CONFIG_PATH)
    assert (reply.status, reply.header("RateLimit")) == (429, '"resolvers";r=0;t=7')
    assert reply.headers.get("Retry-After") is None


def test_faults_choose_by_port_path_method_and_number(ask: Ask) -> None:
    faults = (
        Status(500, port="cdn"),
        Status(501, path=re.compile(r"tree/.*\?recursive"), count=None),
        Status(502, method="HEAD"),
        Status(503, path="config", skip=1),
    )
    with faulty(*faults) as hub:
        assert ask(hub.endpoint + INFO_PATH).status == 200
        assert ask(hub.endpoint + CONFIG_PATH, "HEAD").status == 502
        assert [ask(hub.endpoint + CONFIG_PATH).status for _ in range(3)] == [200, 503, 200]
        trees = [ask(f"{hub.endpoint}{INFO_PATH}/tree/main{query}").status for query in ("?recursive=1", "") * 2]
        assert trees == [501, 200, 501, 200]
        assert [ask(weights(hub, ask)).status for _ in range(2)] == [500, 200]


def test_drop_closes_in_the_middle_of_the_body(ask: Ask) -> None:
    with faulty(Drop(1000, port="cdn"), Drop(-1, port="cdn")) as hub:
        url = weights(hub, ask)
        with pytest.raises(http.client.IncompleteRead) as error:
            ask(url)
        assert error.value.partial == WEIGHTS[:1000]
        assert hub.log[-1].bytes == 1000
        assert everything(url) == b""
        assert ask(url).body == WEIGHTS


def test_drop_can_reset_the_connection(ask: Ask) -> None:
    with faulty(Drop(-1, reset=True)) as hub, pytest.raises(ConnectionResetError):
        ask(hub.endpoint + CONFIG_PATH)


def test_short_announces_more_than_it_sends(ask: Ask) -> None:
    with faulty(Short(3)) as hub, pytest.raises(http.client.IncompleteRead) as error:
        ask(hub.endpoint + CONFIG_PATH)
    assert error.value.partial == CONFIG[:-3]
    assert error.value.expected == 3


@pytest.mark.parametrize("by", [-5, 5])
def test_resized_is_consistent_and_wrong(ask: Ask, by: int) -> None:
    with faulty(Resized(by, port="cdn")) as hub:
        reply = ask(weights(hub, ask), Range="bytes=0-99")
    assert reply.header("Content-Range") == f"bytes 0-99/{len(WEIGHTS)}"
    assert reply.header("Content-Length") == str(100 + by)
    assert len(reply.body) == 100 + by


def test_wrong_range_sends_other_bytes_and_says_so(ask: Ask) -> None:
    with faulty(WrongRange(8, port="cdn", count=2)) as hub:
        reply = ask(weights(hub, ask), Range="bytes=16-31")
        whole = ask(weights(hub, ask))
    assert (reply.status, reply.header("Content-Range")) == (206, f"bytes 24-39/{len(WEIGHTS)}")
    assert reply.body == WEIGHTS[24:40]
    assert (whole.status, whole.body) == (200, WEIGHTS)


def test_wrong_total_lies_about_the_file_alone(ask: Ask) -> None:
    with faulty(WrongTotal(5, port="cdn")) as hub:
        reply = ask(weights(hub, ask), Range="bytes=16-31")
    assert reply.header("Content-Range") == f"bytes 16-31/{len(WEIGHTS) + 5}"
    assert reply.body == WEIGHTS[16:32]


def test_ignored_range_streams_until_the_client_leaves(ask: Ask) -> None:
    with faulty(IgnoreRange(port="cdn")) as hub:
        parts = urlsplit(weights(hub, ask))
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Range": "bytes=0-7"})
        response = connection.getresponse()
        assert (response.status, response.getheader("Content-Range")) == (200, None)
        body = response.read(3 * len(WEIGHTS))
        assert body == WEIGHTS * 3
        response.close()
        connection.close()
        time.sleep(0.1)
        taken = hub.log[-1].bytes
        time.sleep(0.1)
        assert len(body) <= taken == hub.log[-1].bytes


def test_ignored_range_is_left_early_by_a_client_that_looks(ask: Ask) -> None:
    big = {"model.bin": bytes(50 << 20)}
    with LoopbackHub({"acme/tiny": Repository(files=big)}, faults=[IgnoreRange(False, port="cdn")]) as hub:
        url = ask(f"{hub.endpoint}/acme/tiny/resolve/main/model.bin").header("Location")
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", f"{parts.path}?{parts.query}", headers={"Range": "bytes=0-7"})
        response = connection.getresponse()
        assert response.getheader("Content-Length") == str(50 << 20)
        response.close()
        connection.close()
        time.sleep(0.1)
        assert hub.log[-1].bytes < 4 << 20


def test_headers_can_be_changed_and_taken_away(ask: Ask) -> None:
    with faulty(Headers({"x-repo-commit": None, "ETag": '"other"'}), WrongCommit()) as hub:
        bare, wrong, right = (ask(hub.endpoint + CONFIG_PATH) for _ in range(3))
    assert bare.headers.get("X-Repo-Commit") is None
    assert bare.header("ETag") == '"other"'
    assert wrong.header("X-Repo-Commit") == "f" * 40
    assert right.header("X-Repo-Commit") == hub.repositories["acme/tiny"].refs["main"]


def test_expire_is_one_403_of_the_cdn(ask: Ask) -> None:
    with faulty(Expire()) as hub:
        url = weights(hub, ask)
        replies = [ask(url, Range="bytes=0-0") for _ in range(2)]
    assert [reply.status for reply in replies] == [403, 206]
    assert b"Request has expired" in replies[0].body


def test_stall_before_and_inside_the_body(ask: Ask) -> None:
    with faulty(Stall(0.2), Stall(0.2, after_bytes=10)) as hub:
        began = time.monotonic()
        assert ask(hub.endpoint + CONFIG_PATH).body == CONFIG
        assert time.monotonic() - began >= 0.2
        connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
        connection.request("GET", CONFIG_PATH)
        response = connection.getresponse()
        assert response.read(10) == CONFIG[:10]
        assert hub.log[-1].bytes == 10
        assert response.read() == CONFIG[10:]
        connection.close()


def test_a_stalled_hub_still_closes_at_once() -> None:
    with faulty(Stall(60)) as hub:
        connection = http.client.HTTPConnection(urlsplit(hub.endpoint).netloc)
        connection.request("GET", CONFIG_PATH)
        time.sleep(0.05)
        began = time.monotonic()
    connection.close()
    assert time.monotonic() - began < 5


def test_a_client_that_does_not_read_does_not_keep_the_hub_open(ask: Ask) -> None:
    with LoopbackHub({"acme/tiny": Repository(files={"model.bin": bytes(50 << 20)})}) as hub:
        parts = urlsplit(ask(f"{hub.endpoint}/acme/tiny/resolve/main/model.bin").header("Location"))
        connection = http.client.HTTPConnection(parts.netloc)
        connection.request("GET", f"{parts.path}?{parts.query}")
        time.sleep(0.05)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert hub.log[-1].bytes < 50 << 20
    connection.close()


def test_garbage_is_not_http(ask: Ask) -> None:
    with faulty(Garbage(), Garbage(b"hello")) as hub:
        with pytest.raises(http.client.BadStatusLine):
            ask(hub.endpoint + CONFIG_PATH)
        assert everything(hub.endpoint + CONFIG_PATH) == b"hello"


def test_bad_json_breaks_off(ask: Ask) -> None:
    with faulty(BadJson()) as hub:
        reply = ask(hub.endpoint + INFO_PATH, Accept_Encoding="gzip")
    assert (reply.status, reply.header("Content-Type")) == (200, "application/json; charset=utf-8")
    with pytest.raises(json.JSONDecodeError):
        reply.json  # noqa: B018


def test_redirect_loop_points_at_itself(ask: Ask) -> None:
    with faulty(RedirectLoop(path="config")) as hub:
        replies = [ask(f"{hub.endpoint}{CONFIG_PATH}?download=true") for _ in range(3)]
    assert {(reply.status, reply.header("Location")) for reply in replies} == {(302, f"{CONFIG_PATH}?download=true")}


def test_encoded_body_is_gzip_of_the_range(ask: Ask) -> None:
    with faulty(EncodedBody(port="cdn")) as hub:
        reply = ask(weights(hub, ask), Range="bytes=8-107", Accept_Encoding="identity")
    assert (reply.status, reply.header("Content-Encoding")) == (206, "gzip")
    assert gzip.decompress(reply.body) == WEIGHTS[8:108]


def test_a_fault_can_be_added_while_the_hub_runs(ask: Ask) -> None:
    with faulty() as hub:
        assert ask(hub.endpoint + CONFIG_PATH).status == 200
        hub.add_fault(Status(500))
        assert [ask(hub.endpoint + CONFIG_PATH).status for _ in range(2)] == [500, 200]
