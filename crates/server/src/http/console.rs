//! The console: web pages that the browser builds from `/api/v1/...`. Its files are embedded in the
//! program; it loads nothing from other hosts.

use wire::http::Request;

use super::exchange::{Answered, Exchange, Response};

pub(super) const PREFIX: &str = "/console/";

/// The browser may load scripts, styles and data only from this server.
// Source: Content Security Policy Level 3
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

const PAGE: &str = include_str!("console/index.html");

/// Name below the prefix, media type, content.
const PARTS: &[(&str, &str, &str)] = &[
    ("api.js", SCRIPT, include_str!("console/api.js")),
    ("app.js", SCRIPT, include_str!("console/app.js")),
    ("bytes.js", SCRIPT, include_str!("console/bytes.js")),
    ("channels.js", SCRIPT, include_str!("console/channels.js")),
    ("chart.js", SCRIPT, include_str!("console/chart.js")),
    ("clients.js", SCRIPT, include_str!("console/clients.js")),
    ("command.js", SCRIPT, include_str!("console/command.js")),
    ("configuration.js", SCRIPT, include_str!("console/configuration.js")),
    ("cql.js", SCRIPT, include_str!("console/cql.js")),
    ("dom.js", SCRIPT, include_str!("console/dom.js")),
    ("history.js", SCRIPT, include_str!("console/history.js")),
    ("icons.js", SCRIPT, include_str!("console/icons.js")),
    ("keys.js", SCRIPT, include_str!("console/keys.js")),
    ("latency.js", SCRIPT, include_str!("console/latency.js")),
    ("overview.js", SCRIPT, include_str!("console/overview.js")),
    ("replication.js", SCRIPT, include_str!("console/replication.js")),
    ("server.js", SCRIPT, include_str!("console/server.js")),
    ("slow.js", SCRIPT, include_str!("console/slow.js")),
    ("state.js", SCRIPT, include_str!("console/state.js")),
    ("style.css", "text/css; charset=utf-8", include_str!("console/style.css")),
    ("values.js", SCRIPT, include_str!("console/values.js")),
    ("verdict.js", SCRIPT, include_str!("console/verdict.js")),
];

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn page(exchange: &mut Exchange<'_>, _: &Request<'_>) -> Answered {
    Ok(show(exchange, "text/html; charset=utf-8", PAGE))
}

#[expect(clippy::unnecessary_wraps, reason = "every route returns Answered")]
pub(super) fn part(exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
    let name = request.path().strip_prefix(PREFIX.as_bytes()).unwrap_or_default();
    match PARTS.iter().find(|(known, _, _)| known.as_bytes() == name) {
        Some((_, media, content)) => Ok(show(exchange, media, content)),
        None => Ok(exchange.fail(404, "ERR the console has no such file")),
    }
}

fn show(exchange: &mut Exchange<'_>, media: &'static str, content: &str) -> Response {
    exchange.scratch.body.extend_from_slice(content.as_bytes());
    Response::new(200, media)
        .with("Content-Security-Policy", POLICY)
        .with("Referrer-Policy", "no-referrer")
        .with("X-Frame-Options", "DENY")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_referenced_part_exists() {
        let all = PARTS.iter().map(|(_, _, content)| *content).chain([PAGE]);
        for content in all {
            for name in content.split("/console/").skip(1).chain(content.split("from \"./").skip(1))
            {
                let name = name.split('"').next().unwrap_or_default();
                assert!(PARTS.iter().any(|(known, _, _)| *known == name), "{name}");
            }
            let strange = ["http://", "https://"].iter().any(|scheme| {
                content.split(scheme).skip(1).any(|rest| !rest.starts_with("www.w3.org/"))
            });
            assert!(!strange, "the console loads nothing from other hosts");
        }
    }
}
