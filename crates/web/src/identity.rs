//! Certificate and key of the TLS listeners. The master reads them and passes them to workers in
//! memory.
//!
//! Workers never open the files. A replacement worker therefore presents the same certificate as
//! the other workers of its group, even if the files have changed since; only a reload or a new
//! master re-reads them. Workers cannot modify the shared memory, which is sealed.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use reactor::{Pem, Tls, TlsClients, TlsError, TlsPart, TlsRules, TlsVersions};
use rustix::fs::{MemfdFlags, SealFlags};

use crate::config::Config;

/// Protocols offered in ALPN. Clients that offer only others are refused.
// Source: RFC 7301 6; the IANA registry of ALPN protocol IDs
const PROTOCOLS: [&[u8]; 2] = [b"http/1.1", b"http/1.0"];
/// Length prefix: the number of bytes of the certificates.
const LENGTH_BYTES: usize = size_of::<u64>();
/// Limit for both files, each of which has at most 4 MiB.
const TEXT_BYTES_MAX: u64 = 8 << 20;

/// The TLS of a worker's listeners.
#[derive(Debug)]
pub(crate) struct ListenerTls {
    pub(crate) tls: Tls,
    /// When the first of the certificates expires; `None` if that is unknown.
    pub(crate) expiry_unix_s: Option<u64>,
}

/// A memory file: certificates and key in PEM, which were verified to match.
#[derive(Debug)]
pub(crate) struct Identity {
    file: File,
}

impl Identity {
    /// Reads the configured files, if any. Blocks for the disk.
    pub(crate) fn read(config: &Config) -> anyhow::Result<Option<Identity>> {
        let (Some(certificates), Some(key)) = (&config.tls_cert_file, &config.tls_key_file) else {
            return Ok(None);
        };
        let read = || -> Result<(Pem, Pem), TlsError> {
            let certificates = Pem::read(TlsPart::Certificate, certificates)?;
            let key = Pem::read(TlsPart::Key, key)?;
            tls_of(&certificates, &key)?;
            Ok((certificates, key))
        };
        let (certificates, key) = read().map_err(|error| match error.part() {
            TlsPart::Certificate => anyhow!("tls-cert-file: {error}"),
            TlsPart::Key => anyhow!("tls-key-file: {error}"),
            TlsPart::Authorities | TlsPart::Versions => anyhow!("{error}"),
        })?;
        let identity = Identity::keep(certificates.text(), key.text());
        Ok(Some(identity.context("could not store certificate and key in memory")?))
    }

    fn keep(certificates: &[u8], key: &[u8]) -> io::Result<Identity> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("myriad-web-identity", flags)?;
        let mut file = File::from(file);
        file.write_all(&(certificates.len() as u64).to_ne_bytes())?;
        file.write_all(certificates)?;
        file.write_all(key)?;
        let seals = SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&file, seals)?;
        Ok(Identity { file })
    }

    /// Wraps a descriptor received from the master.
    pub(crate) fn from_fd(file: OwnedFd) -> Identity {
        Identity { file: File::from(file) }
    }

    /// Returns the TLS configuration of the listeners.
    pub(crate) fn tls(&self) -> anyhow::Result<ListenerTls> {
        let bytes = self.file.metadata()?.len();
        if bytes > TEXT_BYTES_MAX + LENGTH_BYTES as u64 {
            bail!("certificate and key have {bytes} bytes");
        }
        let mut text = vec![0; usize::try_from(bytes)?];
        // Positioned read: workers share the file offset.
        self.file.read_exact_at(&mut text, 0)?;
        let (length, text) = text.split_first_chunk::<LENGTH_BYTES>().context("missing length")?;
        let length = usize::try_from(u64::from_ne_bytes(*length))?;
        let (certificates, key) = text.split_at_checked(length).context("wrong length")?;
        let memory = Path::new("memory");
        let certificates = Pem::new(TlsPart::Certificate, memory, certificates.to_vec());
        let key = Pem::new(TlsPart::Key, memory, key.to_vec());
        let tls = tls_of(&certificates, &key)?;
        Ok(ListenerTls { tls, expiry_unix_s: certificates.expiry_unix_s()? })
    }
}

impl AsFd for Identity {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn tls_of(certificates: &Pem, key: &Pem) -> Result<Tls, TlsError> {
    let rules = TlsRules {
        certificates,
        key,
        clients: TlsClients::Disabled,
        versions: TlsVersions::Both,
        protocols: &PROTOCOLS,
    };
    rules.config().map(Tls::new)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// A certificate and the key of another one, in files.
    struct Files(PathBuf);

    impl Files {
        fn new() -> Files {
            let name = format!("myriad-web-identity-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            for name in ["one", "two"] {
                let names = vec!["localhost".to_owned()];
                let made = rcgen::generate_simple_self_signed(names).unwrap();
                std::fs::write(folder.join(format!("{name}.pem")), made.cert.pem()).unwrap();
                let key = made.signing_key.serialize_pem();
                std::fs::write(folder.join(format!("{name}.key")), key).unwrap();
            }
            Files(folder)
        }

        fn config(&self, certificate: &str, key: &str) -> Config {
            Config {
                tls_cert_file: Some(self.0.join(certificate)),
                tls_key_file: Some(self.0.join(key)),
                ..Config::default()
            }
        }
    }

    impl Drop for Files {
        fn drop(&mut self) {
            std::fs::remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn workers_present_the_masters_certificate() {
        let files = Files::new();
        assert!(Identity::read(&Config::default()).unwrap().is_none());
        let identity = Identity::read(&files.config("one.pem", "one.key")).unwrap().unwrap();
        std::fs::write(files.0.join("one.pem"), "nonsense").unwrap();
        for _ in 0..2 {
            let passed = Identity::from_fd(identity.as_fd().try_clone_to_owned().unwrap());
            passed.tls().unwrap();
            // The shared memory is immutable.
            assert!(passed.file.write_at(b"1", 0).is_err());
            assert!(passed.file.set_len(0).is_err());
            assert!(passed.file.set_len(TEXT_BYTES_MAX).is_err());
        }
        for (certificate, key, said) in [
            ("one.pem", "one.key", "tls-cert-file: "),
            ("none.pem", "one.key", "tls-cert-file: "),
            ("two.pem", "none.key", "tls-key-file: "),
            ("two.pem", "one.key", "tls-key-file: "),
        ] {
            let error = Identity::read(&files.config(certificate, key)).unwrap_err().to_string();
            assert!(error.starts_with(said), "{certificate} {key}: {error}");
        }
    }

    #[test]
    fn a_truncated_identity_is_refused() {
        for bytes in [&b""[..], b"1234567", &u64::MAX.to_ne_bytes(), &9_u64.to_ne_bytes()] {
            let file = rustix::fs::memfd_create("cut", MemfdFlags::CLOEXEC).unwrap();
            File::from(file.try_clone().unwrap()).write_all(bytes).unwrap();
            assert!(Identity::from_fd(file).tls().is_err(), "{bytes:?}");
        }
    }
}
