//! `myriad config check`: validates a configuration file as the start of the server does.

use std::io::Write;
use std::path::Path;

use base::usage::UsageError;
use options::Conflict;

use crate::config::{Config, Environment};
use crate::serve::{load_users, open_tls};

/// Prints the values that are not the defaults. Fails with all errors, each on a line of its own.
pub fn check(path: &Path, environment: &Environment, out: &mut impl Write) -> anyhow::Result<()> {
    let config = Config::check_file(path, environment).map_err(|errors| wrong(&errors))?;
    let settings = config.settings();
    // Users and certificates are in files of their own, which the server reads at its start.
    let faults: Vec<Conflict> =
        load_users(settings).err().into_iter().chain(open_tls(settings).err()).collect();
    if !faults.is_empty() {
        let errors: Vec<_> = faults.into_iter().map(|fault| config.conflict(fault)).collect();
        return Err(wrong(&errors));
    }
    for line in config.effective() {
        writeln!(out, "{line}")?;
    }
    writeln!(out, "{}: valid", path.display())?;
    Ok(())
}

fn wrong(errors: &[impl ToString]) -> anyhow::Error {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    UsageError(lines.join("\n")).into()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_that_the_configuration_names_are_read() {
        let name = format!("myriad-config-files-{}.toml", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mut out = Vec::new();
        fs::write(&path, "hz = 20\n").unwrap();
        check(&path, &Environment::default(), &mut out).unwrap();
        let expected = format!("hz = 20 # line 1, default 10\n{}: valid\n", path.display());
        assert_eq!(String::from_utf8(out).unwrap(), expected);

        let text = "aclfile = \"no/users\"\nresp-tls = \"127.0.0.1:1\"\n\
                    tls-auth-clients = \"no\"\ntls-key-file = \"no/key\"\n\
                    tls-cert-file = \"no/cert\"\n";
        fs::write(&path, text).unwrap();
        let error = check(&path, &Environment::default(), &mut Vec::new()).unwrap_err();
        fs::remove_file(&path).unwrap();
        assert!(error.is::<UsageError>());
        let error = error.to_string();
        let lines: Vec<&str> = error.lines().collect();
        let place = path.display();
        assert_eq!(lines.len(), 2, "{error}");
        assert!(lines[0].starts_with(&format!("{place}:1: aclfile: ")), "{error}");
        assert!(lines[1].starts_with(&format!("{place}:5: tls-cert-file: ")), "{error}");
    }
}
