//! Web servers: the served files, and the configuration of nginx.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::spec::{Kind, OptionValue};

/// In the directory of the server.
pub(super) const ROOT: &str = "root";
pub(super) const CONFIGURATION: &str = "nginx.conf";
/// Names and lengths. The content is random, so that it cannot be compressed.
const FILES: [(&str, usize); 4] =
    [("1k.bin", 1 << 10), ("4k.bin", 4 << 10), ("64k.bin", 64 << 10), ("1m.bin", 1 << 20)];
/// Myriad's default.
const BACKLOG_DEFAULT: &str = "1024";

/// Creates the files that a web server needs in its new directory.
pub(super) fn prepare(
    kind: Kind,
    folder: &Path,
    address: SocketAddr,
    options: &BTreeMap<String, OptionValue>,
) -> io::Result<()> {
    let root = folder.join(ROOT);
    fs::create_dir(&root)?;
    let mut random = SmallRng::seed_from_u64(1);
    for (name, bytes) in FILES {
        let mut content = vec![0; bytes];
        random.fill(content.as_mut_slice());
        fs::write(root.join(name), content)?;
    }
    if kind == Kind::Nginx {
        let is_root = rustix::process::geteuid().is_root();
        fs::write(folder.join(CONFIGURATION), configuration(folder, address, options, is_root)?)?;
    }
    Ok(())
}

/// Formats an option of `myriad web`, which has explicit switches.
pub(super) fn option(value: &OptionValue) -> String {
    match value {
        OptionValue::Switch(is_on) => is_on.to_string(),
        value => value.to_string(),
    }
}

/// Configures nginx to respond like Myriad, without features that Myriad lacks: a log, and
/// connection age checks. Everything is written to `folder`.
fn configuration(
    folder: &Path,
    address: SocketAddr,
    options: &BTreeMap<String, OptionValue>,
    is_root: bool,
) -> io::Result<String> {
    let known = ["workers", "backlog", "root"];
    if let Some(name) = options.keys().find(|name| !known.contains(&name.as_str())) {
        let reason =
            format!("nginx supports only the options workers, backlog and root here, not {name}");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    let option = |name: &str, default: &str| {
        options.get(name).map_or_else(|| default.to_owned(), ToString::to_string)
    };
    let root = option("root", &folder.join(ROOT).display().to_string());
    let folder = folder.display();
    let mut text = String::new();
    if is_root {
        // By default, workers run as an unprivileged user that does not own these files.
        text.push_str("user root;\n");
    }
    write!(
        text,
        "daemon off;
worker_processes {workers};
worker_rlimit_nofile 20000;
pid {folder}/nginx.pid;
error_log stderr error;
events {{ worker_connections 10000; use epoll; }}
http {{
    access_log off;
    server_tokens off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 1000000000;
    keepalive_time 1d;
    types {{ }}
    default_type text/plain;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {address} backlog={backlog};
        root {root};
        location = /hello {{ return 200 \"Hello from Tom HTTP Server\\n\"; }}
    }}
}}
",
        workers = option("workers", "1"),
        backlog = option("backlog", BACKLOG_DEFAULT),
    )
    .expect("writing to a String cannot fail");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::Scratch;

    #[test]
    fn nginx_is_told_what_myriad_is() {
        let address = SocketAddr::from(([127, 0, 0, 1], 7000));
        let options = [("workers", 2), ("backlog", 5)];
        let mut options: BTreeMap<String, OptionValue> = options
            .map(|(name, value)| (name.to_owned(), OptionValue::Whole(value)))
            .into_iter()
            .collect();
        let text = configuration(Path::new("/d"), address, &options, true).unwrap();
        for part in [
            "user root;",
            "worker_processes 2;",
            "listen 127.0.0.1:7000 backlog=5;",
            "root /d/root;",
            r#"return 200 "Hello from Tom HTTP Server\n";"#,
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        options.insert("accept".to_owned(), OptionValue::Text("serial".to_owned()));
        let error = configuration(Path::new("/d"), address, &options, false).unwrap_err();
        assert!(error.to_string().ends_with("not accept"), "{error}");
    }

    #[test]
    fn the_files_are_as_long_as_they_are_called() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], 7000));
        prepare(Kind::Web, scratch.path(), address, &BTreeMap::new()).unwrap();
        let bytes = |name: &str| fs::metadata(scratch.path().join(ROOT).join(name)).unwrap().len();
        assert_eq!((bytes("4k.bin"), bytes("1m.bin")), (4 << 10, 1 << 20));
        assert!(!scratch.path().join(CONFIGURATION).exists());
    }
}
