//! Sizes of types: types refer to others by name, so a few short statements can describe a type
//! that is too large to send to a client or to process on a stack.

use super::{CqlType, UserType};
use crate::parser::TYPE_DEPTH_MAX;
use crate::type_name::{CLASS_PACKAGE, Native};

/// Maximum nesting of types, with all names resolved.
///
/// Equal to the nesting that this program decodes in a description; twice as many levels of text
/// (`frozen<list<..>>`) can be parsed when the schema is read again.
pub(crate) const TYPE_LEVELS_MAX: usize = wire::cql::TYPE_DEPTH_MAX;
const _: () = assert!(2 * TYPE_LEVELS_MAX <= TYPE_DEPTH_MAX);

/// Maximum number of types that a type consists of, with all names resolved: 16 types with the
/// maximum number of fields.
pub(crate) const TYPE_PARTS_MAX: usize = 16 << 10;

/// Maximum length of the description of a type or of all columns of a table, in bytes of the
/// protocol: a response contains it before its rows.
pub(crate) const DESCRIPTION_BYTES_MAX: usize = 1 << 20;

/// Maximum length of a class name: the protocol describes a vector by a string of 16-bit length.
pub(crate) const CLASS_NAME_BYTES_MAX: usize = u16::MAX as usize;

/// Size of a type. All numbers are upper bounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(crate) struct TypeSize {
    levels: usize,
    parts: usize,
    description_bytes: usize,
    /// Length of the class name, including the names of all classes inside.
    class_name_bytes: usize,
    /// Length of the longest class name of a vector inside; 0 without a vector.
    vector_class_bytes: usize,
}

/// Package, name and brackets of a class, and the dimensions of a vector.
const CLASS_BYTES: usize = CLASS_PACKAGE.len() + 64;

/// Code and length fields of a type in a description.
const OPTION_BYTES: usize = 8;

impl TypeSize {
    fn of_native(native: Native) -> TypeSize {
        let class_name_bytes = CLASS_PACKAGE.len() + native.class().len();
        TypeSize {
            levels: 1,
            parts: 1,
            // Versions without a code for a type describe it by its class.
            description_bytes: OPTION_BYTES + class_name_bytes,
            class_name_bytes,
            vector_class_bytes: 0,
        }
    }

    /// The size of a type with these parts; `name_bytes`: length of all names in it.
    fn around(parts: impl Iterator<Item = TypeSize>, name_bytes: usize) -> TypeSize {
        let own = TypeSize {
            levels: 0,
            parts: 1,
            description_bytes: OPTION_BYTES + name_bytes,
            // Names are hexadecimal there.
            class_name_bytes: CLASS_BYTES + 2 * name_bytes,
            vector_class_bytes: 0,
        };
        let mut size = parts.fold(own, |sum, part| TypeSize {
            levels: sum.levels.max(part.levels),
            parts: sum.parts.saturating_add(part.parts),
            description_bytes: sum.description_bytes.saturating_add(part.description_bytes),
            class_name_bytes: sum.class_name_bytes.saturating_add(part.class_name_bytes),
            vector_class_bytes: sum.vector_class_bytes.max(part.vector_class_bytes),
        });
        size.levels += 1;
        size
    }

    pub(crate) fn of(cql_type: &CqlType) -> TypeSize {
        let around =
            |parts: &[&CqlType]| TypeSize::around(parts.iter().map(|part| TypeSize::of(part)), 0);
        match cql_type {
            CqlType::Native(native) => TypeSize::of_native(*native),
            CqlType::List(part) | CqlType::Set(part) => around(&[part]),
            CqlType::Map(key, value) => around(&[key, value]),
            CqlType::Tuple(parts) => TypeSize::around(parts.iter().map(TypeSize::of), 0),
            CqlType::UserDefined(user) => user.size(),
            CqlType::Vector(element, _) => {
                let size = around(&[element]);
                let description_bytes = size.class_name_bytes.saturating_add(OPTION_BYTES);
                let vector_class_bytes = size.class_name_bytes;
                TypeSize { description_bytes, vector_class_bytes, ..size }
            }
            // It is not a separate level, but its class has a name.
            CqlType::Frozen(inner) => {
                let size = TypeSize::of(inner);
                let class_name_bytes = size.class_name_bytes.saturating_add(CLASS_BYTES);
                TypeSize { class_name_bytes, ..size }
            }
        }
    }

    /// The size of a user-defined type with these fields.
    pub(super) fn of_fields(keyspace: &str, name: &str, fields: &[(String, CqlType)]) -> TypeSize {
        // Each name follows its length.
        let names = fields.iter().map(|(field, _)| 2 + field.len());
        let name_bytes = keyspace.len() + name.len() + names.sum::<usize>();
        TypeSize::around(fields.iter().map(|(_, field)| TypeSize::of(field)), name_bytes)
    }

    pub(crate) fn description_bytes(self) -> usize {
        self.description_bytes
    }

    /// The exceeded limit, if any.
    pub(crate) fn excess(self) -> Option<String> {
        [
            (self.levels, TYPE_LEVELS_MAX, "levels"),
            (self.parts, TYPE_PARTS_MAX, "types within it"),
            (self.description_bytes, DESCRIPTION_BYTES_MAX, "bytes of its description"),
            (self.vector_class_bytes, CLASS_NAME_BYTES_MAX, "bytes of the class name of a vector"),
        ]
        .into_iter()
        .find(|(found, max, _)| found > max)
        .map(|(found, max, what)| format!("{found} {what}, at most {max} are possible"))
    }
}

