"""What goes wrong is told in the words the official client understands."""

import http.client
import json
import time

import openai
import pytest

MESSAGES = [{"role": "user", "content": "Hello"}]


def test_a_wrong_key_is_refused(client):
    stranger = client.with_options(api_key="sk-not-a-key")
    for call in (
        lambda: stranger.models.list(),
        lambda: stranger.chat.completions.create(model="demo-chat", messages=MESSAGES),
        lambda: stranger.chat.completions.create(model="demo-chat", messages=MESSAGES, stream=True),
    ):
        with pytest.raises(openai.AuthenticationError) as caught:
            call()
        assert caught.value.code == "invalid_api_key"


def test_a_refused_call_leaves_its_connection_usable_or_says_that_it_does_not(url):
    """Clients send head and body apart and keep their connections: an answer given before the body
    came must not be followed by a goodbye that nobody announced."""
    body = json.dumps({"model": "demo-chat", "messages": MESSAGES}).encode()
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=30)
    for _ in range(2):
        connection.putrequest("POST", "/v1/chat/completions")
        connection.putheader("authorization", "Bearer sk-not-a-key")
        connection.putheader("content-type", "application/json")
        connection.putheader("content-length", str(len(body)))
        connection.endheaders()
        time.sleep(0.1)
        connection.send(body)
        answer = connection.getresponse()
        assert answer.status == 401
        answer.read()
        if answer.headers["connection"] == "close":
            break
        # Time for an unannounced goodbye to arrive.
        time.sleep(0.1)


def test_a_key_with_one_letter_changed_is_refused(client, key):
    for changed in (key[:-1] + ("a" if key[-1] != "a" else "b"), key + "a", key[:-1]):
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key=changed).models.list()


def test_a_missing_key_is_refused_before_the_body_is_read(wire):
    answer = wire.post("/v1/chat/completions", b"not even JSON", key=None)
    assert answer.status == 401
    assert answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not even JSON",
        b"[]",
        b'{"model": "demo-chat"}',
        b'{"model": "demo-chat", "messages": "hello"}',
        b'{"messages": [{"role": "user", "content": "Hello"}]}',
        b'{"model": "demo-chat", "messages": [{"role": "nobody", "content": "Hello"}]}',
        b'{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}], "temperature": "hot"}',
        b'{"model": "demo-chat", "messages": [{"role": "user", "content": "Hello"}], "stream": "yes"}',
    ],
)
def test_a_bad_request_is_told_as_one(wire, body):
    answer = wire.post("/v1/chat/completions", body)
    assert answer.status == 400, answer.body
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"]
    assert {"param", "code"} <= set(error)


def test_a_bad_field_is_named(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="demo-chat", messages=MESSAGES, temperature=9)
    assert caught.value.param == "temperature"


def test_a_model_of_another_kind_does_not_chat(client):
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="demo-image", messages=MESSAGES)


def test_a_wrong_path_is_told_as_one(client, wire):
    answer = wire.get("/v1/nowhere")
    assert answer.status == 404
    assert answer.json()["error"]["message"]
    astray = client.with_options(base_url=str(client.base_url).replace("/v1", "/v2"))
    with pytest.raises(openai.NotFoundError):
        astray.models.list()


def test_a_wrong_method_is_told_as_one(wire):
    answer = wire.get("/v1/chat/completions")
    assert answer.status == 405
    assert "POST" in answer.headers["allow"]


def test_operations_answer_without_a_key(wire):
    assert wire.get("/healthz", key=None).status == 200
    assert wire.get("/readyz", key=None).status == 200
    assert wire.get("/metrics", key=None).status in (401, 403, 404)
