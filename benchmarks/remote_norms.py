"""All norm gains of a 42-shard and a 47-shard model over HTTP: ours beside the published scripts' way of reading.

    python benchmarks/remote_norms.py [--latency 0.1] [--connections 32]

Both models have the real layout (names, shapes, header sizes); their bytes are made up on the fly by a loopback Hub in
a process of its own, which answers every exchange `latency` seconds late and makes a new connection wait twice that
once more (TCP and TLS). The scripts' way: two header reads a shard, one GET a tensor, the redirect followed each time,
one after the other. It gets kept-alive connections here, which the scripts did not use, so it is flattered.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from urllib.parse import urlsplit

from layouts import glm_45_air, solar_open_100b

from modelkin.architectures import identify
from modelkin.checkpoint import open_checkpoint
from modelkin.demo.hub import LoopbackHub
from modelkin.inspection import gain_statistics
from modelkin.sources.address import HubAddress
from modelkin.sources.cache import RangeCache
from modelkin.sources.hub import HubOptions, HubSource
from modelkin.sources.transport import Transport

MODELS = {"upstage/Solar-Open-100B": solar_open_100b, "zai-org/GLM-4.5-Air": glm_45_air}
COLD_RUNS = 5
NORMS = ("input_layernorm.weight", "post_attention_layernorm.weight")


def serve(latency: float, pipe: Connection) -> None:
    repositories = {name: make() for name, make in MODELS.items()}
    with LoopbackHub(repositories, latency=latency, connect_latency=2 * latency) as hub:
        pipe.send(hub.endpoint)
        pipe.recv()


@contextmanager
def loopback(latency: float) -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(latency, theirs))
    server.start()
    try:
        yield ours.recv()
    finally:
        ours.send("stop")
        server.join()


def read_ours(endpoint: str, connections: int, cache: Path) -> tuple[float, int, int]:
    """Seconds, requests and bytes for both models side by side."""
    began = time.perf_counter()
    transport = Transport(connections)

    def one(name: str) -> HubSource:
        options = HubOptions(endpoint=endpoint, token=False)
        source = HubSource(HubAddress(name), transport, RangeCache(cache), options)
        assert len(gain_statistics(identify(open_checkpoint(source)))) > 90
        return source

    with ThreadPoolExecutor(len(MODELS)) as pool:
        sources = list(pool.map(one, MODELS))
    seconds = time.perf_counter() - began
    requests = sum(source.ledger.requests for source in sources)
    network = sum(e.bytes for source in sources for e in source.ledger.exchanges if e.origin == "network")
    for source in sources:
        source.close()
    transport.close()
    return seconds, requests, network


def in_a_new_process(endpoint: str, connections: int, cache: Path) -> tuple[float, int, int]:
    """As a user meets it: nothing imported, no connection open."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(read_ours, endpoint, connections, cache).result()


class Script:
    """The access pattern of the published scripts."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.requests = 0
        self.bytes = 0
        self._open: dict[str, http.client.HTTPConnection] = {}

    def get(self, url: str, span: tuple[int, int] | None = None) -> bytes:
        parts = urlsplit(url)
        if parts.netloc not in self._open:
            self._open[parts.netloc] = http.client.HTTPConnection(parts.netloc)
        connection = self._open[parts.netloc]
        headers = {} if span is None else {"Range": f"bytes={span[0]}-{span[1] - 1}"}
        connection.request("GET", f"{parts.path}?{parts.query}", headers=headers)
        response = connection.getresponse()
        body = response.read()
        self.requests += 1
        self.bytes += len(body)
        if response.status == 302:
            return self.get(response.headers["Location"], span)
        assert response.status in (200, 206), response.status
        return body

    def read_norms(self, model: str) -> int:
        base = f"{self.endpoint}/{model}/resolve/main"
        index = json.loads(self.get(f"{base}/model.safetensors.index.json"))["weight_map"]
        wanted = {name: shard for name, shard in index.items() if name.endswith(NORMS) or name == "model.norm.weight"}
        for shard in sorted(set(index.values())):
            url = f"{base}/{shard}"
            length = int.from_bytes(self.get(url, (0, 8)), "little")
            header = json.loads(self.get(url, (8, 8 + length)))
            for name in (name for name, place in wanted.items() if place == shard):
                start, stop = header[name]["data_offsets"]
                self.get(url, (8 + length + start, 8 + length + stop))
        return len(wanted)


def read_like_the_scripts(endpoint: str) -> tuple[float, int, int]:
    script = Script(endpoint)
    began = time.perf_counter()
    for name in MODELS:
        assert script.read_norms(name) > 90
    return time.perf_counter() - began, script.requests, script.bytes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument("--ours-only", action="store_true")
    chosen = parser.parse_args()
    with loopback(chosen.latency) as endpoint, tempfile.TemporaryDirectory() as folder:
        caches = [Path(folder) / f"{number}.sqlite" for number in range(COLD_RUNS)]
        cold = sorted(in_a_new_process(endpoint, chosen.connections, cache) for cache in caches)
        rows = [
            (f"modelkin, {chosen.connections} connections, median of {COLD_RUNS}", cold[COLD_RUNS // 2]),
            ("modelkin again, from its cache", in_a_new_process(endpoint, chosen.connections, caches[0])),
        ]
        if not chosen.ours_only:
            rows.append(("published scripts' pattern", read_like_the_scripts(endpoint)))
    print(f"{chosen.latency * 1e3:.0f} ms an exchange{'':25} seconds  requests      MB")
    for what, (seconds, requests, count) in rows:
        print(f"{what:41} {seconds:7.2f}  {requests:8}  {count / 1e6:6.1f}")
    if not chosen.ours_only:
        print(f"{'pattern / ours':41} {rows[2][1][0] / rows[0][1][0]:6.1f}×  {rows[2][1][1] / rows[0][1][1]:7.1f}×")
    print("targets: 2.5 s, 400 requests, 14 MB at 32 connections; 30×; at most 2 requests from the cache")


if __name__ == "__main__":
    main()
