//! Certificates generated for one test, and TLS clients.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::process::PATIENCE;

pub(crate) type Stream = StreamOwned<ClientConnection, TcpStream>;

/// `ca.pem`, and `one`, `two` and `client`, signed by it, each with `.pem` and `.key`. `stranger`
/// is signed by another authority. They expire at the start of 2040, `two` of 2041. Dropping it
/// removes the directory.
pub(crate) struct Files {
    pub(crate) directory: PathBuf,
}

impl Files {
    pub(crate) fn make(directory: PathBuf) -> Files {
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
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.not_after = rcgen::date_time_ymd(if name == "two" { 2041 } else { 2040 }, 1, 1);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, authority).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    pub(crate) fn certificate(&self, name: &str) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(self.path(&format!("{name}.pem"))).unwrap()
    }

    /// Client configuration; `identity`: the client certificate.
    pub(crate) fn client(&self, identity: Option<&str>) -> Arc<ClientConfig> {
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

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.directory);
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

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The client side of a TLS connection that has no transport yet.
pub(crate) fn conversation(client: &Arc<ClientConfig>) -> ClientConnection {
    let name = ServerName::try_from("localhost").unwrap();
    ClientConnection::new(Arc::clone(client), name).unwrap()
}

/// Connects a client. The handshake runs on its first read or write.
pub(crate) fn dial(address: SocketAddr, client: &Arc<ClientConfig>) -> Stream {
    StreamOwned::new(conversation(client), connect(address))
}
