//! A message broker for tests that can be killed: exact subjects, groups, no persistence.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

#[derive(Debug)]
pub(crate) struct Broker {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    subscriptions: Mutex<Vec<Subscription>>,
    streams: Mutex<Vec<TcpStream>>,
    message_count: AtomicU64,
}

#[derive(Debug)]
struct Subscription {
    connection: usize,
    subject: String,
    in_group: bool,
    to: Arc<Mutex<TcpStream>>,
}

impl Broker {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                if serving.is_over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                serving.streams.lock().unwrap().push(stream.try_clone().unwrap());
                let shared = Arc::clone(&serving);
                thread::spawn(move || {
                    serve(&shared, connection, stream);
                    let mut subscriptions = shared.subscriptions.lock().unwrap();
                    subscriptions.retain(|one| one.connection != connection);
                });
            }
        });
        Self { address, shared }
    }

    /// Number of messages received so far.
    pub(crate) fn message_count(&self) -> u64 {
        self.shared.message_count.load(Ordering::SeqCst)
    }

    /// Closes all connections, as if the broker had restarted.
    pub(crate) fn break_all(&self) {
        for stream in self.shared.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Broker {
    /// Wakes the listener's thread, which then ends.
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        self.break_all();
    }
}

/// Serves a connection until it ends.
fn serve(shared: &Shared, connection: usize, stream: TcpStream) -> Option<()> {
    let to = Arc::new(Mutex::new(stream.try_clone().ok()?));
    let mut from = BufReader::new(stream);
    to.lock()
        .unwrap()
        .write_all(b"INFO {\"server_id\":\"test\",\"max_payload\":1048576}\r\n")
        .ok()?;
    let mut line = String::new();
    loop {
        line.clear();
        if from.read_line(&mut line).ok()? == 0 {
            // Earlier messages are still delivered; then the connection closes.
            return to.lock().unwrap().shutdown(Shutdown::Both).ok();
        }
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        match words[..] {
            ["CONNECT", ..] => {}
            ["PING"] => to.lock().unwrap().write_all(b"PONG\r\n").ok()?,
            ["SUB", subject, .., number] => {
                assert_eq!(number, "1");
                let one = Subscription {
                    connection,
                    subject: subject.to_owned(),
                    in_group: words.len() == 4,
                    to: Arc::clone(&to),
                };
                shared.subscriptions.lock().unwrap().push(one);
            }
            ["PUB", subject, bytes] => {
                let mut payload = vec![0; bytes.parse::<usize>().unwrap() + 2];
                from.read_exact(&mut payload).ok()?;
                assert!(payload.ends_with(b"\r\n"));
                let mut message = format!("MSG {subject} 1 {bytes}\r\n").into_bytes();
                message.extend_from_slice(&payload);
                shared.message_count.fetch_add(1, Ordering::SeqCst);
                deliver(shared, subject, &message);
            }
            _ => panic!("not of NATS' protocol: {line:?}"),
        }
    }
}

fn deliver(shared: &Shared, subject: &str, message: &[u8]) {
    let mut heard_by = Vec::new();
    for one in shared.subscriptions.lock().unwrap().iter() {
        let is_served = one.in_group && heard_by.iter().any(|(in_group, _)| *in_group);
        if one.subject == subject && !is_served {
            heard_by.push((one.in_group, Arc::clone(&one.to)));
        }
    }
    for (_, to) in heard_by {
        // A subscriber may have disconnected.
        let _ = to.lock().unwrap().write_all(message);
    }
}
