//! Objects of permissions, with resolved names.

use std::fmt;

use super::Roles;
use super::permissions::Permissions;
use crate::error::CqlError;
use crate::parser::QualifiedName;
use crate::schema::Catalog;
use crate::statements::{self, Permission};
use crate::type_name::TypeName;
use crate::types::CqlType;

/// An object of permissions. A permission on one applies to all that it contains.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// All keyspaces.
    Data,
    Keyspace(String),
    /// All tables of a keyspace, including future ones.
    Tables(String),
    Table {
        keyspace: String,
        name: String,
    },
    Roles,
    Role(String),
    Functions,
    FunctionsOf(String),
    Mbeans,
    Mbean(String),
    /// Functions cannot be created here: it only occurs in messages.
    Function {
        keyspace: String,
        name: String,
        arguments: Vec<String>,
    },
}

// Source: Cassandra 5.0, auth.DataResource
const DATA: Permissions = Permissions::of(&[
    Permission::Create,
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Unmask,
    Permission::SelectMasked,
]);
const TABLE: Permissions = Permissions::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Select,
    Permission::Modify,
    Permission::Authorize,
    Permission::Unmask,
    Permission::SelectMasked,
]);
// Source: Cassandra 5.0, auth.RoleResource
const ROLES: Permissions = Permissions::of(&[
    Permission::Create,
    Permission::Alter,
    Permission::Drop,
    Permission::Authorize,
    Permission::Describe,
]);
const ROLE: Permissions = Permissions::of(&[
    Permission::Alter,
    Permission::Drop,
    Permission::Authorize,
    Permission::Describe,
]);
// Source: Cassandra 5.0, auth.FunctionResource
const FUNCTIONS: Permissions = Permissions::of(&[
    Permission::Create,
    Permission::Alter,
    Permission::Drop,
    Permission::Authorize,
    Permission::Execute,
]);
// Source: Cassandra 5.0, auth.JMXResource
const MBEANS: Permissions = Permissions::of(&[
    Permission::Authorize,
    Permission::Describe,
    Permission::Execute,
    Permission::Modify,
    Permission::Select,
]);

impl Resource {
    /// Resolves the resource of a statement. `keyspace`: for unqualified tables.
    // Source: Cassandra 5.0, AuthorizationStatement.maybeCorrectResource
    pub(crate) fn resolve(
        written: &statements::Resource,
        keyspace: Option<&str>,
    ) -> Result<Resource, CqlError> {
        Ok(match written {
            statements::Resource::AllKeyspaces => Resource::Data,
            statements::Resource::Keyspace(name) => Resource::Keyspace(name.clone()),
            statements::Resource::AllTables(keyspace) => Resource::Tables(keyspace.clone()),
            statements::Resource::Table(name) => {
                let keyspace = name.keyspace.as_deref().or(keyspace).ok_or_else(|| {
                    CqlError::invalid(
                        "No keyspace has been specified. USE a keyspace, or explicitly specify \
                         keyspace.tablename",
                    )
                })?;
                Resource::Table { keyspace: keyspace.to_owned(), name: name.name.clone() }
            }
            statements::Resource::AllRoles => Resource::Roles,
            statements::Resource::Role(name) => Resource::Role(name.clone()),
            statements::Resource::AllFunctions => Resource::Functions,
            statements::Resource::FunctionsOf(keyspace) => Resource::FunctionsOf(keyspace.clone()),
            statements::Resource::Function(name, arguments) => function(name, arguments)?,
            statements::Resource::AllMbeans => Resource::Mbeans,
            statements::Resource::Mbean(name) => Resource::Mbean(name.clone()),
        })
    }

