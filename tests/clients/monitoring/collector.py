"""A collector of OpenTelemetry: receives OTLP over HTTP, and decodes it by the protocol's own definitions."""

import http.server
import threading

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

REQUESTS = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}


class Collector:
    """Keeps what it has received. A message that is malformed is refused, and kept as an error."""

    def __init__(self, address):
        self.metrics, self.spans, self.errors = [], [], []
        host, port = address.split(":")
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                try:
                    assert self.headers["Content-Type"] == "application/json", self.headers
                    collector.take(REQUESTS[self.path], body)
                    status = 200
                except Exception as error:
                    collector.errors.append(f"{self.path}: {error!r}")
                    status = 400
                self.send_response(status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((host, int(port)), Handler)

    def take(self, request, body):
        message = json_format.Parse(body, request())
        if request is ExportMetricsServiceRequest:
            self.metrics.append(message.resource_metrics[0])
        else:
            self.spans.extend(message.resource_spans[0].scope_spans[0].spans)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()
