//! Rewriting of the configuration file: it preserves comments and order, and replaces the file
//! atomically.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use options::{Form, Kind, Unit};
use toml_edit::{Array, DocumentMut, Item, Key, TomlError, Value};

use super::settings::Settings;
use super::{OptionSpec, find, owner};

/// Returns the text with the options in `changed` set as in `settings`.
pub(super) fn edit(
    text: &str,
    changed: &[&'static OptionSpec],
    settings: &Settings,
) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    for option in changed {
        set_entry(&mut document, option, settings);
    }
    Ok(document.to_string())
}

fn set_entry(document: &mut DocumentMut, option: &'static OptionSpec, settings: &Settings) {
    let mut value = toml_value(option, settings);
    let present = document
        .iter()
        .map(|(name, _)| name.to_owned())
        .find(|name| find(name).is_some_and(|known| owner(known).name == option.name));
    match present {
        None => {
            document.insert(option.name, Item::Value(value));
        }
        Some(name) if find(&name).is_some_and(OptionSpec::owns_its_value) => {
            if let Some(old) = document.get(&name).and_then(Item::as_value) {
                *value.decor_mut() = old.decor().clone();
            }
            document[&name] = Item::Value(value);
        }
        // The file sets the option by an alias (appendfsync for durability) that may be unable to
        // express the new value. Write the option's own name instead, and keep the comment.
        Some(name) => {
            let mut key = Key::new(option.name);
            if let Some((old, _)) = document.remove_entry(&name) {
                *key.leaf_decor_mut() = old.leaf_decor().clone();
            }
            document.as_table_mut().insert_formatted(&key, Item::Value(value));
        }
    }
}

/// Returns the value as the file has it.
pub(super) fn toml_value(option: &OptionSpec, settings: &Settings) -> Value {
    let text = option.text(settings);
    match &option.kind {
        Kind::YesNo { get, .. } => get(settings).into(),
        Kind::Number { unit: Unit::Bytes, .. } if text != "0" => option.shown(settings).into(),
        Kind::Number { .. } | Kind::Limit { .. } => {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        }
        Kind::Value { form: Form::List, .. } if text.contains(' ') => {
            text.split(' ').collect::<Array>().into()
        }
        _ => text.into(),
    }
}

/// Replaces the file atomically: after a crash it has either its old or its new contents.
///
/// 1. write a temporary file in the same directory, readable by its owner only, and sync it;
/// 2. copy the mode of the old file, which may contain a password;
/// 3. rename it over the old file and sync the directory.
pub(super) fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    // Preserve a symbolic link, and replace its target.
    let path = fs::canonicalize(path)?;
    let permissions = fs::metadata(&path)?.permissions();
    replace_with(&path, text, permissions)
}

/// Like [`replace`], and creates the file if it does not exist, readable by its owner only.
pub(crate) fn write_file(path: &Path, text: &[u8]) -> io::Result<()> {
    match replace(path, text) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            replace_with(&std::path::absolute(path)?, text, Permissions::from_mode(0o600))
        }
        outcome => outcome,
    }
}

fn replace_with(path: &Path, text: &[u8], permissions: Permissions) -> io::Result<()> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    };
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(".rewrite");
    let temporary = directory.join(temporary_name);
    let outcome = write_synced(&temporary, text, permissions)
        .and_then(|()| fs::rename(&temporary, path))
        .and_then(|()| File::open(directory)?.sync_all());
    if outcome.is_err() {
        // Report the first error; the next attempt removes the leftover file.
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

fn write_synced(temporary: &Path, text: &[u8], permissions: Permissions) -> io::Result<()> {
    // A leftover file may have a different mode, or be a link.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(text)?;
    file.set_permissions(permissions)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check_edit(text: &str, change: impl FnOnce(&mut Settings), names: &[&str], expected: &str) {
        let mut settings = Settings::default();
        change(&mut settings);
        let changed: Vec<_> = names.iter().map(|name| find(name).unwrap()).collect();
        assert_eq!(edit(text, &changed, &settings).unwrap(), expected);
    }

    #[test]
    fn edits_keep_comments_order_and_form() {
        check_edit(
            "# mine\nmaxmemory = \"1gb\" # enough\n\n# rounds\nhz   = 10\n",
            |s| {
                s.maxmemory_bytes = 100 << 20;
                s.hz = 50;
                s.active_expire = false;
                s.timeout_s = 7;
            },
            &["maxmemory", "hz", "active-expire", "timeout"],
            "# mine\nmaxmemory = \"100mb\" # enough\n\n# rounds\nhz   = 50\n\
             active-expire = false\ntimeout = 7\n",
        );
    }

    #[test]
    fn an_alias_keeps_its_name_and_other_words_give_way() {
        check_edit(
            "# why\nappendfsync = \"everysec\"\nhash-max-ziplist-entries = 5\n",
            |s| {
                s.durability = super::super::Durability::Never;
                s.hash_max_listpack_entries = 6;
            },
            &["durability", "hash-max-listpack-entries"],
            "hash-max-ziplist-entries = 6\n# why\ndurability = \"never\"\n",
        );
    }

    #[test]
    fn every_option_survives_the_file() {
        let settings = Settings {
            resp: vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()],
            requirepass: super::super::Password("a \"b\" \\ é".to_owned()),
            maxmemory_bytes: u64::MAX,
            memory_limit: base::units::Limit::Percent(7),
            ..Settings::default()
        };
        let owners: Vec<_> = super::super::rows().filter(|row| row.owns_its_value()).collect();
        let text = edit("", &owners, &settings).unwrap();
        let mut read = options::Loaded::new(super::super::OPTIONS);
        read.read_text(Path::new("m.toml"), &text).unwrap();
        assert_eq!(read.settings, settings);
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left() {
        let directory =
            std::env::temp_dir().join(format!("myriad-config-replace-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let path = directory.join("m.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let link = directory.join("link.toml");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        // A leftover of an earlier attempt is not written to.
        let other = directory.join("other");
        fs::write(&other, "other").unwrap();
        std::os::unix::fs::symlink(&other, directory.join(".m.toml.rewrite")).unwrap();

        replace(&link, b"new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        let missing = directory.join("missing.toml");
        assert!(replace(&missing, b"new").is_err());
        write_file(&missing, b"new").unwrap();
        assert_eq!(fs::read_to_string(&missing).unwrap(), "new");
        assert_eq!(fs::metadata(&missing).unwrap().permissions().mode() & 0o777, 0o600);
        write_file(&missing, b"newer").unwrap();
        assert_eq!(fs::read_to_string(&missing).unwrap(), "newer");
        fs::remove_dir_all(&directory).unwrap();
    }
}
