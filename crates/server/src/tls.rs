//! TLS certificates, keys and rules of the listeners, read from files.

use std::sync::Arc;

use reactor::{Pem, TlsClients, TlsError, TlsPart, TlsRules, TlsVersions};
use rustls::ServerConfig;

use crate::config::{Settings, TlsAuthClients, TlsProtocols};

/// Options that determine handshakes. Setting one with CONFIG SET re-reads all files, even if the
/// value does not change.
const OPTIONS: [&str; 5] =
    ["tls-cert-file", "tls-key-file", "tls-ca-cert-file", "tls-auth-clients", "tls-protocols"];

/// Returns the option that caused the error.
pub(crate) fn option_of(error: &TlsError) -> &'static str {
    match error.part() {
        TlsPart::Certificate => "tls-cert-file",
        TlsPart::Key => "tls-key-file",
        TlsPart::Authorities => "tls-ca-cert-file",
        TlsPart::Versions => "tls-protocols",
    }
}

/// Whether changing this option affects handshakes.
pub(crate) fn is_concerned(option: &[u8]) -> bool {
    OPTIONS.iter().any(|name| option.eq_ignore_ascii_case(name.as_bytes()))
}

/// Reads the files that the options name. Blocks on disk I/O.
pub(crate) fn load(settings: &Settings) -> Result<Arc<ServerConfig>, TlsError> {
    let authorities = || Pem::read(TlsPart::Authorities, &settings.tls_ca_cert_file);
    let clients = match settings.tls_auth_clients {
        TlsAuthClients::No => TlsClients::Disabled,
        TlsAuthClients::Optional => TlsClients::Optional(authorities()?),
        TlsAuthClients::Yes => TlsClients::Required(authorities()?),
    };
    let versions = match settings.tls_protocols {
        TlsProtocols::Both => TlsVersions::Both,
        TlsProtocols::Tls12 => TlsVersions::Tls12,
        TlsProtocols::Tls13 => TlsVersions::Tls13,
    };
    let certificates = Pem::read(TlsPart::Certificate, &settings.tls_cert_file)?;
    let key = Pem::read(TlsPart::Key, &settings.tls_key_file)?;
    let rules = TlsRules {
        certificates: &certificates,
        key: &key,
        clients,
        versions,
        // Each listener serves one protocol, so there is nothing to negotiate.
        protocols: &[],
    };
    rules.config()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn directory(label: &str) -> PathBuf {
        std::env::temp_dir().join(format!("myriad-tls-{label}-{}", std::process::id()))
    }

    /// Writes a certificate and its key into a directory.
    fn files(label: &str) -> (PathBuf, PathBuf) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let directory = directory(label);
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
                assert_eq!(option_of(&error), option);
                assert!(error.to_string().contains(text), "{error}");
            }
            (found, expected) => panic!("{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn load_errors_name_option_and_file() {
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
            Err(("tls-cert-file", "no certificate found")),
        );
        check(
            |settings| settings.tls_key_file.clone_from(&settings.tls_cert_file),
            Err(("tls-key-file", "cert.pem: ")),
        );
        check(
            |settings| settings.tls_key_file = files("two").1,
            Err(("tls-key-file", "key.pem: ")),
        );
        let huge = files("huge").0;
        std::fs::File::create(&huge).unwrap().set_len((4 << 20) + 1).unwrap();
        check(
            |settings| settings.tls_ca_cert_file = huge,
            Err(("tls-ca-cert-file", "larger than 4 MiB")),
        );
        check(
            |settings| settings.tls_ca_cert_file = PathBuf::from("/dev/zero"),
            Err(("tls-ca-cert-file", "not a regular file")),
        );
        for label in ["one", "two", "huge"] {
            std::fs::remove_dir_all(directory(label)).unwrap();
        }
    }

    #[test]
    fn handshake_options_are_matched_by_name() {
        assert!(is_concerned(b"TLS-Cert-File"));
        assert!(!is_concerned(b"tls-handshake-timeout-ms"));
        assert!(OPTIONS.iter().all(|name| crate::config::find(name).is_some()));
    }
}
