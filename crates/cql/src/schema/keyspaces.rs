//! CREATE, ALTER and DROP KEYSPACE.

use std::collections::BTreeMap;

use super::change::{ChangeResult, Event, Target, Verb};
use super::names::{Action, guard};
use super::options::{boolean_of, map_of, refuse_unknown, text_of};
use super::{Catalog, DATA_CENTER, Keyspace};
use crate::error::CqlError;
use crate::statements::{AlterKeyspace, CreateKeyspace, Options};

/// Maximum number of keyspaces: each costs memory permanently, and clients read all of them.
const KEYSPACES_MAX: usize = 1_000;

pub(super) const STRATEGIES: &str = "org.apache.cassandra.locator.";
const FACTOR: &str = "replication_factor";

/// The options of a WITH clause.
struct KeyspaceOptions {
    replication: Option<BTreeMap<String, String>>,
    durable_writes: Option<bool>,
}

impl KeyspaceOptions {
    fn read(options: &Options) -> Result<KeyspaceOptions, CqlError> {
        refuse_unknown(options, &["replication", "durable_writes"])?;
        let mut given = KeyspaceOptions { replication: None, durable_writes: None };
        for (name, value) in options {
            if name == "replication" {
                given.replication = Some(map_of(name, value)?);
            } else {
                given.durable_writes = Some(boolean_of(name, text_of(name, value)?)?);
            }
        }
        let lacks_class = |map: &BTreeMap<String, String>| !map.contains_key("class");
        if given.replication.as_ref().is_some_and(lacks_class) {
            return Err(CqlError::Config("Missing replication strategy class".into()));
        }
        Ok(given)
    }
}

pub(super) fn create(catalog: &Catalog, create: &CreateKeyspace) -> ChangeResult {
    let name = &create.name;
    guard(name, Action::Create)?;
    let given = KeyspaceOptions::read(&create.options)?;
    let Some(replication) = given.replication else {
        return Err(CqlError::invalid("Missing mandatory option 'replication'"));
    };
    if catalog.keyspace(name).is_some() {
        if create.if_not_exists {
            return Ok(None);
        }
        let message = format!("Cannot add existing keyspace \"{name}\"");
        let keyspace = name.clone();
        return Err(CqlError::AlreadyExists { keyspace, table: String::new(), message });
    }
    if catalog.keyspaces.len() >= KEYSPACES_MAX {
        return Err(CqlError::Invalid(format!(
            "Cannot have more than {KEYSPACES_MAX} keyspaces, aborting the creation of keyspace \
             {name}"
        )));
    }
    let keyspace = Keyspace {
        name: name.clone(),
        replication: checked_replication(name, replication)?,
        durable_writes: given.durable_writes.unwrap_or(true),
        tables: BTreeMap::new(),
        types: BTreeMap::new(),
    };
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Created, name))))
}

pub(super) fn alter(catalog: &Catalog, alter: &AlterKeyspace) -> ChangeResult {
    let name = &alter.name;
    guard(name, Action::AlterKeyspace)?;
    let given = KeyspaceOptions::read(&alter.options)?;
    let Some(keyspace) = catalog.keyspace(name) else {
        if alter.if_exists {
            return Ok(None);
        }
        return Err(CqlError::Invalid(format!("Keyspace '{name}' doesn't exist")));
    };
    let mut keyspace = Keyspace::clone(keyspace);
    if let Some(replication) = given.replication {
        keyspace.replication = checked_replication(name, replication)?;
    }
    keyspace.durable_writes = given.durable_writes.unwrap_or(keyspace.durable_writes);
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Updated, name))))
}

pub(super) fn drop(catalog: &Catalog, name: &str, if_exists: bool) -> ChangeResult {
    guard(name, Action::DropKeyspace)?;
    let mut without = catalog.clone();
    if without.keyspaces.remove(name).is_none() {
        if if_exists {
            return Ok(None);
        }
        return Err(CqlError::Invalid(format!("Keyspace '{name}' doesn't exist")));
    }
    Ok(Some((without, event(Verb::Dropped, name))))
}

fn event(verb: Verb, keyspace: &str) -> Event {
    Event { verb, keyspace: keyspace.to_owned(), target: Target::Keyspace }
}

/// Class and options to store: all data is on this one server, whatever they specify.
// Source: Cassandra 5.0, locator.SimpleStrategy and locator.NetworkTopologyStrategy
fn checked_replication(
    keyspace: &str,
    mut given: BTreeMap<String, String>,
) -> Result<BTreeMap<String, String>, CqlError> {
    let class = given.remove("class").unwrap_or_default();
    let short = class.strip_prefix(STRATEGIES).unwrap_or(&class).to_owned();
    let default_factor = || "1".to_owned();
    match short.as_str() {
        "SimpleStrategy" => {
            given.entry(FACTOR.into()).or_insert_with(default_factor);
            refuse_options(&given, FACTOR, &short, keyspace)?;
        }
        "NetworkTopologyStrategy" => {
            // The factor of all data centers that are not named.
            let factor = given.remove(FACTOR);
            let factor = factor.or_else(|| given.is_empty().then(default_factor));
            if let Some(factor) = factor {
                given.entry(DATA_CENTER.into()).or_insert(factor);
            }
            refuse_options(&given, DATA_CENTER, &short, keyspace)?;
        }
        "LocalStrategy" => {
            return Err(CqlError::invalid(
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.",
            ));
        }
        _ => {
            let package = if class.contains('.') { "" } else { STRATEGIES };
            return Err(CqlError::Config(format!(
                "Unable to find replication strategy class '{package}{class}'"
            )));
        }
    }
    for factor in given.values() {
        check_factor(factor)?;
    }
    given.insert("class".into(), format!("{STRATEGIES}{short}"));
    Ok(given)
}

/// The warning for a client that defined a keyspace.
// Source: Cassandra 5.0, SimpleStrategy.maybeWarnOnOptions and that of NetworkTopologyStrategy
pub fn replication_warning(keyspace: &Keyspace) -> Option<String> {
    let (name, place) = match keyspace.replication.get(FACTOR) {
        Some(_) => (FACTOR, String::new()),
        None => (DATA_CENTER, format!(" for datacenter {DATA_CENTER}")),
    };
    let factor = keyspace.replication.get(name)?;
    let number: u32 = factor.parse().ok()?;
    (number > 1).then(|| {
        format!(
            "Your replication factor {factor} for keyspace {} is higher than the number of nodes 1{place}",
            keyspace.name
        )
    })
}

fn refuse_options(
    given: &BTreeMap<String, String>,
    known: &str,
    class: &str,
    keyspace: &str,
) -> Result<(), CqlError> {
    match given.keys().find(|name| *name != known) {
        None => Ok(()),
        Some(name) => Err(CqlError::Config(format!(
            "Unrecognized strategy option {{{name}}} passed to {class} for keyspace {keyspace}"
        ))),
    }
}

fn check_factor(factor: &str) -> Result<(), CqlError> {
    match factor.parse::<i32>() {
        Ok(0..) => Ok(()),
        Ok(negative) => Err(CqlError::Config(format!(
            "Replication factor must be non-negative; found {negative}"
        ))),
        Err(_) if factor.contains('/') => {
            Err(CqlError::Config("Transient replication is disabled".into()))
        }
        Err(_) => Err(CqlError::Config(format!("For input string: \"{factor}\""))),
    }
}
