"""Codex signs in with an account of the gateway (`gateway_oauth`), renews its token and signs in again.

Codex encrypts its tokens with a key in the keyring of the system, so it runs in a session with an unlocked
one. A script acts as the browser of a person who is signed in.
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import own
from agents import NOWHERE, npm

PASSWORD = "three harbour lights"
WORDS = "The harbour is open."
SESSION = """
printf 'a password' | gnome-keyring-daemon --unlock --components=secrets --daemonize > /dev/null 2>&1
exec "$@"
"""


class TokenProxy(ThreadingHTTPServer):
    """Passes token requests on, and shortens the life that the answer promises, so that Codex renews soon."""

    def __init__(self, url):
        super().__init__(("127.0.0.1", 0), TokenHandler)
        self.url, self.grants = url, []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class TokenHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {"content-type": self.headers["content-type"]}
        ask = urllib.request.Request(self.server.url + self.path, body, headers)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(ask, timeout=30) as got:
                status, answer = got.status, json.load(got)
        except urllib.error.HTTPError as error:
            status, answer = error.code, json.load(error)
        grant = urllib.parse.parse_qs(body.decode())["grant_type"][0]
        self.server.grants.append((grant, status))
        if "expires_in" in answer:
            answer["expires_in"] = 1
        text = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *words):
        pass


@pytest.fixture
def gateway(tmp_path):
    folder = tmp_path / "gateway"
    folder.mkdir()
    binary = os.environ["GATEWAY_BINARY"]
    with own.gateway(folder, "") as gateway:
        create = [binary, "users", "create", "mia", "--password-stdin", "--data", folder]
        subprocess.run(create, input=PASSWORD, text=True, check=True, capture_output=True)
        gateway.folder = folder
        yield gateway


@pytest.fixture
def ask(tmp_path, gateway):
    """Lets Codex answer in a home of its own. Returns the answer and the number of opened addresses."""
    home, tools, log = tmp_path / "home", tmp_path / "tools", tmp_path / "opened"
    for folder in (home, tools, tmp_path / "run"):
        folder.mkdir(mode=0o700)
    log.touch()
    browser = tools / "browser"
    script = Path(__file__).with_name("browser.py")
    browser.write_text(f'#!/bin/sh\nexec {sys.executable} {script} "$1"\n')
    browser.chmod(0o755)
    proxy = TokenProxy(gateway.url)
    (home / "config.toml").write_text(
        f"""
model = "demo-responses"
model_provider = "portunus"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.portunus]
name = "Portunus"
base_url = "{gateway.url}/v1"
wire_api = "responses"

[model_providers.portunus.gateway_oauth]
authorization_url = "{gateway.url}/oauth/authorize"
token_url = "http://127.0.0.1:{proxy.server_port}/oauth/token"
client_id = "codex"
scopes = []
redirect_port = {own.free_port()}
delivery = {{ kind = "header", name = "x-portunus-token", scheme = "Bearer" }}

[analytics]
enabled = false
"""
    )
    env = {
        "HOME": str(home),
        "CODEX_HOME": str(home),
        "XDG_RUNTIME_DIR": str(tmp_path / "run"),
        "PATH": f"{os.environ['NODE_BIN']}:{os.environ['PATH']}",
        "BROWSER": str(browser),
        "HTTPS_PROXY": NOWHERE,
        "NO_PROXY": "127.0.0.1",
        "TERM": "dumb",
        "SIGN_IN_NAME": "mia",
        "SIGN_IN_PASSWORD": PASSWORD,
        "SIGN_IN_LOG": str(log),
    }

    def run():
        prompt = f'Say exactly: """{WORDS}"""'
        codex = [npm("codex"), "exec", "--skip-git-repo-check", prompt]
        done = subprocess.run(
            ["dbus-run-session", "--", "sh", "-c", SESSION, "sh", *codex],
            cwd=home, env=env, input="", capture_output=True, text=True, timeout=180,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout, len(log.read_text().splitlines())

    run.grants = proxy.grants
    yield run
    proxy.shutdown()
    shutil.rmtree(tmp_path, ignore_errors=True)


def keys(gateway):
    words = ["keys", "list", "--json", "--data", gateway.folder]
    told = subprocess.check_output([os.environ["GATEWAY_BINARY"], *words], text=True)
    return [key for key in map(json.loads, told.splitlines()) if key["surface"] == "codex"]


def test_codex_signs_in_renews_its_token_and_signs_in_again(gateway, ask):
    told, opened = ask()
    assert WORDS in told and opened == 1
    assert ask.grants[0] == ("authorization_code", 200)
    # The token has ended by now, and is renewed without a browser.
    ask.grants.clear()
    told, opened = ask()
    assert WORDS in told and opened == 1
    assert ("refresh_token", 200) in ask.grants
    (key,) = keys(gateway)
    assert float(key["spent_usd"]) > 0
    # A sign-in that has ended begins anew.
    revoke = ["keys", "revoke", key["id"], "--data", gateway.folder]
    subprocess.run([os.environ["GATEWAY_BINARY"], *revoke], check=True, capture_output=True)
    ask.grants.clear()
    told, opened = ask()
    assert WORDS in told and opened == 2
    assert ask.grants[:2] == [("refresh_token", 400), ("authorization_code", 200)]
