//! Status over HTTP for the operator, at a separate address: a page, and metrics for Prometheus.

use std::fmt::Write as _;

use base::time::MonoNs;
use wire::http::{Method, Request};

use super::answer::{Answer, Sent, Site};
use super::client::ResponseOptions;
use crate::counters::{Counters, Kind, METRICS};
use crate::table::{ABSENT, Slot};

const PREFIX: &str = "myriad_web_";

/// What is known of all workers, and of this one.
#[derive(Debug)]
pub(super) struct State<'a> {
    pub(super) counters: &'a Counters,
    pub(super) slots: &'a [Slot],
    pub(super) now: MonoNs,
    pub(super) certificate_expiry_unix_s: Option<u64>,
}

/// Formats the current state of the workers.
type Make = fn(&SlotCounters, &State<'_>) -> String;

/// Appends the response to a request of the operator.
pub(super) fn answer(
    site: &Site,
    request: &Request<'_>,
    terms: ResponseOptions,
    state: &State<'_>,
    out: &mut Vec<u8>,
) -> (Answer, Sent) {
    if !matches!(request.method(), Method::Get | Method::Head) {
        return site.words(405, terms, out);
    }
    let (kind, make): (&str, Make) = match request.path() {
        b"/" => ("text/html; charset=utf-8", page),
        b"/metrics" => ("text/plain; version=0.0.4; charset=utf-8", metrics),
        _ => return site.words(404, terms, out),
    };
    let places = match state.counters.places() {
        Ok(places) => places,
        Err(error) => {
            tracing::error!(%error, "could not read the counters");
            return site.words(500, terms, out);
        }
    };
    let body = make(&places, state);
    let head = site
        .head(200, terms, out)
        .header("Content-Type", kind.as_bytes())
        .header("Cache-Control", b"no-store");
    if terms.is_head {
        head.length(body.len() as u64);
    } else {
        head.body(body.as_bytes());
    }
    (Answer::Done, Sent { status: 200, body_bytes: body.len() as u64 })
}

/// The counters of workers, by slot.
type SlotCounters = [Option<Vec<u64>>];

/// Seconds since the last heartbeat of a worker; `None` for slots without one.
fn beat_age(slot: &Slot, now: MonoNs) -> Option<f64> {
    let is_there = slot.connections != ABSENT && slot.beat != MonoNs(0);
    #[expect(clippy::cast_precision_loss, reason = "milliseconds are precise enough")]
    let age = (now.since(slot.beat) / 1_000_000) as f64 / 1000.0;
    is_there.then_some(age)
}

/// Formats the metrics for Prometheus.
// Source: https://prometheus.io/docs/instrumenting/exposition_formats/
fn metrics(places: &SlotCounters, state: &State<'_>) -> String {
    let mut text = String::new();
    let mut last = "";
    for (at, metric) in METRICS.iter().enumerate() {
        let name = metric.name;
        if name != last {
            let kind = if metric.kind == Kind::Counter { "counter" } else { "gauge" };
            let _ = writeln!(text, "# HELP {PREFIX}{name} {}", metric.help);
            let _ = writeln!(text, "# TYPE {PREFIX}{name} {kind}");
            last = name;
        }
        for (worker, numbers) in places.iter().enumerate() {
            let Some(numbers) = numbers else { continue };
            let comma = if metric.label.is_empty() { "" } else { "," };
            let label = metric.label;
            let number = numbers[at];
            let _ = writeln!(text, "{PREFIX}{name}{{{label}{comma}worker=\"{worker}\"}} {number}");
        }
    }
    let name = "worker_heartbeat_age_seconds";
    let _ = writeln!(text, "# HELP {PREFIX}{name} Time since the last heartbeat of a worker.");
    let _ = writeln!(text, "# TYPE {PREFIX}{name} gauge");
    for (worker, slot) in state.slots.iter().enumerate() {
        if let Some(age) = beat_age(slot, state.now) {
            let _ = writeln!(text, "{PREFIX}{name}{{worker=\"{worker}\"}} {age:.3}");
        }
    }
    if let Some(expiry_unix_s) = state.certificate_expiry_unix_s {
        let name = "tls_certificate_expiry_timestamp_seconds";
        let help = "When the first certificate in tls-cert-file expires, since the Unix epoch.";
        let _ = writeln!(text, "# HELP {PREFIX}{name} {help}");
        let _ = writeln!(text, "# TYPE {PREFIX}{name} gauge");
        let _ = writeln!(text, "{PREFIX}{name} {expiry_unix_s}");
    }
    text
}

/// Formats a table: a row per metric, a column per worker, and their sum.
fn page(places: &SlotCounters, state: &State<'_>) -> String {
    let mut text = String::from(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\">\
         <link rel=\"icon\" href=\"data:,\">\
         <title>myriad web</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem;\
         color-scheme:light dark}table{border-collapse:collapse}\
         th,td{padding:.2rem .8rem;text-align:right;border-bottom:1px solid #8884}\
         th:first-child{text-align:left;font-weight:normal}</style>\n\
         <main><h1>myriad web</h1>\n<table><thead><tr><th>Number</th><th>All</th>",
    );
    let workers: Vec<(usize, &Vec<u64>)> = places
        .iter()
        .enumerate()
        .filter_map(|(worker, numbers)| Some((worker, numbers.as_ref()?)))
        .collect();
    for (worker, _) in &workers {
        let _ = write!(text, "<th>Worker {worker}</th>");
    }
    text.push_str("</tr></thead>\n<tbody>\n");
    for (at, metric) in METRICS.iter().enumerate() {
        let label = metric.label.replace('"', "");
        let _ = write!(text, "<tr><th>{} {label}</th>", metric.name);
        let sum: u64 = workers.iter().map(|(_, numbers)| numbers[at]).sum();
        let _ = write!(text, "<td>{sum}</td>");
        for (_, numbers) in &workers {
            let _ = write!(text, "<td>{}</td>", numbers[at]);
        }
        text.push_str("</tr>\n");
    }
    text.push_str("<tr><th>seconds since the last heartbeat</th><td></td>");
    for (worker, _) in &workers {
        let age = state.slots.get(*worker).and_then(|slot| beat_age(slot, state.now));
        let age = age.map_or("-".to_owned(), |age| format!("{age:.1}"));
        let _ = write!(text, "<td>{age}</td>");
    }
    text.push_str("</tr>\n</tbody></table></main>\n<p role=\"status\"></p>\n<script>");
    text.push_str(UPDATE);
    text.push_str("</script></html>\n");
    text
}

/// Replaces the table every 5 s, so that a reader keeps the place on the page.
const UPDATE: &str = r#"
setInterval(async () => {
  const state = document.querySelector("[role=status]");
  try {
    const answer = await fetch(location.href, { signal: AbortSignal.timeout(4000) });
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    document.querySelector("table").replaceWith(page.querySelector("table"));
    state.textContent = "";
  } catch (error) {
    state.textContent = `Not updated: ${error.message}`;
  }
}, 5000);
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Vec<Option<Vec<u64>>> {
        let numbers = |first: u64| (0..METRICS.len() as u64).map(|at| first + at).collect();
        vec![Some(numbers(10)), None, Some(numbers(100))]
    }

    fn slots() -> [Slot; 3] {
        let slot = |connections, beat| Slot { connections, beat: MonoNs(beat) };
        [slot(1, 5_000_000_000), slot(ABSENT, 0), slot(2, 6_400_000_000)]
    }

    fn formatted(make: Make) -> String {
        let state = State {
            counters: &Counters::new().unwrap(),
            slots: &slots(),
            now: MonoNs(6_500_000_000),
            certificate_expiry_unix_s: Some(1_800_000_000),
        };
        make(&places(), &state)
    }

    /// Every name has one line of help and one of type, before all of its samples.
    #[test]
    fn metrics_are_in_the_text_format() {
        let text = formatted(metrics);
        let mut seen: Vec<&str> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap();
                assert!(name.starts_with(PREFIX) && help.ends_with('.'), "{line}");
                assert!(!seen.contains(&name), "{line}");
                seen.push(name);
            } else if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert_eq!(Some(&name), seen.last(), "{line}");
                assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            } else if let Some((name, rest)) = line.split_once('{') {
                assert_eq!(Some(&name), seen.last(), "{line}");
                assert!(
                    rest.contains("worker=\"0\"} ") || rest.contains("worker=\"2\"} "),
                    "{line}"
                );
            } else {
                let name = line.strip_suffix(" 1800000000").unwrap();
                assert_eq!(Some(&name), seen.last(), "{line}");
            }
        }
        assert!(text.contains("responses_total{class=\"2xx\",worker=\"0\"} 11\n"), "{text}");
        assert!(text.contains("worker_heartbeat_age_seconds{worker=\"0\"} 1.500\n"), "{text}");
        assert!(text.contains("worker_heartbeat_age_seconds{worker=\"2\"} 0.100\n"), "{text}");
    }

    #[test]
    fn the_page_has_sums_and_workers() {
        let text = formatted(page);
        assert!(text.contains("<th>Worker 0</th><th>Worker 2</th></tr>"), "{text}");
        let row = "<tr><th>responses_total class=1xx</th><td>110</td><td>10</td><td>100</td></tr>";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("<td>1.5</td><td>0.1</td></tr>"), "{text}");
    }
}
