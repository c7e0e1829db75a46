//! CREATE, ALTER and DROP TYPE.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::change::{ChangeContext, ChangeResult, Event, Target, Verb};
use super::names::{Action, existing, guard, keyspace_of};
use super::table::Table;
use super::tables::{check_description, resolve};
use super::{Catalog, Keyspace};
use crate::error::CqlError;
use crate::parser::{QualifiedName, quoted_if_needed};
use crate::statements::{AlterType, CreateType, TypeChange};
use crate::types::{CqlType, UserType};

/// Maximum number of fields of a type: a value is one cell with all of them.
const FIELDS_MAX: usize = 1_000;

/// Maximum number of types of a keyspace: a change of one reads all.
const TYPES_MAX: usize = 10_000;

fn refuse<T>(reason: String) -> Result<T, CqlError> {
    Err(CqlError::Invalid(reason))
}

fn event(verb: Verb, keyspace: &str, name: &str) -> Event {
    Event { verb, keyspace: keyspace.to_owned(), target: Target::Type(name.to_owned()) }
}

pub(super) fn create(
    catalog: &Catalog,
    create: &CreateType,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_of(&create.name, cx)?;
    guard(keyspace_name, Action::Create)?;
    let name = &create.name.name;
    let keyspace = existing(catalog, keyspace_name)?;
    if keyspace.types.contains_key(name) {
        if create.if_not_exists {
            return Ok(None);
        }
        return refuse(format!("A user type with name '{name}' already exists"));
    }
    if create.fields.len() > FIELDS_MAX {
        return refuse(format!(
            "Types cannot have more than {FIELDS_MAX} columns, but {} provided for type {name}",
            create.fields.len()
        ));
    }
    if keyspace.types.len() >= TYPES_MAX {
        return refuse(format!("Cannot have more than {TYPES_MAX} types in a keyspace"));
    }
    let mut fields = Vec::new();
    for (nth, (field, type_name)) in create.fields.iter().enumerate() {
        if create.fields[..nth].iter().any(|(other, _)| other == field) {
            return refuse(format!("Duplicate field name '{field}' in type '{name}'"));
        }
        fields.push((field.clone(), checked_field(resolve(keyspace, type_name)?)?));
    }
    let user = UserType::new(keyspace_name.to_owned(), name.clone(), fields);
    check_size(&user)?;
    let mut keyspace = Keyspace::clone(keyspace);
    keyspace.types.insert(name.clone(), Arc::new(user));
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Created, keyspace_name, name))))
}

/// Rejects a type that has become too large, by its fields or by those of a type within it.
fn check_size(user: &UserType) -> Result<(), CqlError> {
    user.size().excess().map_or(Ok(()), |excess| {
        refuse(format!("Type {}.{} is too large: {excess}", user.keyspace, shown(user)))
    })
}

fn checked_field(of: CqlType) -> Result<CqlType, CqlError> {
    if of.is_counter() {
        return Err(CqlError::invalid("A user type cannot contain counters"));
    }
    if matches!(of, CqlType::UserDefined(_)) {
        return Err(CqlError::invalid("A user type cannot contain non-frozen UDTs"));
    }
    Ok(of)
}

pub(super) fn alter(catalog: &Catalog, alter: &AlterType, cx: &ChangeContext<'_>) -> ChangeResult {
    let keyspace_name = keyspace_of(&alter.name, cx)?;
    guard(keyspace_name, Action::AlterTable)?;
    let name = &alter.name.name;
    let found = catalog.keyspace(keyspace_name);
    let Some((keyspace, user)) = found.and_then(|k| Some((k, k.types.get(name)?))) else {
        if alter.if_exists {
            return Ok(None);
        }
        return refuse(format!("Type {keyspace_name}.{name} doesn't exist"));
    };
    let mut fields = user.fields.clone();
    match &alter.change {
        TypeChange::Add { if_not_exists, field, field_type } => {
            if user.fields.iter().any(|(known, _)| known == field) {
                if *if_not_exists {
                    return Ok(None);
                }
                return refuse(format!(
                    "Cannot add field {field} to type {}.{}: a field with name {field} already exists",
                    user.keyspace, user.name
                ));
            }
            let of = checked_field(resolve(keyspace, field_type)?)?;
            check_addition(keyspace, user, field, &of)?;
            fields.push((field.clone(), of));
        }
        TypeChange::Rename { if_exists, fields: renamed } => {
            rename(user, &mut fields, renamed, *if_exists)?;
        }
    }
    if fields == user.fields {
        return Ok(None);
    }
    let changed = UserType::new(user.keyspace.clone(), user.name.clone(), fields);
    let keyspace = with_type(keyspace, changed)?;
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Updated, keyspace_name, name))))
}

