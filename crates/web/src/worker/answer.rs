//! Responses of the server itself: routing of requests, and encoding of responses.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::time::{MonoNs, Now};
use rustix::time::{ClockId, clock_gettime};
use wire::http::{Method, Request, RequestError, ResponseWriter, reason};

use super::client::ResponseOptions;
use crate::config::Config;
use crate::content::conditions::{self, Part, Verdict, Version};
use crate::content::encoding::{self, Coding};
use crate::content::file::{Body, Content, File, OpenError};
use crate::content::files::{CacheStats, Files, Lookup, Opener};
use crate::content::long::LongFile;
use crate::content::path::{self, Below, PathError};

/// Response of the web server that this one is compared with, byte for byte.
pub(crate) const HELLO: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\n\r\nHello from Tom HTTP Server\n";
/// The same response where HTTP/1.1 requires announcing the end of the connection.
const HELLO_AND_CLOSE: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Length: 27\r\nConnection: close\r\n\r\nHello from Tom HTTP Server\n";
const HELLO_BODY: &[u8] = b"Hello from Tom HTTP Server\n";
const _: () = assert!(HELLO.len() == 66);
/// Requests below this folder are forwarded to the upstream.
pub(crate) const UPSTREAM_FOLDER: &[u8] = b"api";

/// What was appended, and what must follow.
#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    /// A range of a file.
    File {
        file: Arc<LongFile>,
        offset: u64,
        bytes: u64,
    },
    /// Nothing was appended: the upstream responds.
    Upstream,
    /// Nothing was appended: a thread that may block must open or compress a file.
    Cold(Lookup),
}

/// The response, as logged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sent {
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
}

/// Consumes this much processor time; time when the thread is not running does not count.
fn compute(ns: u64) {
    let until_ns = thread_ns().saturating_add(ns);
    while thread_ns() < until_ns {
        for _ in 0..16 {
            std::hint::spin_loop();
        }
    }
}

/// Returns the processor time of the calling thread.
fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// A file that a client has waited for.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) lookup: Lookup,
    pub(crate) file: Result<Arc<File>, OpenError>,
}

impl Opened {
    /// Blocks.
    pub(crate) fn by(opener: &Opener, lookup: Lookup) -> Opened {
        let file = opener.open(&lookup);
        Opened { lookup, file }
    }
}

/// Content served by this server itself.
#[derive(Debug)]
pub(crate) struct Site {
    files: Option<Files>,
    has_upstream: bool,
    date: DateText,
    /// Processor time consumed before each response.
    work_ns: u64,
}

impl Site {
    /// `root` is the directory of the files, if files are served.
    pub(crate) fn new(config: &Config, root: Option<OwnedFd>) -> Site {
        Site {
            files: root.map(|root| Files::below(root, config.compress)),
            has_upstream: config.upstream.is_some(),
            date: DateText::default(),
            work_ns: config.work_us * 1_000,
        }
    }

    /// Returns the statistics of the file cache.
    pub(crate) fn cache(&self) -> CacheStats {
        self.files.as_ref().map(Files::stats).unwrap_or_default()
    }

