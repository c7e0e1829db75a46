//! Certificates, keys and client rules of listeners with TLS, from files.

use std::fs::OpenOptions;
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::fcntl::OFlag;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{ParsedCertificate, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{
    CertificateError, ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, version,
};

/// A bundle of all public authorities has 250 KB.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// The file that an error is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsPart {
    /// The server's certificate and the intermediate ones up to its authority.
    Certificate,
    Key,
    /// The authorities whose clients are accepted.
    Authorities,
    Versions,
}

/// Why TLS cannot be set up as configured.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    #[error("{}: {error}", path.display())]
    Read { part: TlsPart, path: Box<Path>, error: io::Error },
    /// `fault` contains nothing of the file's content.
    #[error("{}: {fault}", path.display())]
    Form { part: TlsPart, path: Box<Path>, fault: Box<str> },
    #[error("{}: no certificate found", path.display())]
    NoCertificate { part: TlsPart, path: Box<Path> },
    #[error("{}: {error}", path.display())]
    Refused { part: TlsPart, path: Box<Path>, error: rustls::Error },
    #[error("invalid client authorities: {0}")]
    Verifier(#[from] VerifierBuilderError),
    #[error("TLS library: {0}")]
    Library(#[from] rustls::Error),
}

impl TlsError {
    pub fn part(&self) -> TlsPart {
        match self {
            TlsError::Read { part, .. }
            | TlsError::Form { part, .. }
            | TlsError::NoCertificate { part, .. }
            | TlsError::Refused { part, .. } => *part,
            TlsError::Verifier(_) => TlsPart::Authorities,
            TlsError::Library(_) => TlsPart::Versions,
        }
    }
}

/// Text with certificates or a key, and the path of its file.
pub struct Pem {
    part: TlsPart,
    path: Box<Path>,
    text: Vec<u8>,
}

/// Omits the text: it may be a key.
impl std::fmt::Debug for Pem {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Pem")
            .field("part", &self.part)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Pem {
    /// Wraps text that was read before.
    pub fn new(part: TlsPart, path: &Path, text: Vec<u8>) -> Pem {
        Pem { part, path: path.into(), text }
    }

    /// Reads a regular file of at most 4 MiB. Blocks for the disk, but not for the writer of a
    /// pipe.
    pub fn read(part: TlsPart, path: &Path) -> Result<Pem, TlsError> {
        let fault = |error| TlsError::Read { part, path: path.into(), error };
        let mut text = Vec::new();
        // NONBLOCK: opening a pipe would block until another process writes to it.
        let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY;
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(flags.bits());
        let file = options.open(path).map_err(fault)?;
        if !file.metadata().map_err(fault)?.is_file() {
            return Err(fault(io::Error::other("not a regular file")));
        }
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text).map_err(fault)?;
        if text.len() as u64 > FILE_BYTES_MAX {
            return Err(fault(io::Error::other("larger than 4 MiB")));
        }
        Ok(Pem::new(part, path, text))
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// The end of the validity of the certificates, that of the first to expire, in seconds since
    /// the Unix epoch. `None` if the library reads it in none of them.
    pub fn expiry_unix_s(&self) -> Result<Option<u64>, TlsError> {
        Ok(self.certificates()?.iter().filter_map(expiry_unix_s).min())
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let chain = CertificateDer::pem_slice_iter(&self.text).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| self.malformed(&error))?;
        if chain.is_empty() {
            return Err(TlsError::NoCertificate { part: self.part, path: self.path.clone() });
        }
        Ok(chain)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| self.malformed(&error))
    }

    fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut store = RootCertStore::empty();
        for certificate in self.certificates()? {
            store.add(certificate).map_err(|error| self.refused(error))?;
        }
        Ok(store)
    }

    /// Two errors of the library quote the file, and a key whose line ends became spaces is a
    /// single line: the whole key would appear in logs and answers.
    fn malformed(&self, error: &pem::Error) -> TlsError {
        let fault: Box<str> = match error {
            pem::Error::MissingSectionEnd { .. } => "a section does not end".into(),
            pem::Error::IllegalSectionStart { .. } => "malformed start of a section".into(),
            other => other.to_string().into_boxed_str(),
        };
        TlsError::Form { part: self.part, path: self.path.clone(), fault }
    }

    fn refused(&self, error: rustls::Error) -> TlsError {
        TlsError::Refused { part: self.part, path: self.path.clone(), error }
    }
}

