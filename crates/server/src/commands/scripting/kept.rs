//! Functions of Lua that Rust keeps: compiled scripts, and the functions of libraries.
//!
//! `mlua` gives each value that Rust holds a slot of one stack of Lua, which has about 7,990 of
//! them. There are far more functions, so they are elements of one table, and Rust holds only their
//! indexes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use mlua::{Function, Lua, Table, WeakLua};

/// The functions that one interpreter keeps.
pub(super) struct KeptFunctions {
    lua: WeakLua,
    pub(super) table: Table,
    /// Length of the table, removed elements included.
    len: Cell<i32>,
    /// Indexes of removed elements.
    free: RefCell<Vec<i32>>,
}

/// A function in the table. It is removed when this is dropped.
#[derive(Debug)]
pub(super) struct KeptFunction {
    functions: Rc<KeptFunctions>,
    /// Counts from 1, as in Lua.
    pub(super) index: i32,
}

impl std::fmt::Debug for KeptFunctions {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("KeptFunctions").field("len", &self.len).finish_non_exhaustive()
    }
}

impl KeptFunctions {
    pub(super) fn new(lua: &Lua) -> mlua::Result<Rc<KeptFunctions>> {
        let (table, free) = (lua.create_table()?, RefCell::default());
        Ok(Rc::new(KeptFunctions { lua: lua.weak(), table, len: Cell::new(0), free }))
    }

    pub(super) fn keep(self: &Rc<Self>, function: &Function) -> mlua::Result<KeptFunction> {
        let removed = self.free.borrow().last().copied();
        let index = removed.unwrap_or(self.len.get() + 1);
        self.table.raw_set(index, function)?;
        if removed.is_some() {
            self.free.borrow_mut().pop();
        } else {
            self.len.set(index);
        }
        Ok(KeptFunction { functions: Rc::clone(self), index })
    }
}

impl KeptFunction {
    #[cfg(test)]
    pub(super) fn function(&self) -> Function {
        self.functions.table.raw_get(self.index).unwrap()
    }
}

impl Drop for KeptFunction {
    fn drop(&mut self) {
        let functions = &self.functions;
        // The interpreter may be dropped first, with the table.
        let Some(_lua) = functions.lua.try_upgrade() else { return };
        let removed = functions.table.raw_set(self.index, mlua::Nil);
        debug_assert!(removed.is_ok(), "an existing element needs no memory");
        functions.free.borrow_mut().push(self.index);
    }
}