fn shown(user: &UserType) -> String {
    quoted_if_needed(&user.name)
}

/// Appending a field changes no value except in keys, which are compared by their bytes.
fn check_addition(
    keyspace: &Keyspace,
    user: &UserType,
    field: &str,
    of: &CqlType,
) -> Result<(), CqlError> {
    let dependents = dependents(keyspace, &user.name);
    if uses(of, &dependents) {
        return refuse(format!(
            "Cannot add new field {field} of type {of} to user type {} as it would create a \
             circular reference",
            shown(user)
        ));
    }
    let in_key = |table: &Table| {
        table.partition_key().iter().any(|column| uses(&column.column_type, &dependents))
    };
    let tables = keyspace.tables.values().filter(|table| in_key(table));
    let tables: Vec<String> = tables
        .map(|table| format!("{}.{}", keyspace.name, quoted_if_needed(&table.name)))
        .collect();
    if !tables.is_empty() {
        return refuse(format!(
            "Cannot add new field {field} of type {of} to user type {} as the type is being used \
             in partition key by the following tables: {}",
            shown(user),
            tables.join(", ")
        ));
    }
    if user.fields.len() >= FIELDS_MAX {
        return refuse(format!(
            "Types cannot have more than {FIELDS_MAX} columns, but {} provided for type {}",
            user.fields.len() + 1,
            user.name
        ));
    }
    Ok(())
}

fn rename(
    user: &UserType,
    fields: &mut [(String, CqlType)],
    renamed: &[(String, String)],
    if_exists: bool,
) -> Result<(), CqlError> {
    for (old, new) in renamed {
        match user.fields.iter().position(|(known, _)| known == old) {
            Some(at) => fields[at].0.clone_from(new),
            None if if_exists => {}
            // Cassandra's spelling.
            None => return refuse(format!("Unkown field {old} in user type {}", shown(user))),
        }
    }
    for (nth, (name, _)) in fields.iter().enumerate() {
        if fields[..nth].iter().any(|(other, _)| other == name) {
            return refuse(format!("Duplicate field name {name} in type {}", user.keyspace));
        }
    }
    Ok(())
}

pub(super) fn drop(
    catalog: &Catalog,
    name: &QualifiedName,
    if_exists: bool,
    cx: &ChangeContext<'_>,
) -> ChangeResult {
    let keyspace_name = keyspace_of(name, cx)?;
    guard(keyspace_name, Action::Drop)?;
    let name = &name.name;
    let found = catalog.keyspace(keyspace_name);
    let Some(keyspace) = found.filter(|keyspace| keyspace.types.contains_key(name)) else {
        if if_exists {
            return Ok(None);
        }
        return refuse(format!("Type '{keyspace_name}.{name}' doesn't exist"));
    };
    let dependents = dependents(keyspace, name);
    let types = dependents.iter().copied().filter(|other| other != name);
    refuse_used(keyspace_name, name, "user types", types)?;
    let uses = |table: &Table| table.columns.iter().any(|c| uses(&c.column_type, &dependents));
    let tables = keyspace.tables.values().filter(|table| uses(table));
    refuse_used(keyspace_name, name, "tables", tables.map(|table| table.name.as_str()))?;
    let mut without = Keyspace::clone(keyspace);
    without.types.remove(name);
    Ok(Some((catalog.with_keyspace(without), event(Verb::Dropped, keyspace_name, name))))
}

fn refuse_used<'a>(
    keyspace: &str,
    name: &str,
    what: &str,
    users: impl Iterator<Item = &'a str>,
) -> Result<(), CqlError> {
    let users: Vec<&str> = users.collect();
    if users.is_empty() {
        return Ok(());
    }
    refuse(format!(
        "Cannot drop user type '{keyspace}.{name}' as it is still used by {what} {}",
        users.join(", ")
    ))
}