/// The library has no function that returns the validity, but it checks it before anything else,
/// and reports its end for a time that is later.
fn expiry_unix_s(certificate: &CertificateDer<'_>) -> Option<u64> {
    let certificate = ParsedCertificate::try_from(certificate).ok()?;
    let authorities = RootCertStore::empty();
    let end_of_time = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    let checked = verify_server_cert_signed_by_trust_anchor(
        &certificate,
        &authorities,
        &[],
        end_of_time,
        &[],
    );
    match checked {
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext {
            not_after,
            ..
        })) => Some(not_after.as_secs()),
        _ => None,
    }
}

/// Whether clients present certificates, and of which authorities.
#[derive(Debug)]
pub enum TlsClients {
    /// No certificate is requested.
    Disabled,
    /// A certificate is optional, but a bad one is rejected.
    Optional(Pem),
    Required(Pem),
}

/// Accepted versions of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersions {
    Both,
    Tls12,
    Tls13,
}

impl TlsVersions {
    fn list(self) -> &'static [&'static SupportedProtocolVersion] {
        static LISTS: [&[&SupportedProtocolVersion]; 3] =
            [&[&version::TLS13, &version::TLS12], &[&version::TLS12], &[&version::TLS13]];
        LISTS[self as usize]
    }
}

/// The configuration of connections to other servers. `own`: the certificates, and their key, that
/// are presented if a server asks for them.
pub fn tls_client(
    authorities: &Pem,
    own: Option<(&Pem, &Pem)>,
    versions: TlsVersions,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions.list())?
        .with_root_certificates(authorities.authorities()?);
    let Some((certificates, key)) = own else {
        return Ok(Arc::new(builder.with_no_client_auth()));
    };
    let config = builder.with_client_auth_cert(certificates.certificates()?, key.key()?);
    Ok(Arc::new(config.map_err(|error| key.refused(error))?))
}

/// All settings of handshakes.
#[derive(Debug)]
pub struct TlsRules<'a> {
    /// The server's certificate first, followed by the intermediate ones up to its authority.
    pub certificates: &'a Pem,
    /// The key of the first of them.
    pub key: &'a Pem,
    pub clients: TlsClients,
    pub versions: TlsVersions,
    /// Protocol names, the preferred one first; empty: no negotiation.
    // Source: RFC 7301 3.1
    pub protocols: &'a [&'a [u8]],
}