    /// The resource that contains it.
    pub(crate) fn parent(&self) -> Option<Resource> {
        Some(match self {
            Resource::Data | Resource::Roles | Resource::Functions | Resource::Mbeans => {
                return None;
            }
            Resource::Keyspace(_) => Resource::Data,
            Resource::Tables(keyspace) => Resource::Keyspace(keyspace.clone()),
            Resource::Table { keyspace, .. } => Resource::Tables(keyspace.clone()),
            Resource::Role(_) => Resource::Roles,
            Resource::FunctionsOf(_) => Resource::Functions,
            Resource::Function { keyspace, .. } => Resource::FunctionsOf(keyspace.clone()),
            Resource::Mbean(_) => Resource::Mbeans,
        })
    }

    /// The resource itself, and all that contain it.
    pub(crate) fn chain(&self) -> impl Iterator<Item = Resource> {
        std::iter::successors(Some(self.clone()), Resource::parent)
    }

    /// The permissions that may be granted on it.
    pub(crate) fn applicable(&self) -> Permissions {
        match self {
            Resource::Data | Resource::Keyspace(_) | Resource::Tables(_) => DATA,
            Resource::Table { .. } => TABLE,
            Resource::Roles => ROLES,
            Resource::Role(_) => ROLE,
            Resource::Functions | Resource::FunctionsOf(_) => FUNCTIONS,
            Resource::Function { .. } => FUNCTIONS - Permissions::of(&[Permission::Create]),
            Resource::Mbeans | Resource::Mbean(_) => MBEANS,
        }
    }

    /// Cassandra's name of its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Resource::Data
            | Resource::Keyspace(_)
            | Resource::Tables(_)
            | Resource::Table { .. } => "DataResource",
            Resource::Roles | Resource::Role(_) => "RoleResource",
            Resource::Functions | Resource::FunctionsOf(_) | Resource::Function { .. } => {
                "FunctionResource"
            }
            Resource::Mbeans | Resource::Mbean(_) => "JMXResource",
        }
    }

    pub(crate) fn exists(&self, catalog: &Catalog, roles: &Roles) -> bool {
        match self {
            // There are no mbeans; granting permissions on them is accepted for scripts.
            Resource::Data
            | Resource::Roles
            | Resource::Functions
            | Resource::Mbeans
            | Resource::Mbean(_) => true,
            Resource::Keyspace(keyspace)
            | Resource::Tables(keyspace)
            | Resource::FunctionsOf(keyspace) => catalog.keyspace(keyspace).is_some(),
            Resource::Table { keyspace, name } => catalog.table(keyspace, name).is_some(),
            Resource::Role(name) => roles.role(name).is_some(),
            Resource::Function { .. } => false,
        }
    }

    /// The keyspace of a data resource.
    pub(crate) fn data_keyspace(&self) -> Option<&str> {
        match self {
            Resource::Keyspace(keyspace)
            | Resource::Tables(keyspace)
            | Resource::Table { keyspace, .. } => Some(keyspace),
            _ => None,
        }
    }

    /// Its name in `system_auth`.
    pub(crate) fn name(&self) -> String {
        match self {
            Resource::Data => "data".to_owned(),
            Resource::Keyspace(keyspace) => format!("data/{keyspace}"),
            Resource::Tables(keyspace) => format!("data/{keyspace}/*"),
            Resource::Table { keyspace, name } => format!("data/{keyspace}/{name}"),
            Resource::Roles => "roles".to_owned(),
            Resource::Role(name) => format!("roles/{name}"),
            Resource::Functions => "functions".to_owned(),
            Resource::FunctionsOf(keyspace) => format!("functions/{keyspace}"),
            Resource::Function { keyspace, name, arguments } => {
                format!("functions/{keyspace}/{name}[{}]", arguments.join("^"))
            }
            Resource::Mbeans => "mbean".to_owned(),
            Resource::Mbean(name) => format!("mbean/{name}"),
        }
    }

    /// The resource of this name; functions are not supported, since no permission can be granted
    /// on them.
    pub(crate) fn from_name(name: &str) -> Option<Resource> {
        let (root, rest) = match name.split_once('/') {
            None => (name, None),
            Some((root, rest)) => (root, Some(rest)),
        };
        Some(match (root, rest) {
            ("data", None) => Resource::Data,
            ("data", Some(rest)) => match rest.split_once('/') {
                None => Resource::Keyspace(rest.to_owned()),
                Some((keyspace, "*")) => Resource::Tables(keyspace.to_owned()),
                Some((keyspace, name)) => {
                    Resource::Table { keyspace: keyspace.to_owned(), name: name.to_owned() }
                }
            },
            ("roles", None) => Resource::Roles,
            ("roles", Some(name)) => Resource::Role(name.to_owned()),
            ("functions", None) => Resource::Functions,
            ("functions", Some(keyspace)) if !keyspace.contains('/') => {
                Resource::FunctionsOf(keyspace.to_owned())
            }
            ("mbean", None) => Resource::Mbeans,
            ("mbean", Some(name)) => Resource::Mbean(name.to_owned()),
            _ => return None,
        })
    }
}