/// Whether one of these user-defined types is part of the type, but not only inside another of
/// them.
fn uses(of: &CqlType, names: &BTreeSet<&str>) -> bool {
    match of {
        CqlType::Native(_) => false,
        CqlType::List(part) | CqlType::Set(part) | CqlType::Vector(part, _) => uses(part, names),
        CqlType::Map(key, value) => uses(key, names) || uses(value, names),
        CqlType::Tuple(parts) => parts.iter().any(|part| uses(part, names)),
        CqlType::UserDefined(user) => names.contains(user.name.as_str()),
        CqlType::Frozen(inner) => uses(inner, names),
    }
}

fn uses_any(user: &UserType, names: &BTreeSet<&str>) -> bool {
    user.fields.iter().any(|(_, field)| uses(field, names))
}

/// The user-defined type, and all types that contain it. Each iteration adds one level.
fn dependents<'k>(keyspace: &'k Keyspace, name: &'k str) -> BTreeSet<&'k str> {
    let mut found = BTreeSet::from([name]);
    loop {
        let is_new = |(other, user): &(&String, &Arc<UserType>)| {
            !found.contains(other.as_str()) && uses_any(user, &found)
        };
        let new: Vec<&str> =
            keyspace.types.iter().filter(is_new).map(|(other, _)| other.as_str()).collect();
        if new.is_empty() {
            return found;
        }
        found.extend(new);
    }
}

/// The keyspace with this type, and all references to it updated.
fn with_type(keyspace: &Keyspace, user: UserType) -> Result<Keyspace, CqlError> {
    check_size(&user)?;
    let name = user.name.clone();
    let dependents = dependents(keyspace, &name);
    let mut waiting: BTreeSet<&str> = dependents.clone();
    waiting.remove(name.as_str());
    let mut types = BTreeMap::from([(name.clone(), Arc::new(user))]);
    // Inner types first: types are never cyclic.
    while !waiting.is_empty() {
        let is_ready =
            |name: &&str| keyspace.types.get(*name).is_some_and(|known| !uses_any(known, &waiting));
        let ready: Vec<&str> = waiting.iter().copied().filter(is_ready).collect();
        for name in &ready {
            let Some(known) = keyspace.types.get(*name) else { continue };
            let fields = known.fields.iter();
            let fields = fields.map(|(name, field)| (name.clone(), replaced(field, &types)));
            let rebuilt =
                UserType::new(known.keyspace.clone(), known.name.clone(), fields.collect());
            check_size(&rebuilt)?;
            types.insert(rebuilt.name.clone(), Arc::new(rebuilt));
        }
        if ready.is_empty() {
            return refuse(format!("User types of keyspace {} are cyclic", keyspace.name));
        }
        for name in ready {
            waiting.remove(name);
        }
    }
    let mut changed = keyspace.clone();
    for table in keyspace.tables.values() {
        if !table.columns.iter().any(|column| uses(&column.column_type, &dependents)) {
            continue;
        }
        let mut table = Table::clone(table);
        for column in &mut table.columns {
            column.column_type = replaced(&column.column_type, &types);
        }
        check_description(&table)?;
        changed.tables.insert(table.name.clone(), Arc::new(table));
    }
    changed.types.extend(types);
    Ok(changed)
}

/// The type with user-defined types replaced by their new form.
fn replaced(of: &CqlType, types: &BTreeMap<String, Arc<UserType>>) -> CqlType {
    let boxed = |of: &CqlType| Box::new(replaced(of, types));
    match of {
        CqlType::Native(native) => CqlType::Native(*native),
        CqlType::List(element) => CqlType::List(boxed(element)),
        CqlType::Set(element) => CqlType::Set(boxed(element)),
        CqlType::Map(key, value) => CqlType::Map(boxed(key), boxed(value)),
        CqlType::Tuple(parts) => {
            CqlType::Tuple(parts.iter().map(|part| replaced(part, types)).collect())
        }
        CqlType::Vector(element, dimensions) => CqlType::Vector(boxed(element), *dimensions),
        CqlType::UserDefined(user) => {
            CqlType::UserDefined(Arc::clone(types.get(&user.name).unwrap_or(user)))
        }
        CqlType::Frozen(inner) => CqlType::Frozen(boxed(inner)),
    }
}
