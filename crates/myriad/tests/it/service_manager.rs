//! Messages to a service manager, which is this test.

use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};

use crate::process::{PATIENCE, Process, directory};

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

#[test]
fn the_service_manager_learns_when_the_server_is_ready_alive_and_stopping() {
    let root = directory("service-manager");
    std::fs::create_dir_all(&root).unwrap();
    let place = root.join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command
        .args(["serve", "--resp", "127.0.0.1:0", "--reactors", "1", "--dir"])
        .arg(root.join("data"))
        .env("NOTIFY_SOCKET", &place)
        .env("WATCHDOG_USEC", "200000")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let server = Process::start(&mut command);
    let before = receive_until(&socket, "READY=1");
    assert_eq!(before[0], "STATUS=Loading the snapshot");
    assert!(before.last().unwrap().contains("STATUS=Accepting connections: resp=127.0.0.1:"));
    for _ in 0..2 {
        receive_until(&socket, "WATCHDOG=1");
    }
    server.signal("TERM");
    receive_until(&socket, "STOPPING=1");
    assert!(server.wait().success());
}
