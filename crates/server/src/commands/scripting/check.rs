//! One script without a server: for the test of all decoders.

use base::memory::Tracker;
use base::units::Limit;
use mlua::{Function, Value};

use super::interpreter::Interpreter;

/// Runs a script with one argument, in an interpreter with this much memory. Returns its result as
/// text, or its error.
pub fn run(script: &str, argument: &[u8], bytes_max: usize) -> Result<String, String> {
    let run = || -> mlua::Result<String> {
        let interpreter = Interpreter::new(Tracker::root("check", Limit::None, None))?;
        let code = interpreter.compile(script.as_bytes(), "@check")?;
        let function = interpreter.kept.table.raw_get::<Function>(code.index)?;
        let argument = interpreter.lua.create_string(argument)?;
        interpreter.lua.set_memory_limit(interpreter.lua.used_memory() + bytes_max)?;
        let result = function.call::<Value>(argument)?.to_string();
        interpreter.lua.set_memory_limit(0)?;
        result
    };
    run().map_err(|error| error.to_string())
}
