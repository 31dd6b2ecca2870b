"""A gateway of a test's own, with a configuration of its own."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def create_key(folder):
    create = ["keys", "create", "--name", "e2e", "--unlimited", "--json", "--data", folder]
    return json.loads(subprocess.check_output([os.environ["GATEWAY_BINARY"], *create]))["key"]


def environment():
    """That of a gateway without a load balancer before it, so that it ends at once."""
    return {**os.environ, "PORTUNUS_SERVER_LINGER": "0s"}


@contextmanager
def gateway(folder, text):
    """Starts one in that folder, and checks that it ends well when it is asked to."""
    config = folder / "gateway.toml"
    config.write_text(text)
    binary = os.environ["GATEWAY_BINARY"]
    key = create_key(folder)
    url = f"http://127.0.0.1:{free_port()}"
    listen = url.removeprefix("http://")
    serve = [binary, "serve", "--config", config, "--listen", listen, "--data", folder]
    with open(folder / "log", "w") as log:
        process = subprocess.Popen(serve, stdout=log, stderr=log, env=environment())
    try:
        ready(url, process, folder / "log")
        yield SimpleNamespace(url=url, key=key, log=folder / "log")
    finally:
        process.terminate()
        assert process.wait(30) == 0


def ready(url, process, log):
    for _ in range(600):
        assert process.poll() is None, log.read_text()
        try:
            with urllib.request.urlopen(f"{url}/readyz", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the gateway does not become ready\n" + log.read_text())
