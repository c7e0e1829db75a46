//! The messages of OTLP, as JSON.
//!
//! 64-bit integers are decimal strings, identifiers hexadecimal digits, enumerations numbers.
// Source: opentelemetry-proto 1.5, `metrics.proto`, `trace.proto` and "JSON Protobuf Encoding";
// semantic conventions 1.30, "Database client calls" (names of attributes)

use std::fmt::Display;
use std::net::SocketAddr;

use base::time::UnixMs;
use serde_json::{Value, json};

use crate::engine::command_log::LoggedCommand;
use crate::engine::server_state::ServerState;
use crate::http::metrics::{Distribution, Format, Kind, Labels};

/// `AggregationTemporality`: values since the start.
const CUMULATIVE: u8 = 2;
/// `SpanKind`: the server's side of a request.
const SPAN_KIND_SERVER: u8 = 2;

/// Digits of an identifier of a trace that are the same for all requests of a process.
const HALF_TRACE_DIGITS: usize = 16;

/// The server that sends a message.
#[derive(Debug)]
pub(super) struct Source {
    run_id: String,
}

impl Source {
    pub(super) fn of(shared: &ServerState) -> Source {
        Source { run_id: shared.identity.run_id.clone() }
    }

    fn resource(&self) -> Value {
        json!({ "attributes": [
            text("service.name", "myriad"),
            text("service.version", env!("CARGO_PKG_VERSION")),
            text("service.instance.id", &self.run_id),
        ] })
    }

    /// An `ExportMetricsServiceRequest`.
    pub(super) fn metrics(&self, metrics: Metrics) -> Value {
        let families = Value::from(metrics.families);
        json!({ "resourceMetrics": [{
            "resource": self.resource(),
            "scopeMetrics": [{ "scope": scope(), "metrics": families }],
        }] })
    }

    /// An `ExportTraceServiceRequest`: each request is a trace of its own.
    pub(super) fn spans(&self, requests: &[LoggedCommand]) -> Value {
        let span = |request| span(&self.run_id, request);
        let spans: Vec<Value> = requests.iter().map(span).collect();
        json!({ "resourceSpans": [{
            "resource": self.resource(),
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }] })
    }
}

