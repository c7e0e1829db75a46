//! Certificates, keys and rules of the listeners with TLS, from files.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, version};

use crate::config::{Settings, TlsAuthClients, TlsProtocols};

/// A bundle of every authority of the world has 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The options that say what a handshake needs. Giving one by CONFIG SET reads all files again, also when
/// it has that value already.
const OPTIONS: [&str; 5] =
    ["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "tls-protocols"];

/// Why connections cannot be encrypted as the options say.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("{}: {error}", path.display())]
    Read { option: &'static str, path: Box<Path>, error: std::io::Error },
    #[error("{}: {error}", path.display())]
    Form { option: &'static str, path: Box<Path>, error: pem::Error },
    #[error("{}: there is no certificate in it", path.display())]
    NoCertificate { option: &'static str, path: Box<Path> },
    #[error("{}: {error}", path.display())]
    Refused { option: &'static str, path: Box<Path>, error: rustls::Error },
    #[error("the authorities of clients: {0}")]
    Verifier(#[from] VerifierBuilderError),
    #[error("the TLS library: {0}")]
    Library(#[from] rustls::Error),
}

impl TlsError {
    /// The option to look at.
    pub(crate) fn option(&self) -> &'static str {
        match self {
            TlsError::Read { option, .. }
            | TlsError::Form { option, .. }
            | TlsError::NoCertificate { option, .. }
            | TlsError::Refused { option, .. } => option,
            TlsError::Verifier(_) => "tls-ca-cert-file",
            TlsError::Library(_) => "tls-protocols",
        }
    }
}

/// Whether an option of this name changes what handshakes need.
pub(crate) fn is_concerned(option: &[u8]) -> bool {
    OPTIONS.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
}

/// Reads the files that the options name. Blocks for the disk.
pub(crate) fn load(settings: &Settings) -> Result<Arc<ServerConfig>, TlsError> {
    let provider = Arc::new(ring::default_provider());
    let versions: &[_] = match settings.tls_protocols {
        TlsProtocols::Both => &[&version::TLS13, &version::TLS12],
        TlsProtocols::Tls12 => &[&version::TLS12],
        TlsProtocols::Tls13 => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(versions)?;
    let builder = if settings.tls_auth_clients == TlsAuthClients::No {
        builder.with_no_client_auth()
    } else {
        let authorities = Arc::new(authorities(&settings.tls_ca_cert_file)?);
        let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider);
        let verifier = match settings.tls_auth_clients {
            TlsAuthClients::Optional => verifier.allow_unauthenticated(),
            TlsAuthClients::Yes | TlsAuthClients::No => verifier,
        };
        builder.with_client_cert_verifier(verifier.build()?)
    };
    let chain = certificates("tls-cert-file", &settings.tls_cert_file)?;
    let path = &settings.tls_key_file;
    let form =
        |error| TlsError::Form { option: "tls-key-file", path: path.as_path().into(), error };
    let key = PrivateKeyDer::from_pem_slice(&read("tls-key-file", path)?).map_err(form)?;
    let mut config = builder.with_single_cert(chain, key).map_err(|error| TlsError::Refused {
        option: "tls-key-file",
        path: path.as_path().into(),
        error,
    })?;
    // Clients that come back need no new exchange of keys; none is remembered here for it. A reload makes
    // new keys for tickets, so that nobody comes back past its rules.
    config.ticketer = ring::Ticketer::new()?;
    Ok(Arc::new(config))
}

fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let option = "tls-ca-cert-file";
    let mut store = RootCertStore::empty();
    for certificate in certificates(option, path)? {
        let refused = |error| TlsError::Refused { option, path: path.into(), error };
        store.add(certificate).map_err(refused)?;
    }
    Ok(store)
}

fn certificates(
    option: &'static str,
    path: &Path,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(option, path)?;
    let form = |error| TlsError::Form { option, path: path.into(), error };
    let chain: Vec<_> =
        CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>().map_err(form)?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { option, path: path.into() });
    }
    Ok(chain)
}

fn read(option: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    let fault = |error| TlsError::Read { option, path: path.into(), error };
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(fault)?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(fault)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(fault(std::io::Error::other("larger than 4 MiB")));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// Writes a certificate and its key into a directory of the test's own.
    fn files(label: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let name = format!("myriad-tls-{label}-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        (certificate, key)
    }

    fn check(change: impl FnOnce(&mut Settings), expected: Result<(), (&str, &str)>) {
        let (certificate, key) = files("one");
        let mut settings = Settings {
            tls_cert_file: certificate.clone(),
            tls_key_file: key,
            tls_ca_cert_file: certificate,
            ..Settings::default()
        };
        change(&mut settings);
        match (load(&settings), expected) {
            (Ok(_), Ok(())) => {}
            (Err(error), Err((option, text))) => {
                assert_eq!(error.option(), option);
                assert!(error.to_string().contains(text), "{error}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn files_are_read_and_faults_name_option_and_file() {
        check(|_| {}, Ok(()));
        for auth in [TlsAuthClients::No, TlsAuthClients::Optional] {
            check(|settings| settings.tls_auth_clients = auth, Ok(()));
        }
        for protocols in [TlsProtocols::Tls12, TlsProtocols::Tls13] {
            check(|settings| settings.tls_protocols = protocols, Ok(()));
        }
        check(
            |settings| settings.tls_cert_file = PathBuf::from("no/such.pem"),
            Err(("tls-cert-file", "no/such.pem: No such file")),
        );
        check(
            |settings| settings.tls_cert_file.clone_from(&settings.tls_key_file),
            Err(("tls-cert-file", "there is no certificate in it")),
        );
        check(
            |settings| settings.tls_key_file.clone_from(&settings.tls_cert_file),
            Err(("tls-key-file", "cert.pem: ")),
        );
        check(
            |settings| settings.tls_key_file = files("two").1,
            Err(("tls-key-file", "key.pem: ")),
        );
        check(
            |settings| settings.tls_ca_cert_file = PathBuf::from("/dev/zero"),
            Err(("tls-ca-cert-file", "larger than 4 MiB")),
        );
    }

    #[test]
    fn options_of_handshakes_are_known_by_name() {
        assert!(is_concerned(b"TLS-Cert-File"));
        assert!(!is_concerned(b"tls-handshake-timeout-ms"));
        assert!(OPTIONS.iter().all(|name| crate::config::find(name).is_some()));
    }
}
