"""What goes to Bedrock is signed as AWS's own library signs, and its frames are read as it reads them.

A server stands for Bedrock: it computes every signature anew with botocore and refuses what differs,
and answers in frames that botocore's own reader finds good. A gateway of this module's own stands
before it, and the official clients before that.
"""

import base64
import json
import struct
import threading
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import anthropic
import openai
import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.eventstream import EventStreamBuffer

import own

ACCESS, SECRET, SESSION = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY", "ses/sion+token=="
REGION, SERVICE = "eu-west-1", "bedrock"
MODEL = "eu.anthropic.claude-x-20260101-v1:0"
PARTS = ["Hello ", "from ", "Bedrock – ", "🎵"]
USAGE = {"input_tokens": 12, "output_tokens": 9}


def signature(method, url, headers, body):
    """What botocore would have signed of this request."""
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    given = {name: headers[name] for name in signed if name != "host"}
    request = AWSRequest(method=method, url=url, data=body, headers=given)
    request.context["timestamp"] = headers["x-amz-date"]
    auth = SigV4Auth(Credentials(ACCESS, SECRET, SESSION), SERVICE, REGION)
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


def frame(kind, payload):
    headers = b""
    words = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    for name, value in words.items():
        headers += struct.pack("!B", len(name)) + name.encode() + b"\x07"
        headers += struct.pack("!H", len(value)) + value.encode()
    body = json.dumps(payload).encode()
    head = struct.pack("!II", len(headers) + len(body) + 16, len(headers))
    head += struct.pack("!I", zlib.crc32(head))
    whole = head + headers + body
    return whole + struct.pack("!I", zlib.crc32(whole))


def events():
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
               "content": [], "stop_reason": None, "stop_sequence": None,
               "usage": {"input_tokens": 12, "output_tokens": 1}}
    yield {"type": "message_start", "message": message}
    yield {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for part in PARTS:
        delta = {"type": "text_delta", "text": part}
        yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None},
           "usage": {"output_tokens": 9}}
    yield {"type": "message_stop", "amazon-bedrock-invocationMetrics": {"inputTokenCount": 12}}


class Bedrock(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    seen = []

    def log_message(self, *_):
        pass

    def answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        url = f"http://{headers['host']}{self.path}"
        expected = signature("POST", url, headers, body)
        good = headers["authorization"].endswith(f"Signature={expected}")
        self.seen.append(SimpleNamespace(path=self.path, body=json.loads(body), good=good))
        if not good:
            refusal = {"message": "The request signature we calculated does not match"}
            return self.answer(403, "application/json", json.dumps(refusal).encode())
        if self.path.endswith("/invoke"):
            text = [{"type": "text", "text": "".join(PARTS)}]
            reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x",
                     "content": text, "stop_reason": "end_turn", "stop_sequence": None,
                     "usage": USAGE}
            return self.answer(200, "application/json", json.dumps(reply).encode())
        frames = b"".join(
            frame("chunk", {"bytes": base64.b64encode(json.dumps(event).encode()).decode()})
            for event in events()
        )
        # AWS's own reader finds nothing wrong with them.
        buffer = EventStreamBuffer()
        buffer.add_data(frames)
        assert len(list(buffer)) == len(list(events()))
        self.answer(200, "application/vnd.amazon.eventstream", frames)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bedrock")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Bedrock)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = f"""
        [providers.bedrock-runtime]
        base = "http://127.0.0.1:{server.server_port}"
        [providers.bedrock-runtime.auth.sigv4]
        region = "{REGION}"
        access_key = {{ text = "{ACCESS}" }}
        secret_key = {{ text = "{SECRET}" }}
        session_token = {{ text = "{SESSION}" }}
        [models.claude-x]
        lanes = ["bedrock-runtime/{MODEL}"]
        price = {{ input = "3", output = "15" }}
        """
    with own.gateway(folder, config) as running:
        yield running
    server.shutdown()


def proved(op):
    last = Bedrock.seen[-1]
    assert last.good, "botocore signs this request differently"
    assert last.path == f"/model/{MODEL.replace(':', '%3A')}/{op}"
    assert last.body["anthropic_version"] == "bedrock-2023-05-31"
    assert not {"model", "stream"} & last.body.keys()


ASK = {"model": "claude-x", "messages": [{"role": "user", "content": "Hé! \U0001f3b5"}]}


def test_messages(gateway):
    client = anthropic.Anthropic(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    whole = client.messages.create(max_tokens=50, **ASK)
    assert whole.content[0].text == "".join(PARTS)
    proved("invoke")
    with client.messages.stream(max_tokens=50, **ASK) as stream:
        assert list(stream.text_stream) == PARTS
        assert stream.get_final_message().usage.output_tokens == 9
    proved("invoke-with-response-stream")


def test_chat(gateway):
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0)
    whole = client.chat.completions.create(**ASK)
    assert whole.choices[0].message.content == "".join(PARTS)
    proved("invoke")
    stream = client.chat.completions.create(stream=True, **ASK)
    said = [piece.choices[0].delta.content or "" for piece in stream if piece.choices]
    assert "".join(said) == "".join(PARTS)
    proved("invoke-with-response-stream")


def test_nothing_of_the_keys_is_in_the_log(gateway):
    log = gateway.log.read_text()
    assert SECRET not in log and SESSION not in log and ACCESS not in log
