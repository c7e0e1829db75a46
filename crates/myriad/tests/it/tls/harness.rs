//! A server with TLS, certificates that are made for one test, and clients.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// Nothing here takes this long; it ends what hangs.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// `ca.pem`, and of it `one`, `two` and `client`, each `.pem` and `.key`; `stranger` is of another.
pub(super) struct Files {
    pub(super) directory: PathBuf,
}

impl Files {
    fn make(directory: PathBuf) -> Files {
        let files = Files { directory };
        fs::create_dir_all(&files.directory).unwrap();
        let authority = authority();
        fs::write(files.path("ca.pem"), authority.pem()).unwrap();
        for name in ["one", "two", "client"] {
            files.issue(name, &authority);
        }
        files.issue("stranger", &authority_named("another"));
        files
    }

    fn issue(&self, name: &str, authority: &CertifiedIssuer<'static, KeyPair>) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(super) fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap()
    }

    /// What a client says of itself; `identity`: the certificate that it shows.
    pub(super) fn client(&self, identity: Option<&str>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate("ca")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key"))).unwrap();
                builder.with_client_auth_cert(vec![self.certificate(name)], key).unwrap()
            }
        })
    }
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    authority_named("tests")
}

fn authority_named(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

/// A running server; killed when dropped, with its directory.
pub(super) struct Server {
    child: Child,
    pub(super) files: Files,
    ready: String,
}

impl Server {
    /// With certificate `one`, and every protocol with TLS.
    pub(super) fn start(label: &str, options: &[&str]) -> Server {
        let files = Files::make(directory(label));
        let mut child = command(&files, options).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        lines.read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready "), "not ready: {ready:?}");
        Server { child, files, ready }
    }

    /// Starts it with files that are not good, and gives what it says of them.
    pub(super) fn refuse(label: &str, options: &[&str]) -> String {
        let files = Files::make(directory(label));
        let output = command(&files, options).stderr(Stdio::piped()).output().unwrap();
        fs::remove_dir_all(&files.directory).unwrap();
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    }

    pub(super) fn address(&self, option: &str) -> SocketAddr {
        let mut listeners = self.ready.split_whitespace().filter_map(|word| word.split_once('='));
        listeners.find(|(name, _)| *name == option).unwrap().1.parse().unwrap()
    }

    pub(super) fn connect(&self, option: &str) -> TcpStream {
        connect(self.address(option))
    }

    pub(super) fn dial(&self, option: &str, client: &Arc<ClientConfig>) -> Stream {
        dial(self.address(option), client)
    }

    pub(super) fn hang_up(&self) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args(["-HUP", &id]).status().unwrap().success());
    }

    /// An answer of INFO, or of any command that answers with a bulk string or a line.
    pub(super) fn ask(&self, words: &[&str]) -> String {
        ask(&mut self.connect("resp"), words)
    }

    /// Waits until counters of INFO have this sum: a reactor hands its own over after its turn.
    pub(super) fn await_counters(&self, names: &[&str], sum: u64) {
        wait_for(&names.join(" + "), || {
            names.iter().map(|name| self.counter(name)).sum::<u64>() == sum
        });
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let info = self.ask(&["INFO", "everything"]);
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("no {name}")).trim().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it is gone already, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.files.directory);
    }
}

/// Waits for what must come.
pub(super) fn wait_for(what: &str, mut has_come: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !has_come() {
        assert!(Instant::now() < deadline, "waited for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn directory(label: &str) -> PathBuf {
    std::env::temp_dir().join(format!("myriad-it-tls-{label}-{}", std::process::id()))
}

fn command(files: &Files, options: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_myriad"));
    command.args(["serve", "--reactors", "2", "--resp", "127.0.0.1:0"]);
    for option in ["--resp-tls", "--cql-tls", "--http-tls"] {
        command.args([option, "127.0.0.1:0"]);
    }
    let file = |option: &str, name: &str| [option.to_owned(), files.text(name)];
    command.args(file("--tls-cert-file", "one.pem"));
    command.args(file("--tls-key-file", "one.key"));
    command.args(file("--tls-ca-cert-file", "ca.pem"));
    command.args(options).arg("--dir").arg(Path::new(&files.directory).join("data"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    command
}

pub(super) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// A client's side of a conversation, that has to be brought to a server yet.
pub(super) fn conversation(client: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(client), name).unwrap()
}

/// A client that has not shaken hands yet: it does with its first word.
pub(super) fn dial(address: SocketAddr, client: &Arc<ClientConfig>) -> Stream {
    StreamOwned::new(conversation(client), connect(address))
}

pub(super) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
    bytes
}

/// One command of RESP; its answer is a line or a bulk string.
pub(super) fn ask(stream: &mut (impl Read + Write), words: &[&str]) -> String {
    stream.write_all(&request(words)).unwrap();
    let line = read_line(stream);
    match line.strip_prefix('$').map(str::parse::<usize>) {
        Some(Ok(length)) => {
            let mut bytes = vec![0; length + 2];
            stream.read_exact(&mut bytes).unwrap();
            bytes.truncate(length);
            String::from_utf8(bytes).unwrap()
        }
        _ => line,
    }
}

fn read_line(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes.truncate(bytes.len() - 2);
    String::from_utf8(bytes).unwrap()
}