fn scope() -> Value {
    json!({ "name": "myriad", "version": env!("CARGO_PKG_VERSION") })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// Nanoseconds since the Unix epoch.
fn unix_ns(at: UnixMs) -> u64 {
    at.0.saturating_mul(1_000_000)
}

/// Hexadecimal digits of a span, and of the second half of its trace. A collector that receives a
/// span again finds the same ones. Zeros would be invalid.
fn span_id(request: &LoggedCommand) -> String {
    // Odd, so that no two numbers have the same product; its bits look random.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    format!("{:016x}", (request.id + 1).wrapping_mul(FACTOR))
}

/// A request of the slow log. It has the time of its start, in CQL that of the turn in which it
/// started, and how long it took.
fn span(run_id: &str, request: &LoggedCommand) -> Value {
    let (span_id, of_run) = (span_id(request), &run_id[..HALF_TRACE_DIGITS]);
    let words: Vec<_> = request.args.iter().map(|arg| String::from_utf8_lossy(arg)).collect();
    let name = words.first().map(|word| word.to_ascii_uppercase()).unwrap_or_default();
    let began = unix_ns(request.at);
    let ended = began.saturating_add(request.value.saturating_mul(1000));
    let mut attributes = vec![
        text("db.system.name", "myriad"),
        text("db.operation.name", &name),
        text("db.query.text", &words.join(" ")),
    ];
    if let Ok(peer) = request.peer.parse::<SocketAddr>() {
        attributes.push(text("client.address", &peer.ip().to_string()));
        let port = json!({ "intValue": peer.port().to_string() });
        attributes.push(json!({ "key": "client.port", "value": port }));
    }
    if !request.client_name.is_empty() {
        attributes.push(text("myriad.client.name", &request.client_name));
    }
    json!({
        "traceId": format!("{of_run}{span_id}"),
        "spanId": span_id,
        "name": name,
        "kind": SPAN_KIND_SERVER,
        "startTimeUnixNano": began.to_string(),
        "endTimeUnixNano": ended.to_string(),
        "attributes": attributes,
    })
}

/// Families as `Metric` messages.
#[derive(Debug)]
pub(super) struct Metrics {
    families: Vec<Value>,
    /// The current family, before its first point: one without points is not sent.
    begun: Option<Value>,
    /// The field of the current family that has its points.
    field: &'static str,
    /// Whether the points of the current family are not integers.
    is_fraction: bool,
    started: String,
    now: String,
}

impl Metrics {
    pub(super) fn new(started: UnixMs, now: UnixMs) -> Metrics {
        let (started, now) = (unix_ns(started).to_string(), unix_ns(now).to_string());
        Metrics {
            families: Vec::new(),
            begun: None,
            field: "gauge",
            is_fraction: false,
            started,
            now,
        }
    }

    fn push_point(&mut self, labels: Labels<'_>, mut point: Value) {
        let attributes: Vec<Value> = labels.iter().map(|(key, value)| text(key, value)).collect();
        point["attributes"] = attributes.into();
        point["startTimeUnixNano"] = self.started.as_str().into();
        point["timeUnixNano"] = self.now.as_str().into();
        self.families.extend(self.begun.take());
        let family = self.families.last_mut().map(|family| &mut family[self.field]["dataPoints"]);
        family.and_then(Value::as_array_mut).expect("a family has begun").push(point);
    }
}

impl Format for Metrics {
    fn family(&mut self, name: &'static str, kind: Kind, help: &str) {
        let mut data = json!({ "dataPoints": [] });
        self.field = match kind {
            Kind::Gauge => "gauge",
            Kind::Counter => {
                data["isMonotonic"] = true.into();
                "sum"
            }
            Kind::Histogram => "histogram",
        };
        if kind != Kind::Gauge {
            data["aggregationTemporality"] = CUMULATIVE.into();
        }
        // Prometheus appends `_total` and the unit again.
        let name = name.strip_suffix("_total").unwrap_or(name);
        let mut family = json!({ "name": name, "description": help, "unit": unit(name) });
        family[self.field] = data;
        self.is_fraction = unit(name) == "s" || name.ends_with("_ratio");
        self.begun = Some(family);
    }

    fn sample(&mut self, labels: Labels<'_>, value: &dyn Display) {
        let digits = value.to_string();
        if !self.is_fraction && digits.parse::<i64>().is_ok() {
            return self.push_point(labels, json!({ "asInt": digits }));
        }
        // JSON has no other numbers.
        if let Some(number) = digits.parse::<f64>().ok().filter(|number| number.is_finite()) {
            self.push_point(labels, json!({ "asDouble": number }));
        }
    }

    fn histogram(&mut self, labels: Labels<'_>, values: Distribution<'_>) {
        let Distribution { buckets, count, sum } = values;
        let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
        for (bound, up_to) in buckets {
            bounds.push(bound);
            counts.push(up_to.saturating_sub(below).to_string());
            below = up_to;
        }
        // What is above the last bound. Counters are read while they grow.
        counts.push(count.saturating_sub(below).to_string());
        let count = count.max(below).to_string();
        let point =
            json!({ "count": count, "sum": sum, "explicitBounds": bounds, "bucketCounts": counts });
        self.push_point(labels, point);
    }
}

/// The unit by UCUM: the last word of the name. Without one for counts: Prometheus appends `_ratio`
/// to the names of gauges whose unit is 1.
fn unit(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        Some("ratio") => "1",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics() -> Metrics {
        Metrics::new(UnixMs(1), UnixMs(2))
    }

    #[test]
    fn families_have_points_in_the_field_of_their_kind() {
        let mut metrics = metrics();
        metrics.family("calls_total", Kind::Counter, "Calls.");
        metrics.sample(&[("command", "get")], &7);
        metrics.family("up_seconds", Kind::Gauge, "Time.");
        metrics.sample(&[], &"1.500");
        metrics.sample(&[], &f64::NAN);
        metrics.sample(&[], &2);
        metrics.family("absent", Kind::Gauge, "It has no points.");
        let times = json!({ "startTimeUnixNano": "1000000", "timeUnixNano": "2000000" });
        let point = |mut point: Value| {
            point.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
            point
        };
        let expected = json!([
            { "name": "calls", "description": "Calls.", "unit": "", "sum": {
                "isMonotonic": true, "aggregationTemporality": 2, "dataPoints": [point(json!({
                    "asInt": "7",
                    "attributes": [{ "key": "command", "value": { "stringValue": "get" } }],
                }))],
            } },
            { "name": "up_seconds", "description": "Time.", "unit": "s", "gauge": {
                "dataPoints": [
                    point(json!({ "asDouble": 1.5, "attributes": [] })),
                    point(json!({ "asDouble": 2.0, "attributes": [] })),
                ],
            } },
        ]);
        assert_eq!(Value::from(metrics.families), expected);
    }

    /// Prometheus counts values up to each bound, OpenTelemetry those between bounds.
    #[test]
    fn buckets_are_counted_apart() {
        let mut metrics = metrics();
        metrics.family("time_seconds", Kind::Histogram, "Times.");
        for (count, last, total) in [(9, "3", "9"), (5, "0", "6")] {
            let mut buckets = [(0.5, 2), (1.0, 6)].into_iter();
            metrics.histogram(&[], Distribution { buckets: &mut buckets, count, sum: 4.5 });
            let points = metrics.families[0]["histogram"]["dataPoints"].as_array().unwrap();
            let point = points.last().unwrap();
            assert_eq!(point["bucketCounts"], json!(["2", "4", last]));
            assert_eq!(point["explicitBounds"], json!([0.5, 1.0]));
            assert_eq!(point["count"], total);
        }
    }

    #[test]
    fn a_slow_request_is_a_span() {
        let request = LoggedCommand {
            id: 3,
            at: UnixMs(5),
            value: 1500,
            args: vec![b"get".to_vec(), b"k\xff".to_vec()],
            peer: "127.0.0.1:9".to_owned(),
            client_name: String::new(),
        };
        let run_id = "0123456789abcdef0123";
        let span = span(run_id, &request);
        assert_eq!((&span["name"], &span["kind"]), (&json!("GET"), &json!(2)));
        assert_eq!(span["startTimeUnixNano"], "5000000");
        assert_eq!(span["endTimeUnixNano"], "6500000");
        let id = span["spanId"].as_str().unwrap();
        assert_eq!((id.len(), &span["traceId"]), (16, &json!(format!("0123456789abcdef{id}"))));
        let attributes = span["attributes"].as_array().unwrap();
        let found: Vec<_> =
            attributes.iter().map(|one| (one["key"].as_str().unwrap(), &one["value"])).collect();
        let [system, name, query, address] = ["myriad", "GET", "get k\u{fffd}", "127.0.0.1"]
            .map(|value| json!({ "stringValue": value }));
        let expected = [
            ("db.system.name", &system),
            ("db.operation.name", &name),
            ("db.query.text", &query),
            ("client.address", &address),
            ("client.port", &json!({ "intValue": "9" })),
        ];
        assert_eq!(found, expected);
    }
}