/// The type to use instead of one that is too large: values, or parts of a collection, as their
/// bytes. Only for schemas stored by a version without limits.
pub(crate) fn reduced(of: CqlType) -> CqlType {
    const BLOB: CqlType = CqlType::Native(Native::Blob);
    if TypeSize::of(&of).excess().is_none() {
        return of;
    }
    match of {
        CqlType::List(_) => CqlType::List(Box::new(BLOB)),
        CqlType::Set(_) => CqlType::Set(Box::new(BLOB)),
        CqlType::Map(..) => CqlType::Map(Box::new(BLOB), Box::new(BLOB)),
        _ => BLOB,
    }
}

/// The user-defined type with the fields that exceed the limits replaced.
pub(crate) fn reduced_user(user: UserType) -> UserType {
    if user.size().excess().is_none() {
        return user;
    }
    let is_native = |of: &CqlType| matches!(of, CqlType::Native(_));
    let fields = user
        .fields
        .into_iter()
        .map(|(name, of)| (name, if is_native(&of) { of } else { CqlType::Native(Native::Blob) }));
    UserType::new(user.keyspace, user.name, fields.collect())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use wire::cql::{ColumnType, Version};

    use super::*;

    fn list(of: CqlType) -> CqlType {
        CqlType::List(Box::new(of))
    }

    fn user(name: &str, fields: usize, of: &CqlType) -> CqlType {
        let fields = (0..fields).map(|nth| (format!("field_{nth}"), of.clone())).collect();
        CqlType::UserDefined(Arc::new(UserType::new("k".into(), name.into(), fields)))
    }

    /// Checks that the numbers are not below the encoded sizes.
    fn check(of: &CqlType) {
        let size = TypeSize::of(of);
        assert_eq!(size.excess(), None);
        for version in [Version::V3, Version::V4, Version::V5] {
            let mut out = Vec::new();
            let wire = of.wire();
            wire.encode(version, &mut out).unwrap();
            assert!(out.len() <= size.description_bytes, "{of}: {} {size:?}", out.len());
            if let ColumnType::Custom(class) = wire {
                assert!(class.len() <= size.vector_class_bytes, "{of}: {} {size:?}", class.len());
            }
        }
    }

    #[test]
    fn computed_sizes_are_upper_bounds() {
        for of in [CqlType::INT, CqlType::Native(Native::Duration), CqlType::TEXT] {
            check(&of);
            check(&list(of.clone().frozen()));
            let tuple = CqlType::Tuple(vec![of.clone(), list(of.clone()).frozen()]);
            check(&tuple);
            let nested = user("inner", 3, &user("u", 40, &tuple).frozen());
            check(&nested);
            check(&CqlType::Vector(Box::new(nested.frozen()), 8192));
            check(&CqlType::Map(Box::new(of.clone()), Box::new(user("x", 1, &of).frozen())));
        }
    }

    #[test]
    fn types_that_grow_by_their_names_are_too_large() {
        let mut of = CqlType::INT;
        for nth in 0..TYPE_LEVELS_MAX - 1 {
            of = user(&format!("t{nth}"), 1, &of).frozen();
        }
        check(&of);
        let deeper = list(of);
        assert!(TypeSize::of(&deeper).excess().unwrap().contains("levels"));
        let mut of = CqlType::INT;
        for nth in 0..11 {
            of = user(&format!("t{nth}"), 4, &of).frozen();
        }
        assert!(TypeSize::of(&of).excess().unwrap().contains("types within it"));
        // The counts saturate, so that they cannot overflow.
        for nth in 0..40 {
            of = user(&format!("s{nth}"), 4, &of).frozen();
        }
        assert!(TypeSize::of(&of).excess().is_some());
        let wide = CqlType::Tuple(vec![CqlType::INT; 70_000]);
        assert!(TypeSize::of(&wide).excess().is_some());
        let field = |nth: usize| (format!("{}{nth}", "x".repeat(100)), CqlType::INT);
        let named = UserType::new("k".into(), "u".into(), (0..600).map(field).collect());
        let named = CqlType::UserDefined(Arc::new(named));
        check(&named);
        let vector = CqlType::Vector(Box::new(named.frozen()), 2);
        assert!(TypeSize::of(&vector).excess().unwrap().contains("class name"));
    }

    #[test]
    fn stored_types_that_are_too_large_become_blobs() {
        let wide = CqlType::Tuple(vec![CqlType::INT; 70_000]);
        let blob = CqlType::Native(Native::Blob);
        assert_eq!(reduced(wide.clone()), blob);
        assert_eq!(reduced(list(wide.clone())), list(blob.clone()));
        assert_eq!(reduced(list(CqlType::INT)), list(CqlType::INT));
        let fields = vec![("a".to_owned(), CqlType::INT), ("b".to_owned(), wide)];
        let reduced = reduced_user(UserType::new("k".into(), "u".into(), fields));
        assert_eq!(reduced.fields[0].1, CqlType::INT);
        assert_eq!(reduced.fields[1].1, blob);
        assert_eq!(reduced.size().excess(), None);
    }
}
