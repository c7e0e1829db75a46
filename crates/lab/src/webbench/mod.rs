//! `myriad-lab webbench`: the options and output of that tool, with this lab's generator.

mod options;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use self::options::{Action, HELP, Options, VERSION};
use crate::command_line::{CommandLine, Job, printing};
use crate::load::{
    Arrival, Distribution, HttpConnection, HttpVersion, HttpWork, Keys, LoadEvent, LoadReport,
    LoadSpec, Operation, Protocol, Sharing, Sizes, SocketWork, Warmup, Work, generate,
};

/// For the initial connection that checks for a server.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Windows are not reported here. The tool counts in seconds.
const WINDOW_MS: u64 = 1_000;

/// Parses the arguments after `webbench`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    Ok(match options::parse(parser)? {
        Action::Help => printing(HELP),
        Action::Version => printing(format!("{VERSION}\n")),
        Action::Run(options) => Box::new(move || run(&options)),
    })
}

fn run(options: &Options) -> Result<()> {
    let address = resolve(options)?;
    crate::command_line::print(&beginning(options))?;
    // As in the tool, which connects once before it starts its clients.
    TcpStream::connect_timeout(&address, CONNECT_TIMEOUT).with_context(|| {
        format!("Connect to server failed. Aborting benchmark. Could not connect to {address}")
    })?;
    let mut report = None;
    generate(&spec(options, address), &mut |event| {
        if let LoadEvent::Done(done) = event {
            report = Some(*done);
        }
        Ok(())
    })?;
    let report = report.context("the load generator sent no report")?;
    crate::command_line::print(&end(&report))?;
    ensure!(report.operations > 0, "no request succeeded");
    Ok(())
}

/// Returns the target address: that of the proxy if there is one.
fn resolve(options: &Options) -> Result<SocketAddr> {
    let url = (options.url.host.clone(), options.url.port);
    let (host, port) = options.proxy.clone().unwrap_or(url);
    Ok(base::address::resolve_host(&host, port)?)
}

fn spec(options: &Options, address: SocketAddr) -> LoadSpec {
    let url = &options.url;
    let target = if options.proxy.is_some() { &url.text } else { &url.target };
    let mut headers = vec![("User-Agent".to_owned(), format!("WebBench {VERSION}"))];
    if options.reloads {
        headers.push(("Pragma".to_owned(), "no-cache".to_owned()));
    }
    let words = vec![options.method.to_owned(), target.clone()];
    LoadSpec {
        side_loads: BTreeMap::new(),
        work: Work::Socket(SocketWork {
            protocol: Protocol::Http,
            address,
            password: None,
            threads: 1,
            connections: options.clients,
            users: 0,
            sharing: Sharing::Blocking,
            pipeline: 1,
            arrival: Arrival::Closed,
            mix: vec![Operation { weight: 1.0, words }],
            keys: Keys { prefix: String::new(), count: 1, distribution: Distribution::Uniform },
            value_bytes: Sizes::Fixed(0),
            setup: Vec::new(),
            cql: None,
            http: Some(Box::new(HttpWork {
                connection: HttpConnection::Close,
                version: options.version,
                host: url.host.clone(),
                headers,
                body_bytes: None,
                // The tool waits until the end.
                timeout_ms: options.seconds * 1_000,
                ignores_answers: options.ignores_answers,
            })),
        }),
        warmup: Warmup::Fixed { ms: 0 },
        duration_ms: options.seconds * 1_000,
        operations_max: None,
        window_ms: WINDOW_MS,
        cpus: Vec::new(),
        seed: 1,
    }
}

/// Formats the output before the load.
fn beginning(options: &Options) -> String {
    let Options { method, clients, seconds, .. } = options;
    let using = match options.version {
        HttpVersion::V0_9 => " (using HTTP/0.9)",
        HttpVersion::V1_0 => "",
        HttpVersion::V1_1 => " (using HTTP/1.1)",
    };
    let plural = if *clients == 1 { "" } else { "s" };
    let mut text = format!(
        "Webbench - Simple Web Benchmark {VERSION}, with the generator of myriad-lab\n\n\
         Benchmarking: {method} {}{using}\n{clients} client{plural}, running {seconds} sec",
        options.url.text
    );
    if options.ignores_answers {
        text.push_str(", early socket close");
    }
    if let Some((host, port)) = &options.proxy {
        write!(text, ", via proxy server {host}:{port}").expect("writing to a String cannot fail");
    }
    if options.reloads {
        text.push_str(", forcing reload");
    }
    text + ".\n"
}