    /// Redirects to the same target over HTTPS, with the host of the request.
    // Source: RFC 9110 15.4.2 (301), 15.4.9 (308)
    pub(crate) fn redirect_to_https(
        &self,
        request: &Request<'_>,
        options: ResponseOptions,
        port: u16,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        let host = request.host().unwrap_or_default();
        // After the bracket of an IPv6 address, or after a name.
        let name_end = host.iter().position(|&byte| byte == b']').unwrap_or(0);
        let colon = host[name_end..].iter().position(|&byte| byte == b':');
        let host = &host[..colon.map_or(host.len(), |at| name_end + at)];
        if host.is_empty() {
            return self.words(400, options, out);
        }
        let mut location = [b"https://", host].concat();
        if port != 443 {
            location.extend_from_slice(format!(":{port}").as_bytes());
        }
        location.extend_from_slice(request.path());
        if let Some(query) = request.query() {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let is_safe = matches!(request.method(), Method::Get | Method::Head);
        let status = if is_safe { 301 } else { 308 };
        self.head(status, options, out).header("Location", &location).length(0);
        (Answer::Done, Sent { status, body_bytes: 0 })
    }

    /// Returns an opener for [`Opened`]; `None` if no files are served.
    pub(crate) fn opener(&self) -> Option<Opener> {
        self.files.as_ref().map(Files::opener)
    }

    /// Caches a file that was opened by another thread.
    pub(crate) fn take(&mut self, opened: &Opened, now: Now) {
        if let Some(files) = &mut self.files {
            files.take(&opened.lookup.name, &opened.file, now.mono);
        }
    }

    /// Appends the response to `request`; `opened` is the file that it has waited for.
    pub(crate) fn answer(
        &mut self,
        request: &Request<'_>,
        options: ResponseOptions,
        now: Now,
        opened: Option<&Opened>,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        // A request that waited for a file has already consumed it.
        if self.work_ns > 0 && opened.is_none() {
            compute(self.work_ns);
        }
        let is_plain = request.method() == Method::Get && !options.announces_keep_alive;
        if request.target() == b"/hello" && is_plain {
            // HTTP/1.0 clients assume that the connection ends.
            let announces_close = options.closes && !options.is_old;
            out.extend_from_slice(if announces_close { HELLO_AND_CLOSE } else { HELLO });
            return (Answer::Done, Sent { status: 200, body_bytes: HELLO_BODY.len() as u64 });
        }
        self.date.update(now);
        let path = request.path();
        if path == b"/hello" {
            return self.hello(request, options, out);
        }
        if self.has_upstream {
            match path::below(path, UPSTREAM_FOLDER) {
                Below::Inside(_) => return (Answer::Upstream, Sent { status: 0, body_bytes: 0 }),
                Below::Itself => return self.redirect(request, options, out),
                Below::Elsewhere => {}
            }
        }
        match request.method() {
            Method::Get | Method::Head => self.file(request, options, now.mono, opened, out),
            Method::Options => self.options(options, out),
            Method::Post | Method::Put | Method::Delete | Method::Patch => {
                self.words(405, options, out)
            }
            Method::Connect | Method::Trace | Method::Other => self.words(501, options, out),
        }
    }

    fn hello(
        &self,
        request: &Request<'_>,
        options: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        match request.method() {
            Method::Get | Method::Head => {
                let head = self.head(200, options, out).header("Content-Type", b"text/plain");
                end_with(head, HELLO_BODY, options);
                (Answer::Done, Sent { status: 200, body_bytes: HELLO_BODY.len() as u64 })
            }
            Method::Options => self.options(options, out),
            _ => self.words(405, options, out),
        }
    }

    fn options(&self, options: ResponseOptions, out: &mut Vec<u8>) -> (Answer, Sent) {
        self.head(204, options, out).header("Allow", b"GET, HEAD, OPTIONS").end();
        (Answer::Done, Sent { status: 204, body_bytes: 0 })
    }

    fn file(
        &mut self,
        request: &Request<'_>,
        options: ResponseOptions,
        now: MonoNs,
        opened: Option<&Opened>,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        let Some(files) = &mut self.files else { return self.words(404, options, out) };
        let mut name = match path::parse(request.path()) {
            Ok(name) => name,
            Err(PathError::Malformed) => return self.words(400, options, out),
            Err(PathError::Unknown) => return self.words(404, options, out),
        };
        if name.is_directory {
            let separator: &[u8] = if name.bytes.is_empty() { b"" } else { b"/" };
            name.bytes.extend_from_slice(separator);
            name.bytes.extend_from_slice(b"index.html");
        }
        let opened = opened.filter(|opened| opened.lookup.name == name.bytes);
        let found = match opened {
            Some(opened) => opened.file.clone(),
            None => files.cached(&name.bytes, now),
        };
        let cold =
            |name, packs| (Answer::Cold(Lookup { name, packs }), Sent { status: 0, body_bytes: 0 });
        match found {
            Ok(file) if must_pack(request, &file) && opened.is_none_or(|one| !one.lookup.packs) => {
                cold(name.bytes, true)
            }
            Ok(file) => self.content(request, &file, options, out),
            Err(OpenError::Directory) if !name.is_directory => self.redirect(request, options, out),
            Err(OpenError::NotFound | OpenError::Directory) => self.words(404, options, out),
            Err(OpenError::Forbidden) => self.words(403, options, out),
            Err(OpenError::Overload) => self.words(503, options, out),
            Err(OpenError::Cold) => cold(name.bytes, false),
        }
    }

    /// Redirects to the same path with a trailing slash. Clients repeat a request as GET after 301,
    /// so methods with a body get 308.
    // Source: RFC 9110 15.4.2 (301), 15.4.9 (308), 10.2.2 (Location may be relative)
    fn redirect(
        &self,
        request: &Request<'_>,
        options: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        // Exactly one leading slash: after two, the next segment would be a host.
        let mut location = vec![b'/'];
        let path = request.path();
        let slashes = path.iter().take_while(|&&byte| byte == b'/').count();
        location.extend_from_slice(&path[slashes..]);
        location.push(b'/');
        if let Some(query) = request.query() {
            location.push(b'?');
            location.extend_from_slice(query);
        }
        let is_safe = matches!(request.method(), Method::Get | Method::Head);
        let status = if is_safe { 301 } else { 308 };
        self.head(status, options, out).header("Location", &location).length(0);
        (Answer::Done, Sent { status, body_bytes: 0 })
    }

    /// Serves a file according to the client's conditions, ranges and codings.
    fn content(
        &self,
        request: &Request<'_>,
        file: &File,
        options: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        let headers = request.headers();
        // Ranges refer to the unencoded file.
        let coding = match headers.clone().get("range") {
            None if file.varies() => encoding::choose(headers.clone(), |coding| file.has(coding)),
            _ => None,
        };
        let content = coding.and_then(|coding| file.coded(coding)).unwrap_or(&file.plain);
        let version = Version { etag: &content.etag, modified: file.modified };
        match conditions::evaluate(&headers, version) {
            Verdict::Serve => {}
            Verdict::NotModified => {
                Self::describe(self.head(304, options, out), file, content).end();
                return (Answer::Done, Sent { status: 304, body_bytes: 0 });
            }
            Verdict::Failed => return self.words(412, options, out),
        }
        let part = match request.method() {
            Method::Get if coding.is_none() => conditions::part(&headers, version, content.bytes),
            _ => Part::Whole,
        };
        let (status, range) = match part {
            Part::Whole => (200, 0..content.bytes),
            Part::Range(range) => (206, range),
            Part::Unsatisfiable => {
                let range = format!("bytes */{}", content.bytes);
                let head = self.head(416, options, out).header("Content-Range", range.as_bytes());
                head.length(0);
                return (Answer::Done, Sent { status: 416, body_bytes: 0 });
            }
        };
        let mut head = Self::describe(self.head(status, options, out), file, content)
            .header("Content-Type", file.media.text.as_bytes())
            .header("Accept-Ranges", b"bytes");
        if let Some(coding) = coding {
            head = head.header("Content-Encoding", coding.name().as_bytes());
        }
        if status == 206 {
            let text = format!("bytes {}-{}/{}", range.start, range.end - 1, content.bytes);
            head = head.header("Content-Range", text.as_bytes());
        }
        let bytes = range.end - range.start;
        let out = head.length(bytes);
        let sent = Sent { status, body_bytes: bytes };
        if options.is_head || bytes == 0 {
            return (Answer::Done, sent);
        }
        match &content.body {
            Body::Kept(kept) => {
                let place = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(kept.len());
                out.extend_from_slice(&kept[place(range.start)..place(range.end)]);
                (Answer::Done, sent)
            }
            Body::Open(open) => {
                let answer = Answer::File { file: Arc::clone(open), offset: range.start, bytes };
                (answer, sent)
            }
        }
    }

    /// Writes the headers that distinguish versions; also used in 304.
    // Source: RFC 9110 15.4.5 (304), 8.8.2, 8.8.3, 12.5.5 (Vary)
    fn describe<'a>(
        head: ResponseWriter<'a>,
        file: &File,
        content: &Content,
    ) -> ResponseWriter<'a> {
        let head = head
            .header("ETag", content.etag.as_bytes())
            .header("Last-Modified", file.modified_text.as_bytes());
        if file.varies() { head.header("Vary", b"Accept-Encoding") } else { head }
    }

    /// Responds with a status and its standard text as content.
    pub(crate) fn words(
        &self,
        status: u16,
        options: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> (Answer, Sent) {
        let mut head = self.head(status, options, out).header("Content-Type", b"text/plain");
        match status {
            405 => head = head.header("Allow", b"GET, HEAD, OPTIONS"),
            503 => head = head.header("Retry-After", b"1"),
            _ => {}
        }
        let body = format!("{status} {}\n", reason(status));
        end_with(head, body.as_bytes(), options);
        (Answer::Done, Sent { status, body_bytes: body.len() as u64 })
    }

    /// Responds to input that is not a valid request, and closes the connection.
    pub(crate) fn refuse(&mut self, error: RequestError, now: Now, out: &mut Vec<u8>) -> Sent {
        self.refuse_with(error.status(), &error.to_string(), now, out)
    }

    /// Responds with a status and this text, and closes the connection.
    pub(crate) fn refuse_with(
        &mut self,
        status: u16,
        words: &str,
        now: Now,
        out: &mut Vec<u8>,
    ) -> Sent {
        self.date.update(now);
        let head =
            self.head(status, ResponseOptions::REFUSED, out).header("Content-Type", b"text/plain");
        let body = format!("{status} {}: {words}\n", reason(status));
        head.body(body.as_bytes());
        Sent { status, body_bytes: body.len() as u64 }
    }

    /// Writes the status line and the first headers.
    // Source: RFC 9110 6.6.1 (Date); RFC 9112 9.3, 9.6 (Connection)
    pub(crate) fn head<'a>(
        &self,
        status: u16,
        options: ResponseOptions,
        out: &'a mut Vec<u8>,
    ) -> ResponseWriter<'a> {
        let head = Self::head_without_date(status, options, out);
        head.header("Date", self.date.text.as_bytes())
    }

    /// Writes the same for a forwarded response that has its own date.
    pub(crate) fn head_without_date(
        status: u16,
        options: ResponseOptions,
        out: &mut Vec<u8>,
    ) -> ResponseWriter<'_> {
        let head = ResponseWriter::new(out, status);
        if options.closes {
            head.header("Connection", b"close")
        } else if options.announces_keep_alive {
            head.header("Connection", b"keep-alive")
        } else {
            head
        }
    }

    /// Updates the date text, for forwarded responses.
    pub(crate) fn update_date(&mut self, now: Now) {
        self.date.update(now);
    }
}

