"""The gateway under test and the official client for it.

`cargo xtask test --only e2e` starts a gateway and sets GATEWAY_URL and GATEWAY_KEY; any other
running gateway with the demo models will do as well.
"""

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass

import openai
import pytest

URL = os.environ["GATEWAY_URL"].rstrip("/")
KEY = os.environ["GATEWAY_KEY"]
# Long enough for a busy machine, short enough that a hang is a failure and not a wait.
TIMEOUT = 30.0


@dataclass
class Answer:
    """A plain HTTP answer, whatever its status."""

    status: int
    headers: object
    body: bytes

    def json(self):
        return json.loads(self.body)


class Wire:
    """The gateway without a client in between."""

    def get(self, path, key=KEY):
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return self._send(urllib.request.Request(URL + path, headers=headers))

    def post(self, path, body, key=KEY):
        headers = {"content-type": "application/json"}
        if key:
            headers["authorization"] = f"Bearer {key}"
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._send(urllib.request.Request(URL + path, data=data, headers=headers))

    @staticmethod
    def _send(request):
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
                return Answer(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            return Answer(error.code, error.headers, error.read())


def chat_models():
    """Every demo model that chats. They answer alike, each behind an upstream of another format,
    so that a test of one in the chat format is a test of that translation."""
    listed = Wire().get("/api/models?provider=demo&model_type=chat").json()["data"]
    return [entry["id"] for entry in listed if entry["id"] != "demo-echo"]


def pytest_generate_tests(metafunc):
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", chat_models())


@pytest.fixture(scope="session")
def wire():
    return Wire()


@pytest.fixture(scope="session")
def url():
    return URL


@pytest.fixture(scope="session")
def key():
    return KEY


@pytest.fixture(scope="session")
def client():
    # No retries: a test that passes at the second attempt has found something.
    return openai.OpenAI(base_url=f"{URL}/v1", api_key=KEY, max_retries=0, timeout=TIMEOUT)
