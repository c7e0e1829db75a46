//! Messages to a service manager, which is this test.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_mins(1);

/// Receives messages until one has this line. Returns all messages.
fn receive_until(socket: &UnixDatagram, line: &str) -> Vec<String> {
    let mut messages = Vec::new();
    loop {
        let mut buffer = [0; 1024];
        let length = socket.recv(&mut buffer).unwrap();
        messages.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        if messages.last().unwrap().lines().any(|one| one == line) {
            return messages;
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_service_manager_learns_when_the_server_is_ready_alive_and_stopping() {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("service-manager");
    let _ = std::fs::remove_dir_all(&root);
    std::fs::create_dir_all(&root).unwrap();
    let place = root.join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_myriad"))
        .args(["serve", "--resp", "127.0.0.1:0", "--reactors", "1", "--dir"])
        .arg(root.join("data"))
        .env("NOTIFY_SOCKET", &place)
        .env("WATCHDOG_USEC", "200000")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut server = Server(child);
    let before = receive_until(&socket, "READY=1");
    assert_eq!(before[0], "STATUS=Loading the snapshot");
    assert!(before.last().unwrap().contains("STATUS=Accepting connections: resp=127.0.0.1:"));
    for _ in 0..2 {
        receive_until(&socket, "WATCHDOG=1");
    }
    let id = server.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    receive_until(&socket, "STOPPING=1");
    assert!(server.0.wait().unwrap().success());
}