/// Whether the client would get the file compressed.
fn must_pack(request: &Request<'_>, file: &File) -> bool {
    let headers = request.headers();
    file.is_packable()
        && request.method() == Method::Get
        && headers.clone().get("range").is_none()
        && encoding::choose(headers, |coding| coding == Coding::Gzip || file.has(coding))
            == Some(Coding::Gzip)
}

fn end_with(head: ResponseWriter<'_>, body: &[u8], options: ResponseOptions) {
    if options.is_head {
        head.length(body.len() as u64);
    } else {
        head.body(body);
    }
}

/// The time in header format, formatted once per second.
#[derive(Debug, Default)]
struct DateText {
    seconds: u64,
    text: String,
}

impl DateText {
    fn update(&mut self, now: Now) {
        let seconds = now.unix.0 / 1000;
        if seconds != self.seconds || self.text.is_empty() {
            self.seconds = seconds;
            let time = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            #[expect(clippy::disallowed_methods, reason = "the clock of this machine")]
            let text = httpdate::fmt_http_date(time);
            self.text = text;
        }
    }
}

#[cfg(test)]
mod tests {
    use base::time::UnixMs;
    use wire::http::{RequestBatch, RequestDecoder};

    use super::*;
    use crate::content::files::open_root;

    fn now() -> Now {
        Now { unix: UnixMs(1_795_000_000_000), mono: MonoNs(1), ..Now::default() }
    }

