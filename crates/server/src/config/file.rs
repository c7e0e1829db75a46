//! The configuration file: flat TOML, `name = value`. The parser reports the line of every error;
//! rewriting preserves comments and order, and replaces the file atomically.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use base::units::exact_bytes;
use toml_edit::{Array, Document, DocumentMut, Item, Key, TomlError, Value};

use super::option::{Kind, OptionSpec};
use super::options::{OPTIONS, find, owner_index};
use super::settings::Settings;

/// A larger file is not a configuration file.
pub(super) const FILE_BYTES_MAX: u64 = 1 << 20;

/// One `name = value` of the file, with the value as text for the option to parse.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) name: String,
    pub(super) value: String,
    /// Counted from 1.
    pub(super) line: usize,
}

/// A syntax error in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) line: usize,
    pub(super) reason: String,
}

/// Parses all entries, in order.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, Fault> {
    let document = Document::parse(text).map_err(|error| syntax_fault(text, &error))?;
    let table = document.as_table();
    let mut entries = Vec::new();
    for (name, item) in table {
        let span = table.key(name).and_then(Key::span).or_else(|| item.span());
        let line = span.map_or(1, |span| line_at(text, span.start));
        let value = value_text(name, item).map_err(|reason| Fault { line, reason })?;
        entries.push(Entry { name: name.to_owned(), value, line });
    }
    Ok(entries)
}

fn syntax_fault(text: &str, error: &TomlError) -> Fault {
    let line = error.span().map_or(1, |span| line_at(text, span.start));
    let reason = error.message().lines().collect::<Vec<_>>().join(", ");
    Fault { line, reason }
}

fn line_at(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|&byte| byte == b'\n').count() + 1
}

fn value_text(name: &str, item: &Item) -> Result<String, String> {
    let Some(value) = item.as_value() else {
        return Err(format!("[{name}] is a table: options are flat, name = value"));
    };
    match value {
        Value::Array(array) => {
            let parts: Option<Vec<_>> = array.iter().map(scalar_text).collect();
            parts.map(|parts| parts.join(" "))
        }
        scalar => scalar_text(scalar),
    }
    .ok_or_else(|| format!("{name}: a value is a string, a number, true, false or a list of these"))
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.value().clone()),
        Value::Integer(number) => Some(number.value().to_string()),
        Value::Float(number) => Some(number.value().to_string()),
        Value::Boolean(truth) => Some(super::option::yes_no(*truth.value()).to_owned()),
        Value::Datetime(_) | Value::Array(_) | Value::InlineTable(_) => None,
    }
}

/// Returns the text with the options at `changed` (indexes in the table) set as in `settings`.
pub(super) fn edit(
    text: &str,
    changed: &[usize],
    settings: &Settings,
) -> Result<String, TomlError> {
    let mut document: DocumentMut = text.parse()?;
    for &index in changed {
        set_entry(&mut document, index, settings);
    }
    Ok(document.to_string())
}

fn set_entry(document: &mut DocumentMut, index: usize, settings: &Settings) {
    let option = &OPTIONS[index];
    let mut value = toml_value(option, settings);
    let present = document
        .iter()
        .map(|(name, _)| name.to_owned())
        .find(|name| find(name).is_some_and(|known| owner_index(known) == index));
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

fn toml_value(option: &OptionSpec, settings: &Settings) -> Value {
    let text = option.text(settings);
    match &option.kind {
        Kind::YesNo { field } => (*(field.get)(settings)).into(),
        Kind::Bytes { .. } => match text.parse() {
            Ok(bytes) if bytes > 0 => exact_bytes(bytes).into(),
            _ => 0.into(),
        },
        Kind::Count { .. } | Kind::Signed { .. } | Kind::Duration { .. } | Kind::Limit { .. } => {
            text.parse::<i64>().map_or_else(|_| text.into(), Value::from)
        }
        Kind::Addresses { field } => match (field.get)(settings).as_slice() {
            [_] => text.into(),
            several => several.iter().map(ToString::to_string).collect::<Array>().into(),
        },
        _ => text.into(),
    }
}

/// Replaces the file atomically: after a crash it has either its old or its new contents.
///
/// 1. write a temporary file in the same directory, readable by its owner only, and sync it;
/// 2. copy the mode of the old file, which may contain a password;
/// 3. rename it over the old file and sync the directory.
pub(super) fn replace(path: &Path, text: &str) -> io::Result<()> {
    // Preserve a symbolic link, and replace its target.
    let path = fs::canonicalize(path)?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a file"));
    };
    let mut temporary_name = std::ffi::OsString::from(".");
    temporary_name.push(name);
    temporary_name.push(".rewrite");
    let temporary = directory.join(temporary_name);
    let outcome = write_synced(&temporary, text, &path)
        .and_then(|()| fs::rename(&temporary, &path))
        .and_then(|()| File::open(directory)?.sync_all());
    if outcome.is_err() {
        // Report the first error; the next attempt removes the leftover file.
        let _ = fs::remove_file(&temporary);
    }
    outcome
}

