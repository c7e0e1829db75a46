//! Signals that make a running server read or open its files again.

use std::fs;

use super::fixture::{Server, happens};

#[test]
fn hup_takes_the_file_and_usr1_opens_a_new_log() {
    let path = std::env::temp_dir().join(format!("myriad-it-reload-{}.toml", std::process::id()));
    fs::write(&path, "hz = 20\n").unwrap();
    let given = ["--config", path.to_str().unwrap(), "--log-file", "{dir}/log"];
    let server = Server::start("reload", &given, &[]);
    let logged = |text: &str| happens(|| server.text("log").contains(text));
    assert_eq!(server.counter("hz"), 20);

    fs::write(&path, "hz = 30\ntcp-backlog = 100\nmasterauth = \"hunter2\"\n").unwrap();
    server.signal("HUP");
    assert!(logged("configuration reloaded"), "{}", server.text("log"));
    assert!(logged("the change of this option needs a restart option=\"tcp-backlog\""));
    assert!(logged("option changed by the configuration file option=\"hz\" value=\"30\""));
    assert!(!server.text("log").contains("hunter2"));
    assert!(happens(|| server.counter("hz") == 30));

    // One wrong option: the right one is not taken either.
    fs::write(&path, "hz = 40\nmaxclients = 0\n").unwrap();
    server.signal("HUP");
    assert!(logged("could not reload the configuration; nothing has changed"));
    assert!(logged(":2: maxclients: "));
    assert_eq!(server.counter("hz"), 30);

    fs::rename(server.files.path("log"), server.files.path("log.1")).unwrap();
    server.signal("USR1");
    assert!(logged("log file reopened"));
    let old = server.text("log.1");
    assert!(old.contains("configuration reloaded") && !old.contains("log file reopened"), "{old}");
    fs::remove_file(&path).unwrap();
}