    /// Returns the response; the bytes of an attached file as `<file OFFSET LENGTH>`.
    fn answer(site: &mut Site, request: &str) -> String {
        let (mut batch, mut out) = (RequestBatch::new(), Vec::new());
        let limits = wire::http::Limits::DEFAULT;
        RequestDecoder::new().decode(request.as_bytes(), &limits, 1, &mut batch);
        let request = batch.get(0, request.as_bytes());
        let options = ResponseOptions::of(&request, false);
        let (mut answer, mut sent) = site.answer(&request, options, now(), None, &mut out);
        // The file is opened, then compressed.
        for _ in 0..2 {
            if let Answer::Cold(lookup) = answer {
                let opened = Opened::by(&site.opener().unwrap(), lookup);
                site.take(&opened, now());
                (answer, sent) = site.answer(&request, options, now(), Some(&opened), &mut out);
            }
        }
        let mut text = String::from_utf8(out).unwrap();
        match answer {
            Answer::Done => {}
            Answer::File { offset, bytes, .. } => {
                text = format!("{text}<file {offset} {bytes}>");
            }
            Answer::Upstream => text += "<upstream>",
            Answer::Cold(_) => panic!("the file was already opened and compressed"),
        }
        assert!(text.starts_with(&format!("HTTP/1.1 {}", sent.status)) || sent.status == 0);
        text
    }

