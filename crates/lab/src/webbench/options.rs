//! The options of webbench 1.5.

use anyhow::{Context, Result, bail, ensure};

use crate::command_line::CommandLine;
use crate::load::{CONNECTIONS_MAX, HttpVersion};

pub(crate) const HELP: &str = "\
Usage: myriad-lab webbench [OPTIONS] URL

  -f, --force                Don't wait for reply from server.
  -r, --reload               Send reload request - Pragma: no-cache.
  -t, --time <sec>           Run benchmark for <sec> seconds. Default 30.
  -p, --proxy <server:port>  Use proxy server for request.
  -c, --clients <n>          Run <n> HTTP clients at once. Default one.
  -9, --http09               Use HTTP/0.9 style requests.
  -1, --http10               Use HTTP/1.0 protocol.
  -2, --http11               Use HTTP/1.1 protocol.
      --get                  Use GET request method.
      --head                 Use HEAD request method.
      --options              Use OPTIONS request method.
      --trace                Use TRACE request method.
  -?, -h, --help             This information.
  -V, --version              Display program version.

Options and output are those of webbench 1.5. The load generator is that of this lab, and counts
differently: a page is a complete response with a status of 2xx. Failures are neither pages nor part of
the speed; they are listed separately, as are requests in flight at the end.
";

/// Version of the tool with these options.
pub(super) const VERSION: &str = "1.5";
/// As in the tool.
const URL_BYTES_MAX: usize = 1_500;
const PORT_DEFAULT: u16 = 80;
/// A day, as for every load.
const SECONDS_MAX: u64 = 86_400;

/// The parsed options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) ignores_answers: bool,
    pub(crate) reloads: bool,
    pub(crate) seconds: u64,
    pub(crate) proxy: Option<(String, u16)>,
    pub(crate) clients: usize,
    pub(crate) version: HttpVersion,
    pub(crate) method: &'static str,
    pub(crate) url: Url,
}

/// Location of a page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Url {
    /// As given.
    pub(crate) text: String,
    pub(crate) host: String,
    pub(crate) port: u16,
    /// From the slash on.
    pub(crate) target: String,
}

/// The requested action.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Help,
    Version,
    Run(Box<Options>),
}

pub(crate) fn parse(parser: &mut CommandLine<'_>) -> Result<Action> {
    use lexopt::prelude::*;
    let mut options = Options {
        ignores_answers: false,
        reloads: false,
        seconds: 30,
        proxy: None,
        clients: 1,
        version: HttpVersion::V1_0,
        method: "GET",
        url: Url::default(),
    };
    let mut url = None;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h' | '?') | Long("help") => return Ok(Action::Help),
            Short('V') | Long("version") => return Ok(Action::Version),
            Short('f') | Long("force") => options.ignores_answers = true,
            Short('r') | Long("reload") => options.reloads = true,
            Short('t') | Long("time") => options.seconds = parser.value()?,
            Short('p') | Long("proxy") => {
                options.proxy = Some(proxy(&parser.text()?)?);
            }
            Short('c') | Long("clients") => options.clients = parser.value()?,
            Short('9') | Long("http09") => options.version = HttpVersion::V0_9,
            Short('1') | Long("http10") => options.version = HttpVersion::V1_0,
            Short('2') | Long("http11") => options.version = HttpVersion::V1_1,
            Long("get") => options.method = "GET",
            Long("head") => options.method = "HEAD",
            Long("options") => options.method = "OPTIONS",
            Long("trace") => options.method = "TRACE",
            Value(text) if url.is_none() => url = Some(text.string()?),
            other => return Err(other.unexpected().into()),
        }
    }
    let url = url.context("missing URL; see myriad-lab webbench --help")?;
    options.url = Url::of(&url, options.proxy.is_some())?;
    ensure!((1..=SECONDS_MAX).contains(&options.seconds), "-t must be 1 to {SECONDS_MAX}");
    ensure!((1..=CONNECTIONS_MAX).contains(&options.clients), "-c must be 1 to {CONNECTIONS_MAX}");
    options.raise_version();
    Ok(Action::Run(Box::new(options)))
}

impl Options {
    /// Options that older versions lack require a newer one, as in the tool.
    fn raise_version(&mut self) {
        let is_oldest = self.version == HttpVersion::V0_9;
        let wants_head = self.method == "HEAD" || (self.reloads && self.proxy.is_some());
        if is_oldest && wants_head {
            self.version = HttpVersion::V1_0;
        }
        if matches!(self.method, "OPTIONS" | "TRACE") {
            self.version = HttpVersion::V1_1;
        }
    }
}

fn proxy(text: &str) -> Result<(String, u16)> {
    let (host, port) = text.rsplit_once(':').unwrap_or((text, "80"));
    ensure!(!host.is_empty(), "Error in option --proxy {text}: Missing hostname.");
    let port = port.parse().ok();
    let port =
        port.with_context(|| format!("Error in option --proxy {text} Port number is missing."))?;
    Ok((host.to_owned(), port))
}

