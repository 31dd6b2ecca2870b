"""The gateway under test and the official clients for it.

`cargo xtask test --only e2e` starts a gateway and sets GATEWAY_URL and GATEWAY_KEY; any other
running gateway with the demo models will do as well. GATEWAY_BINARY is the program itself, for
tests that need a gateway of their own. With E2E_CELLS set, the cells of the table
of what works are written to that file (see matrix.py).
"""

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass

import anthropic
import openai
import pytest
from google import genai
from google.genai import types

from matrix import MODELS

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

    def post(self, path, body, key=KEY, dry_run=False):
        headers = {"content-type": "application/json"}
        if dry_run:
            headers["x-portunus-dry-run"] = "true"
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


# They answer alike, each behind an upstream of another format, so that a test of one in some format
# is a test of that translation. test_models.py makes sure of it.
def pytest_generate_tests(metafunc):
    if "model" in metafunc.fixturenames:
        metafunc.parametrize("model", MODELS)


def pytest_configure(config):
    config.addinivalue_line("markers", "feature(name): a cell of the table of what works")
    config.addinivalue_line("markers", "client_of(format): the format the tests of a module speak")


CELLS = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    mark = item.get_closest_marker("feature")
    ended = report.when == "call" or (report.when == "setup" and not report.passed)
    if mark and ended:
        lost = ("cell", "lost") in item.user_properties
        cell = {
            "format": item.get_closest_marker("client_of").args[0],
            "client": "Python",
            "feature": mark.args[0],
            "model": item.callspec.params["model"],
            "passed": "lost" if report.passed and lost else report.passed,
        }
        CELLS.append(cell)
    return report


def pytest_sessionfinish():
    if "E2E_CELLS" in os.environ:
        with open(os.environ["E2E_CELLS"], "w") as file:
            json.dump(CELLS, file)


@pytest.fixture(scope="session")
def wire():
    return Wire()


@pytest.fixture
def lost(request, wire):
    """For what an upstream's format has no place for: the answer must say so."""

    def check(path, body, what):
        answer = wire.post(path, body)
        assert answer.status == 200, answer.body
        assert what in answer.headers["x-portunus-loss"].split(", ")
        request.node.user_properties.append(("cell", "lost"))

    return check


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


@pytest.fixture(scope="session")
def claude():
    return anthropic.Anthropic(base_url=URL, api_key=KEY, max_retries=0, timeout=TIMEOUT)


@pytest.fixture(scope="session", params=["v1beta", "v1"])
def gemini(request):
    """The client's own default is v1; the older address is what everyone else uses."""
    return native_client(request.param)


@pytest.fixture(scope="session")
def make_gemini():
    return native_client


def native_client(version="v1beta", key=KEY):
    options = types.HttpOptions(base_url=URL, api_version=version, timeout=int(TIMEOUT * 1000))
    return genai.Client(api_key=key, http_options=options)
