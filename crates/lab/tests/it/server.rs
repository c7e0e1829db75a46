//! A server with planned faults that keeps its own records.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lab::load::Patience;
use parking_lot::Mutex;
use rustix::net::{AddressFamily, SocketType};

/// On a busy machine, a server may stall for seconds.
pub(crate) const PATIENT: Patience =
    Patience { reply: Duration::from_mins(1), drain: Duration::from_mins(1) };

/// Reaction to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Act {
    Reply,
    /// Replies after this time; other requests on the connection wait.
    ReplyAfter(Duration),
    /// No connection gets a reply for this time.
    PauseAll(Duration),
    Error,
    /// Never replies.
    Swallow,
    /// Closes the connection without replies to the current input.
    Close,
    /// A malformed reply.
    Nonsense,
}

/// By the number of the request, counted over all connections.
type Plan = dyn Fn(u64) -> Act + Send + Sync;

/// The server's own records.
#[derive(Debug, Clone, Default)]
pub(crate) struct Account {
    pub(crate) requests: u64,
    pub(crate) replies: u64,
    pub(crate) errors: u64,
    pub(crate) swallowed: u64,
    /// From the arrival of a request to its reply.
    pub(crate) served: Vec<Duration>,
    /// From the reply before a request to the arrival of the request after it, on the same
    /// connection. If requests wait for replies, this includes the client's latency of the request
    /// in the middle.
    pub(crate) around: Vec<Duration>,
    pub(crate) first: Option<Instant>,
    pub(crate) last: Option<Instant>,
    /// Actual duration of the planned pauses.
    pub(crate) paused: Duration,
}

struct State {
    plan: Box<Plan>,
    number: AtomicU64,
    account: Mutex<Account>,
    /// Held during a pause of all connections.
    pause: Mutex<()>,
}

/// One thread per connection, which ends with its connection.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

impl Server {
    pub(crate) fn start(plan: impl Fn(u64) -> Act + Send + Sync + 'static) -> Server {
        Server::start_with(plan, serve)
    }

    /// Echoes the input as fast as possible, without records.
    pub(crate) fn echo() -> Server {
        Server::start_with(|_| Act::Reply, |stream, _| echo(stream))
    }

    fn start_with(
        plan: impl Fn(u64) -> Act + Send + Sync + 'static,
        serve: fn(TcpStream, &State),
    ) -> Server {
        let state = Arc::new(State {
            plan: Box::new(plan),
            number: AtomicU64::new(0),
            account: Mutex::default(),
            pause: Mutex::new(()),
        });
        let shared = Arc::clone(&state);
        let address = accept(move |stream| serve(stream, &shared));
        Server { address, state }
    }

    /// Returns all requests so far; those of a completed run are final.
    pub(crate) fn account(&self) -> Account {
        self.state.account.lock().clone()
    }
}

/// Serves each connection on a thread of its own, until the test's process ends.
pub(crate) fn accept(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, serve) = (stream.unwrap(), Arc::clone(&serve));
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

/// Returns an address without a listener. It stays reserved while the socket is kept.
pub(crate) fn address_without_listener() -> (OwnedFd, SocketAddr) {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

/// Echoes until the client disconnects.
fn echo(mut stream: TcpStream) {
    let mut chunk = vec![0; 256 * 1024];
    while let Ok(count) = stream.read(&mut chunk) {
        if count == 0 || stream.write_all(&chunk[..count]).is_err() {
            return;
        }
    }
}

fn serve(mut stream: TcpStream, state: &State) {
    stream.set_nodelay(true).unwrap();
    let (mut input, mut chunk) = (Vec::new(), vec![0; 256 * 1024]);
    // When the last two replies were sent.
    let mut replied = [None; 2];
    loop {
        let count = match stream.read(&mut chunk) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::ConnectionReset => return,
            Err(error) => panic!("{error}"),
        };
        let came = Instant::now();
        input.extend_from_slice(&chunk[..count]);
        let mut consumed = 0;
        // Requests have the same form as replies.
        while let Some(len) = wire::resp::reply_len(&input[consumed..]).unwrap() {
            consumed += len;
            let number = state.number.fetch_add(1, Ordering::Relaxed);
            let act = (state.plan)(number);
            if act == Act::Close {
                state.account.lock().requests += 1;
                return;
            }
            if let [Some(before), Some(_)] = replied {
                state.account.lock().around.push(came.saturating_duration_since(before));
            }
            replied = [replied[1], Some(answer(&mut stream, state, act, came))];
        }
        input.drain(..consumed);
    }
}

/// Returns when it replied.
fn answer(stream: &mut TcpStream, state: &State, act: Act, came: Instant) -> Instant {
    let reply: &[u8] = match act {
        Act::Reply | Act::ReplyAfter(_) | Act::PauseAll(_) => b"+OK\r\n",
        Act::Error => b"-BUSY come back later\r\n",
        Act::Nonsense => b"HTTP/1.1 400 Bad Request\r\n\r\n",
        Act::Swallow | Act::Close => b"",
    };
    match act {
        Act::ReplyAfter(time) => std::thread::sleep(time),
        Act::PauseAll(time) => {
            let pause = state.pause.lock();
            let begun = Instant::now();
            std::thread::sleep(time);
            state.account.lock().paused += begun.elapsed();
            drop(pause);
        }
        _ => drop(state.pause.lock()),
    }
    let now = Instant::now();
    {
        let mut account = state.account.lock();
        account.requests += 1;
        account.replies += u64::from(!reply.is_empty());
        account.errors += u64::from(act == Act::Error);
        account.swallowed += u64::from(act == Act::Swallow);
        account.served.push(now - came);
        account.first.get_or_insert(came);
        account.last = Some(now);
    }
    // The client may have disconnected.
    let _ = stream.write_all(reply);
    now
}
