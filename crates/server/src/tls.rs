//! TLS certificates, keys and rules of the listeners, read from files.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use reactor::{Pem, Tls, TlsClients, TlsError, TlsPart, TlsRules, TlsVersions, tls_client};
use rustls::{ClientConfig, ServerConfig};

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

/// The TLS of all listeners that use it.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    pub(crate) tls: Arc<Tls>,
    /// 0 if the expiry of the certificates is unknown.
    expiry_unix_s: AtomicU64,
}

impl ListenerTls {
    pub(crate) fn new(loaded: Loaded) -> ListenerTls {
        let expiry_unix_s = AtomicU64::new(loaded.expiry_unix_s.unwrap_or(0));
        ListenerTls { tls: Arc::new(Tls::new(loaded.config)), expiry_unix_s }
    }

    /// New connections use what was loaded; existing ones keep theirs.
    pub(crate) fn replace(&self, loaded: Loaded) {
        self.tls.replace(loaded.config);
        self.expiry_unix_s.store(loaded.expiry_unix_s.unwrap_or(0), Ordering::Relaxed);
    }

    /// When the first of the certificates that clients are sent expires.
    pub(crate) fn expiry_unix_s(&self) -> Option<u64> {
        Some(self.expiry_unix_s.load(Ordering::Relaxed)).filter(|time| *time > 0)
    }
}

/// What the files of the listeners contain.
#[derive(Debug)]
pub(crate) struct Loaded {
    config: Arc<ServerConfig>,
    expiry_unix_s: Option<u64>,
}

/// Reads the files that the options name. Blocks on disk I/O.
pub(crate) fn load(settings: &Settings) -> Result<Loaded, TlsError> {
    let authorities = || Pem::read(TlsPart::Authorities, &settings.tls_ca_cert_file);
    let clients = match settings.tls_auth_clients {
        TlsAuthClients::No => TlsClients::Disabled,
        TlsAuthClients::Optional => TlsClients::Optional(authorities()?),
        TlsAuthClients::Yes => TlsClients::Required(authorities()?),
    };
    let versions = versions(settings);
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
    Ok(Loaded { config: rules.config()?, expiry_unix_s: certificates.expiry_unix_s()? })
}

/// Reads the files that a connection to another server needs. Blocks on disk I/O.
pub(crate) fn load_client(settings: &Settings) -> Result<Arc<ClientConfig>, TlsError> {
    let authorities = Pem::read(TlsPart::Authorities, &settings.tls_ca_cert_file)?;
    if settings.tls_cert_file.as_os_str().is_empty() {
        return tls_client(&authorities, None, versions(settings));
    }
    let certificates = Pem::read(TlsPart::Certificate, &settings.tls_cert_file)?;
    let key = Pem::read(TlsPart::Key, &settings.tls_key_file)?;
    tls_client(&authorities, Some((&certificates, &key)), versions(settings))
}

fn versions(settings: &Settings) -> TlsVersions {
    match settings.tls_protocols {
        TlsProtocols::Both => TlsVersions::Both,
        TlsProtocols::Tls12 => TlsVersions::Tls12,
        TlsProtocols::Tls13 => TlsVersions::Tls13,
    }
}

/// One element of DER: its tag, its content, and the rest of the input.
// Source: X.690 8.1.2, 8.1.3, 10.1
fn element(input: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    const LONG_FORM: u8 = 0x80;
    /// Lengths of four bytes suffice for every handshake message.
    const LENGTH_BYTES_MAX: usize = 4;
    let (tag, rest) = input.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = if first & LONG_FORM == 0 {
        (usize::from(*first), rest)
    } else {
        let count = usize::from(first & !LONG_FORM);
        if count > LENGTH_BYTES_MAX {
            return None;
        }
        let (bytes, rest) = rest.split_at_checked(count)?;
        (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((*tag, content, rest))
}

/// The content of an element with this tag, and the rest of the input.
fn element_of(wanted: u8, input: &[u8]) -> Option<(&[u8], &[u8])> {
    element(input).filter(|(tag, ..)| *tag == wanted).map(|(_, content, rest)| (content, rest))
}

/// Returns the first common name of the subject of a certificate in DER, as ASCII or UTF-8.
// Source: RFC 5280 4.1 (Certificate, TBSCertificate), 4.1.2.4 (Name); X.520 6.2.2 (commonName)
pub(crate) fn common_name(certificate: &[u8]) -> Option<&[u8]> {
    const SEQUENCE: u8 = 0x30;
    const SET: u8 = 0x31;
    const VERSION: u8 = 0xa0;
    const INTEGER: u8 = 0x02;
    const OBJECT_IDENTIFIER: u8 = 0x06;
    const COMMON_NAME: &[u8] = &[0x55, 4, 3];
    /// `UTF8String`, `PrintableString`, `IA5String`.
    const TEXTS: [u8; 3] = [0x0c, 0x13, 0x16];
    let (certificate, _) = element_of(SEQUENCE, certificate)?;
    let (mut rest, _) = element_of(SEQUENCE, certificate)?;
    if let Some((_, after)) = element_of(VERSION, rest) {
        rest = after;
    }
    (_, rest) = element_of(INTEGER, rest)?; // serial number
    for _ in ["signature", "issuer", "validity"] {
        (_, rest) = element_of(SEQUENCE, rest)?;
    }
    let (mut subject, _) = element_of(SEQUENCE, rest)?;
    while let Some((mut names, after)) = element_of(SET, subject) {
        subject = after;
        while let Some((name, after)) = element_of(SEQUENCE, names) {
            names = after;
            let (kind, value) = element_of(OBJECT_IDENTIFIER, name)?;
            if kind == COMMON_NAME {
                let (tag, text, _) = element(value)?;
                return TEXTS.contains(&tag).then_some(text);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rcgen::{CertificateParams, DnType, KeyPair};
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

    fn certificate(names: &[(DnType, &str)]) -> Vec<u8> {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        for (kind, name) in names {
            params.distinguished_name.push(kind.clone(), *name);
        }
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_common_name_is_part_of_the_subject() {
        let long = "x".repeat(300);
        for (names, expected) in [
            (&[(DnType::CommonName, "app")][..], Some("app")),
            (&[(DnType::OrganizationName, "a"), (DnType::CommonName, "b\u{e4}")], Some("b\u{e4}")),
            (&[(DnType::CommonName, &long)], Some(&long)),
            (&[(DnType::OrganizationName, "a")], None),
            (&[], None),
        ] {
            let found = certificate(names);
            assert_eq!(common_name(&found), expected.map(str::as_bytes), "{names:?}");
        }
    }

    proptest! {
        #[test]
        fn a_damaged_certificate_is_read_without_a_panic(
            cut in 0_usize..600, at in 0_usize..600, byte: u8
        ) {
            let mut bytes = certificate(&[(DnType::CommonName, "app")]);
            bytes.truncate(bytes.len().saturating_sub(cut));
            if let Some(changed) = bytes.get_mut(at) {
                *changed = byte;
            }
            let _ = common_name(&bytes);
        }
    }

    #[test]
    fn handshake_options_are_matched_by_name() {
        assert!(is_concerned(b"TLS-Cert-File"));
        assert!(!is_concerned(b"tls-handshake-timeout-ms"));
        assert!(OPTIONS.iter().all(|name| crate::config::find(name).is_some()));
    }
}