impl Url {
    /// Parses a URL with the tool's error messages. With a proxy any scheme is allowed.
    fn of(text: &str, has_proxy: bool) -> Result<Url> {
        let Some((scheme, rest)) = text.split_once("://") else {
            bail!("{text}: is not a valid URL.");
        };
        ensure!(text.len() <= URL_BYTES_MAX, "URL is too long.");
        ensure!(
            has_proxy || scheme.eq_ignore_ascii_case("http"),
            "Only HTTP protocol is directly supported, set --proxy for others."
        );
        let Some(slash) = rest.find('/') else {
            bail!("Invalid URL syntax - hostname don't ends with '/'.");
        };
        let (authority, target) = rest.split_at(slash);
        let (host, port) = match authority.rsplit_once(':') {
            // Colons of an IPv6 address are inside brackets.
            Some((host, port)) if !port.contains(']') => {
                (host, port.parse().with_context(|| format!("{text}: {port:?} is not a port"))?)
            }
            _ => (authority, PORT_DEFAULT),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        ensure!(!host.is_empty(), "{text}: is not a valid URL.");
        ensure!(
            target.bytes().all(|byte| byte.is_ascii_graphic()),
            "{text}: characters other than printable ASCII must be escaped as %XX"
        );
        let (host, target) = (host.to_owned(), target.to_owned());
        Ok(Url { text: text.to_owned(), host, port, target })
    }
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;

    fn parsed(words: &[&str]) -> Result<Options> {
        match parse(&mut CommandLine::new(&mut Parser::from_args(words)))? {
            Action::Run(options) => Ok(*options),
            other => bail!("{other:?}"),
        }
    }

    #[test]
    fn flags_are_those_of_the_tool() {
        let options = parsed(&["http://localhost/"]).unwrap();
        assert_eq!((options.seconds, options.clients), (30, 1));
        assert_eq!((options.version, options.method), (HttpVersion::V1_0, "GET"));
        let words = ["-f", "-r", "-t", "5", "-c10", "-2", "--head", "http://a:81/b?c"];
        let options = parsed(&words).unwrap();
        assert!(options.ignores_answers && options.reloads);
        assert_eq!((options.seconds, options.clients, options.method), (5, 10, "HEAD"));
        assert_eq!(options.version, HttpVersion::V1_1);
        let words = ["--time", "1", "--clients=2", "--http09", "--proxy", "p:3128", "ftp://a/"];
        let options = parsed(&words).unwrap();
        assert_eq!(options.proxy, Some(("p".to_owned(), 3128)));
        assert_eq!(options.version, HttpVersion::V0_9);
        for (words, wanted) in [(["-?"], Action::Help), (["-V"], Action::Version)] {
            assert_eq!(
                parse(&mut CommandLine::new(&mut Parser::from_args(words))).unwrap(),
                wanted
            );
        }
    }

    #[test]
    fn methods_need_their_version() {
        let check = |words: &[&str], version| {
            assert_eq!(parsed(words).unwrap().version, version, "{words:?}");
        };
        check(&["-9", "http://a/"], HttpVersion::V0_9);
        check(&["-9", "--head", "http://a/"], HttpVersion::V1_0);
        check(&["-1", "--trace", "http://a/"], HttpVersion::V1_1);
        check(&["--options", "http://a/"], HttpVersion::V1_1);
    }

    #[test]
    fn urls_have_a_host_and_a_slash() {
        let check = |text: &str, host: &str, port: u16, target: &str| {
            let url = Url::of(text, false).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.target.as_str()), (host, port, target));
        };
        check("http://a/", "a", 80, "/");
        check("HTTP://127.0.0.1:8080/x/y?z=1", "127.0.0.1", 8080, "/x/y?z=1");
        check("http://[::1]:81/", "::1", 81, "/");
        check("http://[::1]/", "::1", 80, "/");
        for (text, reason) in [
            ("a/b", "a/b: is not a valid URL."),
            ("http://", "Invalid URL syntax - hostname don't ends with '/'."),
            ("https://a/", "Only HTTP protocol is directly supported, set --proxy for others."),
            ("http:///", "http:///: is not a valid URL."),
            ("http://a:b/", "http://a:b/: \"b\" is not a port"),
        ] {
            assert_eq!(Url::of(text, false).unwrap_err().to_string(), reason);
        }
        assert!(parsed(&[]).unwrap_err().to_string().starts_with("missing URL"));
        for seconds in ["0", "86401", "18446744073709551615"] {
            let error = parsed(&["-t", seconds, "http://a/"]).unwrap_err().to_string();
            assert_eq!(error, "-t must be 1 to 86400");
        }
    }
}