fn write_synced(temporary: &Path, text: &str, model: &Path) -> io::Result<()> {
    // A leftover file may have a different mode, or be a link.
    match fs::remove_file(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(temporary)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(fs::metadata(model)?.permissions())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<(String, String, usize)> {
        parse(text).unwrap().into_iter().map(|e| (e.name, e.value, e.line)).collect()
    }

    fn check_fault(text: &str, line: usize, part: &str) {
        let fault = parse(text).unwrap_err();
        assert_eq!(fault.line, line, "{fault:?}");
        assert!(fault.reason.contains(part), "{fault:?}");
        assert!(!fault.reason.contains('\n'), "{fault:?}");
    }

    #[test]
    fn every_toml_form_becomes_text_with_its_line() {
        let text = "# head\ndir = \"x y\"\nprotected-mode = false\n\nhz = 20\nmemory-limit = -5\n\
                    resp = [\"127.0.0.1:1\", \"[::1]:2\"]\n\
                    latency-tracking-info-percentiles = [50, 99.9]\n";
        let expected = [
            ("dir", "x y", 2),
            ("protected-mode", "no", 3),
            ("hz", "20", 5),
            ("memory-limit", "-5", 6),
            ("resp", "127.0.0.1:1 [::1]:2", 7),
            ("latency-tracking-info-percentiles", "50 99.9", 8),
        ];
        assert_eq!(parsed(text), expected.map(|(n, v, l)| (n.to_owned(), v.to_owned(), l)));
        assert_eq!(parsed(""), []);
    }

    #[test]
    fn faults_have_a_line() {
        check_fault("hz = 1\nhz = 2\n", 2, "duplicate key");
        check_fault("hz = 1\n\nhz 2\n", 3, "");
        check_fault("hz = 1\n[log]\nsegment-bytes = 1\n", 2, "options are flat");
        check_fault("hz = 1\nlog.segment-bytes = 1\n", 2, "options are flat");
        check_fault("hz = { a = 1 }\n", 1, "a value is a string");
        check_fault("a = 1\nhz = 2020-01-01\n", 2, "a value is a string");
        check_fault("a = [[1]]\n", 1, "a value is a string");
    }

    fn check_edit(text: &str, change: impl FnOnce(&mut Settings), names: &[&str], expected: &str) {
        let mut settings = Settings::default();
        change(&mut settings);
        let changed: Vec<_> = names.iter().map(|name| owner_index(find(name).unwrap())).collect();
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
        let owners: Vec<_> =
            (0..OPTIONS.len()).filter(|&index| OPTIONS[index].owns_its_value()).collect();
        let text = edit("", &owners, &settings).unwrap();
        let mut read = Settings::default();
        for entry in parse(&text).unwrap() {
            find(&entry.name).unwrap().set(&mut read, &entry.value).unwrap();
        }
        assert_eq!(read, settings);
    }

    #[test]
    fn a_file_is_replaced_with_its_mode_and_nothing_is_left() {
        use std::os::unix::fs::PermissionsExt;
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

        replace(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&other).unwrap(), "other");
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
        assert!(replace(&directory.join("missing.toml"), "new").is_err());
        fs::remove_dir_all(&directory).unwrap();
    }
}