impl TlsRules<'_> {
    /// The configuration for [`crate::Tls`]. Fails unless all parts are valid and match each other.
    pub fn config(&self) -> Result<Arc<ServerConfig>, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions.list())?;
        let verifier = |authorities: &Pem| {
            let authorities = Arc::new(authorities.authorities()?);
            Ok::<_, TlsError>(WebPkiClientVerifier::builder_with_provider(authorities, provider))
        };
        let builder = match &self.clients {
            TlsClients::Disabled => builder.with_no_client_auth(),
            TlsClients::Optional(authorities) => {
                let verifier = verifier(authorities)?.allow_unauthenticated();
                builder.with_client_cert_verifier(verifier.build()?)
            }
            TlsClients::Required(authorities) => {
                builder.with_client_cert_verifier(verifier(authorities)?.build()?)
            }
        };
        let chain = self.certificates.certificates()?;
        let config = builder.with_single_cert(chain, self.key.key()?);
        let mut config = config.map_err(|error| self.key.refused(error))?;
        // Returning clients need no new key exchange, and the server stores nothing for them. A
        // changed configuration has new ticket keys, so that no client can resume a session of an
        // old one.
        config.ticketer = ring::Ticketer::new()?;
        config.alpn_protocols = self.protocols.iter().map(|name| name.to_vec()).collect();
        Ok(Arc::new(config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(part: TlsPart, text: &str) -> Pem {
        Pem::new(part, Path::new("some.pem"), text.as_bytes().to_vec())
    }

    /// Finds the fault of a certificate and key.
    fn fault(certificate: &str, key: &str) -> Option<(TlsPart, String)> {
        let rules = TlsRules {
            certificates: &pem(TlsPart::Certificate, certificate),
            key: &pem(TlsPart::Key, key),
            clients: TlsClients::Disabled,
            versions: TlsVersions::Both,
            protocols: &[b"http/1.1"],
        };
        rules.config().err().map(|error| (error.part(), error.to_string()))
    }

    #[test]
    fn a_key_goes_with_its_certificate() {
        let make = || {
            let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
            (made.cert.pem(), made.signing_key.serialize_pem())
        };
        let ((certificate, key), (_, other_key)) = (make(), make());
        assert_eq!(fault(&certificate, &key), None);
        for (certificate, key, part) in [
            ("", key.as_str(), TlsPart::Certificate),
            (key.as_str(), key.as_str(), TlsPart::Certificate),
            (certificate.as_str(), certificate.as_str(), TlsPart::Key),
            (certificate.as_str(), other_key.as_str(), TlsPart::Key),
        ] {
            let (found, text) = fault(certificate, key).unwrap();
            assert_eq!(found, part, "{text}");
            assert!(text.starts_with("some.pem: "), "{text}");
        }
    }

    /// A certificate that expires at the start of this year.
    fn expiring(year: i32, is_authority: bool) -> String {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(1970, 1, 1);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        if is_authority {
            params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        }
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().pem()
    }

    #[test]
    fn the_first_certificate_to_expire_counts() {
        let check = |chain: &[String], expected| {
            let found = pem(TlsPart::Certificate, &chain.concat()).expiry_unix_s();
            assert_eq!(found.unwrap(), expected, "{chain:?}");
        };
        // As `date --utc --date=2049-01-01 +%s` prints them. From 2050 on, DER has another form.
        check(&[expiring(2020, false)], Some(1_577_836_800));
        check(&[expiring(2049, false)], Some(2_493_072_000));
        check(&[expiring(2050, true)], Some(2_524_608_000));
        check(&[expiring(9999, false)], Some(253_370_764_800));
        let chain = [2050, 2020, 2049].map(|year| expiring(year, year == 2020));
        check(&chain, Some(1_577_836_800));
        let unreadable = |text| pem(TlsPart::Certificate, text).expiry_unix_s();
        assert!(unreadable("").is_err());
        let nonsense = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        assert_eq!(unreadable(nonsense).unwrap(), None);
        check(&[nonsense.to_owned(), expiring(2049, false)], Some(2_493_072_000));
    }

    #[test]
    fn pipes_and_directories_are_refused() {
        let name = format!("myriad-credentials-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        // Left by another run with the same number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.join(name));
        std::fs::write(&file, "text").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        rustix::fs::mkfifoat(rustix::fs::CWD, pipe.as_path(), mode).unwrap();
        for path in [&file, &link] {
            assert_eq!(Pem::read(TlsPart::Key, path).unwrap().text(), b"text");
        }
        for path in [&pipe, &folder] {
            let error = Pem::read(TlsPart::Key, path).unwrap_err().to_string();
            assert_eq!(error, format!("{}: not a regular file", path.display()));
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_key_is_not_shown() {
        let shown = format!("{:?}", pem(TlsPart::Key, "secret"));
        assert!(shown.contains("some.pem") && !shown.contains("secret"), "{shown}");
    }

    /// Line ends become spaces where a shell passes a key on: the whole key then belongs to the
    /// start of a section.
    #[test]
    fn a_key_in_one_line_is_not_shown() {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let key = made.signing_key.serialize_pem();
        let secret = key.lines().nth(2).unwrap();
        let numbers = format!("{:?}", secret.as_bytes());
        let numbers = numbers.trim_matches(['[', ']']);
        let line = key.lines().collect::<Vec<_>>().join(" ");
        for (text, said) in [
            (line.as_str(), "some.pem: a section does not end"),
            (line.trim_end_matches('-'), "some.pem: malformed start of a section"),
        ] {
            assert!(text.contains(secret));
            let file = pem(TlsPart::Key, text);
            for read in [file.key().map(drop), file.certificates().map(drop)] {
                let error = read.unwrap_err();
                let shown = format!("{error} {error:?}");
                assert!(!shown.contains(secret) && !shown.contains(numbers), "{shown}");
                assert_eq!(error.to_string(), said);
            }
        }
    }
}