/// Formats the output after the load.
fn end(report: &LoadReport) -> String {
    let ns = u128::from(report.duration_ns.max(1));
    let per = |count: u64, unit_ns: u128| u128::from(count) * unit_ns / ns;
    let failed: u64 = report.errors.values().sum();
    let mut text = format!(
        "\nSpeed={} pages/min, {} bytes/sec.\nRequests: {} susceed, {failed} failed.\n",
        per(report.operations, 60_000_000_000),
        per(report.received_bytes, 1_000_000_000),
        report.operations,
    );
    if failed > 0 {
        let by_word = report.errors.iter().map(|(word, count)| format!("{count} {word}"));
        let by_word: Vec<String> = by_word.collect();
        writeln!(text, "Failed: {}.", by_word.join(", ")).expect("writing to a String cannot fail");
    }
    if report.unfinished > 0 {
        writeln!(text, "In flight at the end: {}.", report.unfinished)
            .expect("writing to a String cannot fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use lexopt::Parser;

    use super::*;

    fn options(words: &[&str]) -> Options {
        match options::parse(&mut CommandLine::new(&mut Parser::from_args(words))).unwrap() {
            Action::Run(options) => *options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn webbench_says_what_it_is_about_to_do() {
        let plain = beginning(&options(&["http://localhost/"]));
        assert!(
            plain.ends_with("\n\nBenchmarking: GET http://localhost/\n1 client, running 30 sec.\n")
        );
        let words = ["-c", "7", "-t3", "-f", "-r", "-2", "-p", "p:1", "--head", "http://a/"];
        let all = beginning(&options(&words));
        let expected = "Benchmarking: HEAD http://a/ (using HTTP/1.1)\n7 clients, running 3 sec, early \
                        socket close, via proxy server p:1, forcing reload.\n";
        assert!(all.ends_with(expected), "{all}");
    }

    #[test]
    fn webbench_counts_failures_apart() {
        let mut report = LoadReport {
            duration_ns: 30_000_000_000,
            operations: 1_500,
            received_bytes: 99_000,
            ..LoadReport::default()
        };
        let expected =
            "\nSpeed=3000 pages/min, 3300 bytes/sec.\nRequests: 1500 susceed, 0 failed.\n";
        assert_eq!(end(&report), expected);
        report.errors = [("refused".to_owned(), 3), ("status 404".to_owned(), 4)].into();
        report.unfinished = 5;
        let text = end(&report);
        assert!(text.starts_with("\nSpeed=3000 pages/min"), "{text}");
        assert!(
            text.ends_with(
                "1500 susceed, 7 failed.\nFailed: 3 refused, 4 status 404.\nIn flight at the end: 5.\n"
            ),
            "{text}"
        );
    }

    /// As in the tool, which exits immediately if no server listens.
    #[test]
    fn webbench_fails_at_once_where_nothing_answers() {
        let free = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
        let url = format!("http://{free}/");
        let error = run(&options(&["-t", "3600", &url])).unwrap_err().to_string();
        assert!(error.starts_with("Connect to server failed. Aborting benchmark."), "{error}");
    }

    #[test]
    fn webbench_fails_if_no_request_succeeds() {
        use std::io::{Read, Write};

        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        // Ends with the process.
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                // A client that has closed its end needs no response.
                let _ = stream.read(&mut [0; 512]);
                let _ = stream.write_all(b"HTTP/1.0 404 Not Found\r\n\r\n");
            }
        });
        let error = run(&options(&["-t", "1", &url])).unwrap_err().to_string();
        assert_eq!(error, "no request succeeded");
    }

    /// From the command line to a page of a server that handles one request after the other.
    #[test]
    fn webbench_asks_for_the_page_as_the_tool_does() {
        use std::io::{Read, Write};

        use crate::load::{Patience, generate_with};
        let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut head, mut chunk) = (Vec::new(), [0; 512]);
            while !head.ends_with(b"\r\n\r\n") {
                let count = stream.read(&mut chunk).unwrap();
                assert_ne!(count, 0);
                head.extend_from_slice(&chunk[..count]);
            }
            stream.write_all(b"HTTP/1.0 200 OK\r\n\r\npage").unwrap();
            String::from_utf8(head).unwrap()
        });
        let url = format!("http://127.0.0.1:{port}/a?b");
        let options = options(&["-t", "60", &url]);
        let address = resolve(&options).unwrap();
        let spec = LoadSpec { operations_max: Some(1), ..spec(&options, address) };
        let mut pages = 0;
        let reply = std::time::Duration::from_mins(1);
        let patience = Patience { reply, ..Patience::default() };
        generate_with(&spec, patience, &mut |event| {
            if let LoadEvent::Done(report) = event {
                pages += report.operations;
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(pages, 1);
        let expected = "GET /a?b HTTP/1.0\r\nHost: 127.0.0.1\r\nUser-Agent: WebBench 1.5\r\n\r\n";
        assert_eq!(server.join().unwrap(), expected);
    }
}
