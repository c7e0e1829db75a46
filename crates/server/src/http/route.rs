//! The table of all routes. Routes are numbered for the counters, after the commands of RESP and
//! the requests of CQL.

use wire::http::{Method, Request};

use super::access::Refusal;
use super::exchange::{Answered, Exchange};
use super::{access, api, changes, command, console, cql, health, kv, metrics, subscribe};
use crate::commands::administration::OVERLOADED;
use crate::commands::{INFO, acl};
use crate::config::Settings;
use crate::engine::acl::{Acl, Identity};

/// Access rule of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    /// No password required: the route does not expose data.
    Open,
    /// Requires a user. What the route runs or shows is checked by command.
    Token,
    /// Requires a user that may run INFO.
    Insight,
    /// Requires a user that may do everything: the route bypasses commands.
    Everything,
}

/// Paths that a route matches.
#[derive(Debug, Clone, Copy)]
enum Path {
    Is(&'static str),
    /// All paths with this prefix.
    Below(&'static str),
    /// Paths that no other route matches.
    Other,
}

#[derive(Debug)]
pub(crate) struct Route {
    /// Name in the counters, with the prefix `http|`.
    pub(crate) name: &'static str,
    path: Path,
    /// Allowed methods. HEAD is allowed if GET is.
    methods: &'static [Method],
    access: Access,
    run: fn(&mut Exchange<'_>, &Request<'_>) -> Answered,
}

const GET: &[Method] = &[Method::Get];
const POST: &[Method] = &[Method::Post, Method::Put];
const VALUE: &[Method] = &[Method::Get, Method::Put, Method::Delete];
const ANY: &[Method] = &[Method::Get, Method::Post, Method::Put];

/// Routes in order of precedence: the first that matches path and method, otherwise the first that
/// matches the path.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        name: "http|healthz",
        path: Path::Is("/healthz"),
        methods: GET,
        access: Access::Open,
        run: health::live,
    },
    Route {
        name: "http|readyz",
        path: Path::Is("/readyz"),
        methods: GET,
        access: Access::Open,
        run: health::ready,
    },
    Route {
        name: "http|metrics",
        path: Path::Is("/metrics"),
        methods: GET,
        access: Access::Insight,
        run: metrics::page,
    },
    Route {
        name: "http|pipeline",
        path: Path::Is("/pipeline"),
        methods: POST,
        access: Access::Token,
        run: command::pipeline,
    },
    Route {
        name: "http|multi-exec",
        path: Path::Is("/multi-exec"),
        methods: POST,
        access: Access::Token,
        run: command::multi_exec,
    },
    Route {
        name: "http|command",
        path: Path::Is("/"),
        methods: POST,
        access: Access::Token,
        run: command::from_body,
    },
    Route {
        name: "http|console",
        path: Path::Is("/"),
        methods: GET,
        access: Access::Open,
        run: console::page,
    },
    Route {
        name: "http|console-part",
        path: Path::Below(console::PREFIX),
        methods: GET,
        access: Access::Open,
        run: console::part,
    },
    Route {
        name: "http|api",
        path: Path::Below(api::PREFIX),
        methods: GET,
        access: Access::Token,
        run: api::answer,
    },
    Route {
        name: "http|changes",
        path: Path::Is("/changes"),
        methods: GET,
        access: Access::Everything,
        run: changes::answer,
    },
    Route {
        name: "http|subscribe",
        path: Path::Below(subscribe::CHANNELS),
        methods: ANY,
        access: Access::Token,
        run: subscribe::channels,
    },
    Route {
        name: "http|psubscribe",
        path: Path::Below(subscribe::PATTERNS),
        methods: ANY,
        access: Access::Token,
        run: subscribe::patterns,
    },
    Route {
        name: "http|cql",
        path: Path::Is("/cql"),
        methods: POST,
        access: Access::Everything,
        run: cql::answer,
    },
    Route {
        name: "http|kv",
        path: Path::Below(kv::PREFIX),
        methods: VALUE,
        access: Access::Token,
        run: kv::answer,
    },
    Route {
        name: "http|command-path",
        path: Path::Other,
        methods: ANY,
        access: Access::Token,
        run: command::from_path,
    },
];

impl Route {
    /// False for health, metrics and the console, which an overloaded reactor and the spare one
    /// serve as well.
    pub(crate) fn needs_data(&self) -> bool {
        matches!(self.access, Access::Token | Access::Everything)
    }

    fn is_for(&self, path: &[u8]) -> bool {
        match self.path {
            Path::Is(known) => path == known.as_bytes(),
            Path::Below(prefix) => path.starts_with(prefix.as_bytes()),
            Path::Other => true,
        }
    }

    fn allows(&self, method: Method) -> bool {
        let method = if method == Method::Head { Method::Get } else { method };
        self.methods.contains(&method)
    }

