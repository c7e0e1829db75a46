//! `myriad-lab serve`: shows a run in a browser while it is in progress.
//!
//! The machine is measuring, so this server does as little as possible: rows are read once, pages
//! are rendered only after a change, and each request uses a short connection.

mod answer;
mod follow;
mod live;
mod request;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command_line::{self, CommandLine, Job};
use crate::report;
use answer::Answer;
use live::Live;
use request::Request;

pub use request::HEAD_BYTES_MAX;

/// For a few users and browsers; each connection has a thread.
pub const CONNECTIONS_MAX: usize = 16;
/// Connections whose client does not read the response are closed after this time.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept (too many open files), to avoid busy looping.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const HELP: &str = "\
Usage: myriad-lab serve DIR [--listen 127.0.0.1:8710]

Shows the run in DIR, or in its subfolders, in a browser while it is in progress: the current
cell, the last rows, charts, and the report. Only this machine has access, unless
--listen specifies another address: there is no password.
";

const LISTEN: &str = "127.0.0.1:8710";

/// What to serve, and the timeout for clients.
#[derive(Debug, Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub listen: SocketAddr,
    /// For the whole head of a request.
    pub head_timeout: Duration,
}

impl Settings {
    pub fn new(folder: &Path, listen: SocketAddr) -> Self {
        Self { folder: folder.to_owned(), listen, head_timeout: Duration::from_secs(5) }
    }
}

/// A live view; stopped on drop.
#[derive(Debug)]
pub struct LiveView {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    settings: Settings,
    live: Mutex<Live>,
    open_count: AtomicUsize,
    ends: AtomicBool,
}

impl LiveView {
    /// Listens, and responds from separate threads. Fails if the folder does not exist, or the
    /// address is in use.
    pub fn start(settings: Settings) -> Result<Self> {
        if !settings.folder.is_dir() {
            bail!("{} is not a folder", settings.folder.display());
        }
        let listener = TcpListener::bind(settings.listen)
            .with_context(|| format!("could not listen on {}", settings.listen))?;
        let address = listener.local_addr().context("listen")?;
        let shared = Arc::new(Shared {
            live: Mutex::new(Live::new(&settings.folder)),
            settings,
            open_count: AtomicUsize::new(0),
            ends: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let acceptor = thread::Builder::new()
            .name("lab-serve".into())
            .spawn(move || accept(&listener, &accepting))
            .context("could not start a thread")?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    /// Returns the listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    fn wait(mut self) {
        if let Some(acceptor) = self.acceptor.take() {
            // It only ends by a panic, which has been reported.
            let _ = acceptor.join();
        }
    }
}

impl Drop for LiveView {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        let Some(acceptor) = self.acceptor.take() else { return };
        // Wakes the acceptor; if that fails, it ends with the process.
        if TcpStream::connect(self.address).is_ok() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    loop {
        let accepted = listener.accept();
        if shared.ends.load(Ordering::Acquire) {
            return;
        }
        match accepted {
            Ok((stream, _)) => take(stream, shared),
            Err(_) => thread::sleep(ACCEPT_PAUSE),
        }
    }
}

/// Assigns a thread to a connection, if available.
fn take(mut stream: TcpStream, shared: &Arc<Shared>) {
    // A connection without timeouts is not served.
    if stream.set_write_timeout(Some(WRITE_TIMEOUT)).is_err() {
        return;
    }
    if shared.open_count.fetch_add(1, Ordering::AcqRel) >= CONNECTIONS_MAX {
        shared.open_count.fetch_sub(1, Ordering::AcqRel);
        let _ = stream.set_nonblocking(true);
        let _ = Answer::crowded().send(&mut stream, false);
        return;
    }
    let serving = Arc::clone(shared);
    let started = thread::Builder::new().name("lab-serve".into()).spawn(move || {
        serve(&mut stream, &serving);
        serving.open_count.fetch_sub(1, Ordering::AcqRel);
    });
    if started.is_err() {
        shared.open_count.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: &mut TcpStream, shared: &Shared) {
    let (answer, is_head) = match request::read(stream, shared.settings.head_timeout) {
        Ok(request) => (Some(route(&request, shared)), request.is_head),
        Err(refusal) => (Answer::refusal(refusal), false),
    };
    if let Some(answer) = answer {
        // The browser disconnected or does not read: close the connection.
        let _ = answer.send(stream, is_head);
    }
}

/// Routes to the few pages; request paths are never used as file paths.
fn route(request: &Request, shared: &Shared) -> Answer {
    let folder = &shared.settings.folder;
    let answer = match request.path.as_str() {
        "/" => page(shared),
        "/live" => content(request, shared),
        "/report.html" => report::page(folder).map(Answer::page),
        "/rows.csv" => {
            report::csv_text(folder).map(|text| Answer::ok("text/csv; charset=utf-8", text))
        }
        _ => return Answer::not_found(),
    };
    answer.unwrap_or_else(|error| Answer::failed(&format!("{error:#}\n")))
}

fn page(shared: &Shared) -> Result<Answer> {
    let mut live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
    live.poll()?;
    Ok(Answer::page(live.page()))
}

/// Returns the changes since the browser's last poll.
fn content(request: &Request, shared: &Shared) -> Result<Answer> {
    let mut live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
    let (version, content) = live.poll()?;
    if request.if_none_match.as_deref() == Some(version) {
        return Ok(Answer::not_modified(version));
    }
    Ok(Answer::page(content.to_owned()).with_version(version))
}

/// `myriad-lab serve DIR`.
pub(crate) fn command(parser: &mut CommandLine<'_>) -> Result<Job> {
    use lexopt::prelude::*;
    let mut folder = None;
    let mut listen: SocketAddr = LISTEN.parse().expect("an address");
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(command_line::printing(HELP)),
            Long("listen") => {
                listen = base::address::resolve(&parser.text()?).context("--listen")?;
            }
            Value(path) if folder.is_none() => folder = Some(PathBuf::from(path)),
            other => return Err(other.unexpected().into()),
        }
    }
    let Some(folder) = folder else {
        bail!("missing folder of a run; see myriad-lab serve --help");
    };
    Ok(Box::new(move || {
        let view = LiveView::start(Settings::new(&folder, listen))?;
        command_line::print(&format!("http://{}/\n", view.address()))?;
        view.wait();
        Ok(())
    }))
}
