//! CREATE, ALTER and DROP TYPE.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::change::{ChangeContext, Event, Outcome, Target, Verb};
use super::names::{Deed, existing, guard, keyspace_of};
use super::table::Table;
use super::tables::resolve;
use super::{Catalog, Keyspace};
use crate::cql::error::CqlError;
use crate::cql::parser::{QualifiedName, quoted_if_needed};
use crate::cql::statements::{AlterType, CreateType, TypeChange};
use crate::cql::types::{CqlType, UserType};

/// Most fields of a type: a value is one cell with all of them.
const FIELDS_MAX: usize = 1_000;

/// Most types of a keyspace: a change of one looks at all.
const TYPES_MAX: usize = 10_000;

fn refuse<T>(reason: String) -> Result<T, CqlError> {
    Err(CqlError::Invalid(reason))
}

fn event(verb: Verb, keyspace: &str, name: &str) -> Event {
    Event { verb, keyspace: keyspace.to_owned(), target: Target::Type(name.to_owned()) }
}

pub(super) fn create(catalog: &Catalog, create: &CreateType, cx: &ChangeContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&create.name, cx)?;
    guard(keyspace_name, Deed::Create)?;
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
    let user = UserType { keyspace: keyspace_name.to_owned(), name: name.clone(), fields };
    let mut keyspace = Keyspace::clone(keyspace);
    keyspace.types.insert(name.clone(), Arc::new(user));
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Created, keyspace_name, name))))
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

pub(super) fn alter(catalog: &Catalog, alter: &AlterType, cx: &ChangeContext<'_>) -> Outcome {
    let keyspace_name = keyspace_of(&alter.name, cx)?;
    guard(keyspace_name, Deed::AlterTable)?;
    let name = &alter.name.name;
    let found = catalog.keyspace(keyspace_name);
    let Some((keyspace, user)) = found.and_then(|k| Some((k, k.types.get(name)?))) else {
        if alter.if_exists {
            return Ok(None);
        }
        return refuse(format!("Type {keyspace_name}.{name} doesn't exist"));
    };
    let mut changed = UserType::clone(user);
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
            changed.fields.push((field.clone(), of));
        }
        TypeChange::Rename { if_exists, fields } => rename(&mut changed, fields, *if_exists)?,
    }
    if changed == **user {
        return Ok(None);
    }
    let keyspace = with_type(keyspace, &changed);
    Ok(Some((catalog.with_keyspace(keyspace), event(Verb::Updated, keyspace_name, name))))
}

fn shown(user: &UserType) -> String {
    quoted_if_needed(&user.name)
}

/// A field behind the others changes no value but those in keys: their bytes are whose they are.
fn check_addition(
    keyspace: &Keyspace,
    user: &UserType,
    field: &str,
    of: &CqlType,
) -> Result<(), CqlError> {
    if refers_to(of, &user.name) {
        return refuse(format!(
            "Cannot add new field {field} of type {of} to user type {} as it would create a \
             circular reference",
            shown(user)
        ));
    }
    let in_key = |table: &Table| {
        table.partition_key().iter().any(|column| refers_to(&column.column_type, &user.name))
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
    user: &mut UserType,
    fields: &[(String, String)],
    if_exists: bool,
) -> Result<(), CqlError> {
    let before = user.fields.clone();
    for (old, new) in fields {
        match before.iter().position(|(known, _)| known == old) {
            Some(at) => user.fields[at].0.clone_from(new),
            None if if_exists => {}
            // Spelled so.
            None => return refuse(format!("Unkown field {old} in user type {}", shown(user))),
        }
    }
    for (nth, (name, _)) in user.fields.iter().enumerate() {
        if user.fields[..nth].iter().any(|(other, _)| other == name) {
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
) -> Outcome {
    let keyspace_name = keyspace_of(name, cx)?;
    guard(keyspace_name, Deed::Drop)?;
    let name = &name.name;
    let found = catalog.keyspace(keyspace_name);
    let Some(keyspace) = found.filter(|keyspace| keyspace.types.contains_key(name)) else {
        if if_exists {
            return Ok(None);
        }
        return refuse(format!("Type '{keyspace_name}.{name}' doesn't exist"));
    };
    let types = keyspace.types.values();
    let types = types.filter(|user| user.fields.iter().any(|(_, field)| refers_to(field, name)));
    refuse_used(keyspace_name, name, "user types", types.map(|user| user.name.as_str()))?;
    let uses = |table: &Table| table.columns.iter().any(|c| refers_to(&c.column_type, name));
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

/// Whether a value of the type has a value of the user-defined type within.
fn refers_to(of: &CqlType, name: &str) -> bool {
    match of {
        CqlType::Native(_) => false,
        CqlType::List(part) | CqlType::Set(part) | CqlType::Vector(part, _) => {
            refers_to(part, name)
        }
        CqlType::Map(key, value) => refers_to(key, name) || refers_to(value, name),
        CqlType::Tuple(parts) => parts.iter().any(|part| refers_to(part, name)),
        CqlType::UserDefined(user) => {
            user.name == name || user.fields.iter().any(|(_, field)| refers_to(field, name))
        }
        CqlType::Frozen(inner) => refers_to(inner, name),
    }
}

/// The keyspace with this type, and whatever refers to it with its new form.
fn with_type(keyspace: &Keyspace, user: &UserType) -> Keyspace {
    let mut changed = keyspace.clone();
    let mut types = BTreeMap::from([(user.name.clone(), Arc::new(user.clone()))]);
    // Types within types: each round reaches one level further, and a type is in no circle.
    loop {
        let mut is_done = true;
        for (name, known) in &keyspace.types {
            let refers =
                known.fields.iter().any(|(_, field)| types.keys().any(|t| refers_to(field, t)));
            if *name == user.name || !refers {
                continue;
            }
            let fields = known.fields.iter();
            let fields = fields.map(|(name, field)| (name.clone(), replaced(field, &types)));
            let rebuilt = UserType { fields: fields.collect(), ..UserType::clone(known) };
            if types.get(name).is_none_or(|before| **before != rebuilt) {
                types.insert(name.clone(), Arc::new(rebuilt));
                is_done = false;
            }
        }
        if is_done {
            break;
        }
    }
    for table in keyspace.tables.values() {
        let refers = |of: &CqlType| types.keys().any(|name| refers_to(of, name));
        if !table.columns.iter().any(|column| refers(&column.column_type)) {
            continue;
        }
        let mut table = Table::clone(table);
        for column in &mut table.columns {
            column.column_type = replaced(&column.column_type, &types);
        }
        changed.tables.insert(table.name.clone(), Arc::new(table));
    }
    changed.types.extend(types);
    changed
}

/// The type with user-defined ones in their new form.
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