    fn allowed(&self) -> String {
        let names = self.methods.iter().map(|method| match method {
            Method::Get => "GET, HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Delete => "DELETE",
            _ => unreachable!("no route allows another method"),
        });
        names.chain(["OPTIONS"]).collect::<Vec<_>>().join(", ")
    }

    /// Responds to a request whose path this route matches.
    pub(crate) fn answer(&self, exchange: &mut Exchange<'_>, request: &Request<'_>) -> Answered {
        if request.method() == Method::Options {
            return Ok(super::Response::new(204, "").with("Allow", self.allowed()));
        }
        if !self.allows(request.method()) {
            let refused = exchange.fail(405, "ERR method not allowed");
            return Ok(refused.with("Allow", self.allowed()));
        }
        if exchange.context.reactor.refuses_old && self.needs_data() {
            exchange.context.reactor.tally.totals.refused_old += 1;
            return Ok(exchange.fail(503, OVERLOADED));
        }
        let shared = exchange.context.shared;
        // Load the setting for each request: CONFIG SET may precede it in the same pipeline.
        match self.admit(request, &shared.acl, &shared.settings.load()) {
            Ok(identity) => exchange.become_user(identity),
            Err(refusal) => {
                return Ok(exchange.refuse(refusal, self.challenge(request.method())));
            }
        }
        (self.run)(exchange, request)
    }

    /// Challenge for a client without valid credentials. A browser prompts its user only for
    /// `Basic`. The console has a form for them, so what it requests gets a `Bearer` challenge: the
    /// API, and whatever is sent by POST.
    // Source: RFC 7617 2 (Basic), RFC 6750 3 (Bearer)
    fn challenge(&self, method: Method) -> &'static str {
        match (self.path, method) {
            (Path::Below(api::PREFIX), _) | (_, Method::Post) => "Bearer realm=\"myriad\"",
            _ => "Basic realm=\"myriad\", charset=\"UTF-8\"",
        }
    }

    /// Checks whether the client may use the route. Returns the user of the request; `None`: the
    /// default user, without a password.
    fn admit(
        &self,
        request: &Request<'_>,
        acl: &Acl,
        settings: &Settings,
    ) -> Result<Option<Identity>, Refusal> {
        if self.access == Access::Open {
            return Ok(None);
        }
        let identity = access::check(request, acl, settings, matches!(self.path, Path::Other))?;
        let users = acl.users();
        let user = identity.as_ref().map_or(users.default_user(), Identity::user);
        let is_permitted = match self.access {
            Access::Open | Access::Token => true,
            Access::Insight => acl::may_run_command(user, INFO.name),
            Access::Everything => user.is_unrestricted(),
        };
        if is_permitted { Ok(identity) } else { Err(Refusal::NotPermitted) }
    }

    /// Whether the response depends on the body of the request.
    pub(crate) fn reads_body_of(
        &self,
        request: &Request<'_>,
        acl: &Acl,
        settings: &Settings,
    ) -> bool {
        self.access != Access::Open
            && request.method() != Method::Options
            && self.allows(request.method())
            && self.admit(request, acl, settings).is_ok()
    }
}

/// Finds the number and the route of a request.
pub(crate) fn find(request: &Request<'_>) -> (usize, &'static Route) {
    let path = request.path();
    let mut fitting = ROUTES.iter().enumerate().filter(|(_, route)| route.is_for(path)).peekable();
    let first = *fitting.peek().expect("the last route matches every path");
    // The route that matches every path follows the routes of this path.
    let of_path = |(_, route): &(usize, &Route)| !matches!(route.path, Path::Other);
    let allowed = fitting.take_while(of_path).find(|(_, route)| route.allows(request.method()));
    allowed.unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_route_matches_all_other_paths() {
        assert!(ROUTES.last().is_some_and(|route| route.is_for(b"/set/a/b")));
        let names: std::collections::BTreeSet<_> = ROUTES.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), ROUTES.len(), "names are unique");
        assert!(names.iter().all(|name| name.starts_with("http|")));
    }

    #[test]
    fn the_documentation_has_every_route() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/http.md");
        let text = std::fs::read_to_string(page).unwrap();
        for route in ROUTES {
            let path = match route.path {
                // The files of the console are part of its page.
                Path::Below(console::PREFIX) | Path::Other => continue,
                Path::Is(path) | Path::Below(path) => path,
            };
            let listed = text.contains(&format!("`{path}"));
            assert!(listed, "docs/reference/http.md has no line for {path} ({})", route.name);
        }
    }

    #[test]
    fn the_allow_header_lists_methods() {
        assert_eq!(ROUTES[0].allowed(), "GET, HEAD, OPTIONS");
        assert!(ROUTES[0].allows(Method::Head) && !ROUTES[0].allows(Method::Post));
    }
}