    #[test]
    fn work_us_consumes_processor_time() {
        let config = Config { work_us: 300, ..Config::default() };
        let mut site = Site::new(&config, None);
        let before_ns = thread_ns();
        let found = answer(&mut site, "GET /hello HTTP/1.0\r\n\r\n");
        assert!(thread_ns() - before_ns >= 300_000);
        assert_eq!(found.as_bytes(), HELLO);
    }

    #[test]
    fn hello_is_66_bytes() {
        let mut site = Site::new(&Config::default(), None);
        let hello = std::str::from_utf8(HELLO).unwrap();
        assert_eq!(answer(&mut site, "GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"), hello);
        assert_eq!(answer(&mut site, "GET /hello HTTP/1.0\r\n\r\n"), hello);
        let closed = "GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let announced = hello.replace("27\r\n", "27\r\nConnection: close\r\n");
        assert_eq!(answer(&mut site, closed), announced);
        let kept = answer(&mut site, "GET /hello HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert!(kept.contains("\r\nConnection: keep-alive\r\n"), "{kept}");
        assert!(!kept.contains("Connection: close"));
        let head = answer(&mut site, "HEAD /hello HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(head.contains("Content-Length: 27\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    }

    #[test]
    fn methods_that_are_not_served() {
        let mut site = Site::new(&Config::default(), None);
        for (method, status) in [
            ("GET", 404),
            ("POST", 405),
            ("PUT", 405),
            ("DELETE", 405),
            ("TRACE", 501),
            ("BREW", 501),
            ("OPTIONS", 204),
        ] {
            let text = answer(&mut site, &format!("{method} /x HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{method}: {text}");
        }
    }

    #[test]
    fn the_upstreams_folder_is_found_in_every_spelling() {
        let config = Config { upstream: "127.0.0.1:1".parse().ok(), ..Config::default() };
        let mut site = Site::new(&config, None);
        let mut ask = |method: &str, path: &str| {
            answer(&mut site, &format!("{method} {path} HTTP/1.1\r\nHost: a\r\n\r\n"))
        };
        for path in ["/api/", "/api/x", "//api/x", "/%61pi/x", "http://a/api/x"] {
            assert_eq!(ask("GET", path), "<upstream>", "{path}");
        }
        for (method, path, status, location) in [
            ("GET", "/api", 301, "/api/"),
            ("HEAD", "//api?a=/b", 301, "/api/?a=/b"),
            ("POST", "/api", 308, "/api/"),
        ] {
            let text = ask(method, path);
            assert!(text.starts_with(&format!("HTTP/1.1 {status} ")), "{path}: {text}");
            assert!(text.contains(&format!("\r\nLocation: {location}\r\n")), "{path}: {text}");
        }
        for path in ["/api%2fx", "/apix/y", "/API/x"] {
            assert!(ask("GET", path).starts_with("HTTP/1.1 404 "), "{path}");
        }
    }

    #[test]
    fn redirects_keep_the_target() {
        let site = Site::new(&Config::default(), None);
        let ask = |line: &str, host: &str, port: u16| {
            let input = format!("{line}\r\n{host}\r\n\r\n");
            let (mut batch, mut out) = (RequestBatch::new(), Vec::new());
            let limits = wire::http::Limits::DEFAULT;
            RequestDecoder::new().decode(input.as_bytes(), &limits, 1, &mut batch);
            let request = batch.get(0, input.as_bytes());
            site.redirect_to_https(&request, ResponseOptions::of(&request, false), port, &mut out);
            let text = String::from_utf8(out).unwrap();
            let location = text.split("Location: ").nth(1).unwrap_or("\r\n");
            format!("{} {}", &text[9..12], location.split("\r\n").next().unwrap())
        };
        let get = "GET //x/%2e?q=/ HTTP/1.1";
        assert_eq!(ask(get, "Host: a.example", 443), "301 https://a.example//x/%2e?q=/");
        assert_eq!(ask(get, "Host: a:8080", 443), "301 https://a//x/%2e?q=/");
        assert_eq!(ask(get, "Host: [::1]:8080", 8443), "301 https://[::1]:8443//x/%2e?q=/");
        assert_eq!(ask(get, "Host: [::1]", 443), "301 https://[::1]//x/%2e?q=/");
        assert_eq!(ask("POST /x HTTP/1.1", "Host: a", 443), "308 https://a/x");
        assert_eq!(ask("GET http://b:1/x HTTP/1.1", "Host: a", 443), "301 https://b/x");
        assert_eq!(ask(get, "Host:", 443), "400 ");
        assert_eq!(ask("GET / HTTP/1.0", "A: b", 443), "400 ");
    }

    #[test]
    fn files_are_compressed_only_for_clients_that_get_them_so() {
        let root = std::env::temp_dir().join(format!("myriad-web-packs-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("page.html"), "<p>text</p>".repeat(500)).unwrap();
        std::fs::write(root.join("both.css"), "p { }".repeat(500)).unwrap();
        std::fs::write(root.join("both.css.br"), "brotli").unwrap();
        let mut site = Site::new(&Config::default(), Some(open_root(&root).unwrap()));
        let mut coding = |method: &str, path: &str, lines: &str| {
            let text = format!("{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n");
            let (mut batch, mut out) = (RequestBatch::new(), Vec::new());
            let limits = wire::http::Limits::DEFAULT;
            RequestDecoder::new().decode(text.as_bytes(), &limits, 1, &mut batch);
            let request = batch.get(0, text.as_bytes());
            let options = ResponseOptions::of(&request, false);
            let mut opened = None;
            let mut packings = 0;
            while let (Answer::Cold(lookup), _) =
                site.answer(&request, options, now(), opened.as_ref(), &mut out)
            {
                packings += u32::from(lookup.packs);
                let done = Opened::by(&site.opener().unwrap(), lookup);
                site.take(&done, now());
                opened = Some(done);
            }
            let text = String::from_utf8_lossy(&out).into_owned();
            assert!(text.contains("\r\nVary: Accept-Encoding\r\n"), "{text}");
            let coding = text.split("Content-Encoding: ").nth(1).unwrap_or("none\r\n");
            (coding.split("\r\n").next().unwrap().to_owned(), packings)
        };
        let gzip = "Accept-Encoding: gzip, br\r\n";
        for (method, lines) in [
            ("GET", ""),
            ("GET", "Accept-Encoding: br\r\n"),
            ("HEAD", gzip),
            ("GET", "Accept-Encoding: gzip\r\nRange: bytes=0-9\r\n"),
        ] {
            assert_eq!(coding(method, "/page.html", lines), ("none".into(), 0), "{method} {lines}");
        }
        assert_eq!(coding("GET", "/both.css", gzip), ("br".into(), 0));
        assert_eq!(coding("GET", "/page.html", gzip), ("gzip".into(), 1));
        assert_eq!(coding("GET", "/page.html", gzip), ("gzip".into(), 0));
        assert_eq!(coding("HEAD", "/page.html", gzip), ("gzip".into(), 0));
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn files_are_served_in_parts_and_versions() {
        let root = std::env::temp_dir().join(format!("myriad-web-site-{}", std::process::id()));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(root.join("index.html"), "<p>index</p>").unwrap();
        std::fs::write(root.join("sub/big.bin"), vec![0; 100_000]).unwrap();
        let mut site = Site::new(&Config::default(), Some(open_root(&root).unwrap()));
        let mut get = |path: &str, lines: &str| {
            answer(&mut site, &format!("GET {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"))
        };
        let index = get("/", "");
        assert!(
            index.starts_with("HTTP/1.1 200 OK\r\n") && index.ends_with("\r\n\r\n<p>index</p>")
        );
        assert!(index.contains("Content-Type: text/html; charset=utf-8\r\n"));
        let etag = index.split("ETag: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let same = get("/", &format!("If-None-Match: {etag}\r\n"));
        assert!(same.starts_with("HTTP/1.1 304 ") && same.ends_with("\r\n\r\n"), "{same}");
        let part = get("/index.html", "Range: bytes=3-7\r\n");
        assert!(part.starts_with("HTTP/1.1 206 ") && part.ends_with("\r\n\r\nindex"), "{part}");
        assert!(part.contains("Content-Range: bytes 3-7/12\r\n"));
        assert!(get("/", "Range: bytes=99-\r\n").starts_with("HTTP/1.1 416 "));
        assert!(get("/sub/big.bin", "").ends_with("\r\n\r\n<file 0 100000>"));
        assert!(get("/sub/big.bin", "Range: bytes=-10\r\n").ends_with("<file 99990 10>"));
        let moved = get("//sub?x=y", "");
        assert!(moved.contains("Location: /sub/?x=y\r\n"), "{moved}");
        for (path, status) in [("/sub/", 404), ("/../etc/passwd", 400), ("/none", 404)] {
            assert!(get(path, "").starts_with(&format!("HTTP/1.1 {status} ")), "{path}");
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
