"""What is told to an OpenTelemetry collector is read by OpenTelemetry's own messages.

A server stands for the collector: it reads every report strictly into the messages of the official
protocol package, so that a field of another name or type is an error, and keeps what it read.
"""

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import openai
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

import own

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
MESSAGES = {"/v1/traces": ExportTraceServiceRequest, "/v1/metrics": ExportMetricsServiceRequest}


def as_bytes(report):
    """OTLP writes ids in hexadecimal digits, where JSON of the protocol buffers has base64."""
    if isinstance(report, list):
        return [as_bytes(item) for item in report]
    if not isinstance(report, dict):
        return report
    ids = ("traceId", "spanId", "parentSpanId")
    return {
        name: base64.b64encode(bytes.fromhex(value)).decode() if name in ids else as_bytes(value)
        for name, value in report.items()
    }


class Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    spans, metrics, services, wrong = [], {}, set(), []

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        try:
            assert self.headers["content-type"] == "application/json"
            self.take(json_format.ParseDict(as_bytes(json.loads(body)), MESSAGES[self.path]()))
            answer = (200, b"{}")
        except Exception as error:
            self.wrong.append((self.path, repr(error), body))
            answer = (400, repr(error).encode())
        self.send_response(answer[0])
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer[1])))
        self.end_headers()
        self.wfile.write(answer[1])

    def take(self, report):
        if isinstance(report, ExportTraceServiceRequest):
            for resource in report.resource_spans:
                self.services.add(named(resource.resource.attributes)["service.name"])
                for scope in resource.scope_spans:
                    self.spans.extend(scope.spans)
            return
        for resource in report.resource_metrics:
            for scope in resource.scope_metrics:
                # Each report tells everything since the start, so the last one counts.
                self.metrics.update({metric.name: metric for metric in scope.metrics})


def named(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = f"""
        [telemetry]
        otlp = "http://127.0.0.1:{server.server_port}"
        service = "harbour"
        [providers.nobody]
        speaks = "chat"
        base = "http://127.0.0.1:{own.free_port()}"
        [models.gone]
        lanes = ["nobody/gone"]
        """
    with own.gateway(tmp_path_factory.mktemp("telemetry"), config) as running:
        yield running
    server.shutdown()


def until(true):
    for _ in range(600):
        assert not Collector.wrong, Collector.wrong
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("the collector was not told")


def test_calls_are_spans_and_counts_by_the_official_messages(gateway):
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0)
    asked = [{"role": "user", "content": "a secret of the harbour"}]
    parent = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
    answer = client.chat.completions.create(
        model="demo-chat", messages=asked, extra_headers=parent
    )
    client.embeddings.create(model="demo-embed", input="a secret", extra_headers=parent)
    stream = client.chat.completions.create(
        model="demo-messages", messages=asked, stream=True, extra_headers=parent
    )
    assert list(stream)
    until(lambda: len(Collector.spans) == 3 and Collector.metrics)

    assert Collector.services == {"harbour"}
    spans = {span.name: span for span in Collector.spans}
    assert set(spans) == {"chat demo-chat", "embeddings demo-embed", "chat demo-messages"}
    assert len({span.span_id for span in Collector.spans}) == 3
    for span in Collector.spans:
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert (len(span.span_id), span.kind) == (8, Span.SPAN_KIND_CLIENT)
        assert 0 < span.start_time_unix_nano <= span.end_time_unix_nano
        assert span.status.code == Status.STATUS_CODE_UNSET
        told = named(span.attributes)
        assert told["gen_ai.provider.name"] == "demo"
        assert told["gen_ai.operation.name"] == span.name.split()[0]
        assert told["gen_ai.request.model"] == span.name.split()[1]
        assert "secret" not in str(span)
    told = named(spans["chat demo-chat"].attributes)
    assert told["gen_ai.usage.input_tokens"] == answer.usage.prompt_tokens
    assert told["gen_ai.usage.output_tokens"] == answer.usage.completion_tokens

    def counted():
        points = Collector.metrics["gen_ai.client.operation.duration"].histogram.data_points
        return sum(point.count for point in points) == 3

    until(counted)
    units = {metric.name: metric.unit for metric in Collector.metrics.values()}
    assert units == {
        "gen_ai.client.token.usage": "{token}",
        "gen_ai.client.operation.duration": "s",
        "gen_ai.client.operation.time_to_first_chunk": "s",
        "gen_ai.server.time_to_first_token": "s",
    }
    for metric in Collector.metrics.values():
        cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
        assert metric.histogram.aggregation_temporality == cumulative
        for point in metric.histogram.data_points:
            assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
            assert sum(point.bucket_counts) == point.count > 0
            assert point.start_time_unix_nano < point.time_unix_nano
    tokens = Collector.metrics["gen_ai.client.token.usage"].histogram.data_points
    sums = {
        (named(point.attributes)["gen_ai.request.model"],
         named(point.attributes)["gen_ai.token.type"]): point.sum
        for point in tokens
    }
    assert sums[("demo-chat", "input")] == answer.usage.prompt_tokens
    assert sums[("demo-chat", "output")] == answer.usage.completion_tokens


def test_a_call_that_fails_is_an_error_in_its_span(gateway):
    Collector.spans.clear()
    client = openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=gateway.key, max_retries=0)
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="gone", messages=[{"role": "user", "content": "hi"}])
    until(lambda: Collector.spans)
    (span,) = Collector.spans
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert named(span.attributes)["error.type"] == "503"