// Source: Cassandra 5.0, FunctionResource.functionFromCql
fn function(name: &QualifiedName, arguments: &[TypeName]) -> Result<Resource, CqlError> {
    let keyspace = name.keyspace.clone().ok_or_else(|| {
        CqlError::invalid("In this context function name must be explictly qualified by a keyspace")
    })?;
    let arguments = arguments.iter().map(|argument| {
        let of = CqlType::resolve(argument, &keyspace, &|_| None);
        of.map(|of| of.to_string()).map_err(|error| CqlError::invalid(error.to_string()))
    });
    let arguments = arguments.collect::<Result<_, _>>()?;
    Ok(Resource::Function { keyspace, name: name.name.clone(), arguments })
}

/// The form in messages.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Data => write!(f, "<all keyspaces>"),
            Resource::Keyspace(keyspace) => write!(f, "<keyspace {keyspace}>"),
            Resource::Tables(keyspace) => write!(f, "<all tables in {keyspace}>"),
            Resource::Table { keyspace, name } => write!(f, "<table {keyspace}.{name}>"),
            Resource::Roles => write!(f, "<all roles>"),
            Resource::Role(name) => write!(f, "<role {name}>"),
            Resource::Functions => write!(f, "<all functions>"),
            Resource::FunctionsOf(keyspace) => write!(f, "<all functions in {keyspace}>"),
            Resource::Function { keyspace, name, arguments } => {
                write!(f, "<function {keyspace}.{name}({})>", arguments.join(", "))
            }
            Resource::Mbeans => write!(f, "<all mbeans>"),
            Resource::Mbean(name) => write!(f, "<mbean {name}>"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for (name, shown) in [
            ("data", "<all keyspaces>"),
            ("data/k", "<keyspace k>"),
            ("data/k/*", "<all tables in k>"),
            ("data/k/t", "<table k.t>"),
            ("roles", "<all roles>"),
            ("roles/a/b", "<role a/b>"),
            ("functions", "<all functions>"),
            ("functions/k", "<all functions in k>"),
            ("mbean", "<all mbeans>"),
            ("mbean/a:b=c/d", "<mbean a:b=c/d>"),
        ] {
            let resource = Resource::from_name(name).unwrap();
            assert_eq!((resource.name().as_str(), resource.to_string().as_str()), (name, shown));
        }
        assert_eq!(Resource::from_name("functions/k/f[]"), None);
        assert_eq!(Resource::from_name("x"), None);
    }

    #[test]
    fn permissions_on_a_whole_apply_to_its_parts() {
        let chain = |name: &str| {
            let resource = Resource::from_name(name).unwrap();
            resource.chain().map(|one| one.name()).collect::<Vec<_>>()
        };
        assert_eq!(chain("data/k/t"), ["data/k/t", "data/k/*", "data/k", "data"]);
        assert_eq!(chain("roles/r"), ["roles/r", "roles"]);
        assert_eq!(chain("functions"), ["functions"]);
    }
}
