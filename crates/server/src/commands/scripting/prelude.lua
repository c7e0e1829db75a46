-- What scripts see: the globals of Redis, read-only, and the functions that run scripts.
--
-- Lua 5.1 has no read-only tables, so scripts get empty tables that refuse assignments and find
-- everything in the real one. Each run has its own environment, so no script leaves anything to
-- the next one. Functions here use only locals: a script cannot change what they call.
--
-- Functions of `native` raise errors of Rust; `visible` makes them strings and tables.
-- Source: Redis 7.2 `script_lua.c` and `eval.c`, for names, results and texts of errors.

local native, std = ...
local error, getmetatable, setmetatable = std.error, std.getmetatable, std.setmetatable
local setfenv, rawequal = std.setfenv, std.rawequal
local rawget, rawset, next = std.rawget, std.rawset, std.next
local pcall, xpcall, select = std.pcall, std.xpcall, std.select
local tostring, type, pairs = std.tostring, std.type, std.pairs
local loadstring, collectgarbage = std.loadstring, std.collectgarbage
local byte, find, match, sub = std.string.byte, std.string.find, std.string.match, std.string.sub
local rep = std.string.rep
local concat, insert, sort = std.table.concat, std.table.insert, std.table.sort
local tonumber, unpack = std.tonumber, std.unpack
local READONLY = "Attempt to modify a readonly table"

-- Read-only tables ------------------------------------------------------------------------------

local function refuse() error(READONLY, 2) end

-- The metatable of every read-only table; scripts see `false` instead.
local function readonly(fields)
  return setmetatable({}, {__index = fields, __newindex = refuse, __metatable = false})
end

local function is_readonly(value)
  return type(value) == "table" and getmetatable(value) == false
end

-- `redis` ----------------------------------------------------------------------------------------

local function wrong_arguments() return {err = "ERR wrong number or type of arguments"} end

local redis = {
  call = native.call,
  pcall = native.pcall,
  error_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then return wrong_arguments() end
    if sub(text, 1, 1) == "-" then text = sub(text, 2) end
    if not find(text, " ", 1, true) then text = "ERR " .. text end
    return {err = match(text, "^(.-)[\r\n]*$")}
  end,
  status_reply = function(...)
    local text = ...
    if select("#", ...) ~= 1 or type(text) ~= "string" then return wrong_arguments() end
    return {ok = text}
  end,
  sha1hex = native.sha1hex,
  log = native.log,
  setresp = native.setresp,
  set_repl = native.set_repl,
  acl_check_cmd = native.acl_check_cmd,
  replicate_commands = function() return true end,
  breakpoint = function() return false end,
  debug = function() end,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REPL_NONE = 0, REPL_AOF = 1, REPL_SLAVE = 2, REPL_REPLICA = 2, REPL_ALL = 3,
  REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
}

-- Whether a table is one of the above, or the environment of scripts.
local is_protected

-- Libraries --------------------------------------------------------------------------------------

local string_library, math_library, table_library = {}, {}, {}
for name, value in pairs(std.string) do string_library[name] = value end
for name, value in pairs(std.math) do math_library[name] = value end
for name, value in pairs(std.table) do table_library[name] = value end
string_library.dump = nil -- bytecode can corrupt the interpreter

-- Raises the error of a function of C about its argument, at the call of its replacement.
local function bad_argument(place, name, problem, level)
  error("bad argument #" .. place .. " to '" .. name .. "' (" .. problem .. ")", level or 3)
end

local function found(value) return value == nil and "no value" or type(value) end

local function expect_table(value, name)
  if type(value) == "table" then return end
  bad_argument(1, name, "table expected, got " .. found(value), 4)
end

local INT_MAX = 2147483647

-- Whether C can convert a number to its `int`.
local function is_int(number) return number >= -INT_MAX and number <= INT_MAX end

-- Matching is recursive in the items of a pattern, and Lua 5.1 does not limit it.
local PATTERN_BYTES_MAX = 4096

local function is_text(value) return type(value) == "string" or type(value) == "number" end

local function bad_text(place, name, value)
  return "bad argument #" .. place .. " to '" .. name .. "' (string expected, got "
    .. found(value) .. ")"
end

for _, name in std.ipairs({"find", "match", "gmatch", "gsub"}) do
  local search = std.string[name]
  string_library[name] = function(text, pattern, ...)
    if not is_text(text) then error(bad_text(1, name, text), 2) end
    if not is_text(pattern) then error(bad_text(2, name, pattern), 2) end
    if #tostring(pattern) > PATTERN_BYTES_MAX and not (name == "find" and select(2, ...)) then
      error("pattern too complex", 2)
    end
    return search(text, pattern, ...)
  end
end
string_library.gfind = string_library.gmatch

-- C copies an empty string as often as it is told.
function string_library.rep(text, count)
  if not is_text(text) then error(bad_text(1, "rep", text), 2) end
  local times = tonumber(count)
  if not times then bad_argument(2, "rep", "number expected, got " .. found(count)) end
  if text == "" then return "" end
  return rep(text, times)
end

-- Values that fit on the stack, without the arguments.
-- Source: Lua 5.1 `luaconf.h`, `LUAI_MAXCSTACK`
local RESULTS_MAX = 8000 - 3

-- C computes the number of results without a check for overflow, and writes beyond its stack.
local function limited_unpack(list, first, last)
  expect_table(list, "unpack")
  local from = first == nil and 1 or tonumber(first)
  local to = last == nil and #list or tonumber(last)
  if not from then bad_argument(2, "unpack", "number expected, got " .. type(first)) end
  if not to then bad_argument(3, "unpack", "number expected, got " .. type(last)) end
  if not is_int(from) or not is_int(to) or to - from >= RESULTS_MAX then
    error("too many results to unpack", 2)
  end
  return unpack(list, from, to)
end

-- C writes into read-only tables, and moves elements from the end to any position, however far.
function table_library.insert(list, ...)
  expect_table(list, "insert")
  if is_protected(list) then error(READONLY, 0) end
  local count, position = select("#", ...), ...
  if count == 2 then
    position = tonumber(position)
    if not position then bad_argument(2, "insert", "number expected, got " .. type((...))) end
    if not is_int(position) or position < 0 then
      bad_argument(2, "insert", "position out of bounds")
    end
  elseif count ~= 1 then
    error("wrong number of arguments to 'insert'", 2)
  end
  return insert(list, ...)
end

-- A script cannot be ended while C sorts: longer lists are compared in Lua.
local SORTED_MAX = 10000
local UNORDERED = "invalid order function for sorting"

local function is_less(a, b) return a < b end

function table_library.sort(list, compare)
  expect_table(list, "sort")
  if compare == nil and #list > SORTED_MAX then compare = is_less end
  local ok, problem = pcall(sort, list, compare)
  if not ok then error(problem, problem == UNORDERED and 2 or 0) end
end

math_library.random = native.random
math_library.randomseed = native.randomseed
-- Methods of strings: `("x"):upper()`.
local of_strings = getmetatable("")
of_strings.__index = string_library
of_strings.__metatable = readonly({__index = readonly(string_library)})

-- Globals ----------------------------------------------------------------------------------------

-- The environment of all scripts: empty. There is no `getfenv`, which would find others, and no
-- `newproxy`, whose finalizers would run later.
local environment = {}

local globals = {
  redis = readonly(redis), server = readonly(redis),
  string = readonly(string_library), math = readonly(math_library),
  table = readonly(table_library),
  os = readonly({clock = std.clock}),
  assert = std.assert, error = error, gcinfo = std.gcinfo, getmetatable = getmetatable,
  ipairs = std.ipairs, next = next, pairs = pairs,
  rawequal = rawequal, select = select, tonumber = tonumber,
  tostring = tostring, type = type, unpack = limited_unpack,
  _VERSION = std._VERSION,
}
for name, fields in pairs(native.libraries) do globals[name] = readonly(fields) end

local of_globals = {
  __index = function(_, name)
    local text = "Script attempted to access nonexistent global variable '"
    error(text .. tostring(name) .. "'", 2)
  end,
}
setmetatable(globals, of_globals)

local seen_of_environment = readonly({__index = readonly(globals)})
local of_environment = {
  __index = globals, __newindex = refuse, __metatable = seen_of_environment,
}

function is_protected(value)
  return is_readonly(value)
    or (type(value) == "table" and rawequal(getmetatable(value), seen_of_environment))
end

function globals.setmetatable(value, metatable)
  if is_protected(value) then error(READONLY, 0) end
  return setmetatable(value, metatable)
end

function globals.rawset(fields, name, value)
  if is_protected(fields) then error(READONLY, 0) end
  return rawset(fields, name, value)
end

function globals.rawget(fields, name)
  local value = rawget(fields, name)
  if value == nil and rawequal(fields, environment) then return rawget(globals, name) end
  return value
end

local visible = native.visible

-- An error table of Redis is seen as its text.
-- Source: Redis 7.2 `script_lua.c`, `luaRedisPcall`
local function pcall_results(ok, result, ...)
  if ok then return true, result, ... end
  if type(result) == "userdata" then result = visible(result) end
  if type(result) == "table" then
    local text = rawget(result, "err")
    if type(text) == "string" or type(text) == "number" then return false, text end
  end
  return false, result
end

function globals.pcall(...) return pcall_results(pcall(...)) end

-- What handles an error of the hook is not interrupted by the hook.
local is_stopping = native.is_stopping

function globals.xpcall(body, handle)
  return xpcall(body, function(problem)
    if is_stopping() then return problem end
    if type(problem) == "userdata" then problem = visible(problem) end
    return handle(problem)
  end)
end

local function resume_results(ok, result, ...)
  if not ok and type(result) == "userdata" then result = visible(result) end
  return ok, result, ...
end

local coroutine_library = {}
for name, value in pairs(std.coroutine) do coroutine_library[name] = value end
local resume = std.coroutine.resume
function coroutine_library.resume(...) return resume_results(resume(...)) end
globals.coroutine = readonly(coroutine_library)

-- Text only: a script that begins like bytecode fails to parse.
local function load_text(text, name)
  if byte(text, 1) == 27 then text = " " .. text end
  local chunk, problem = loadstring(text, name)
  if chunk then setfenv(chunk, environment) end
  return chunk, problem
end

function globals.loadstring(text, name)
  if type(text) == "number" then text = tostring(text) end
  if type(text) ~= "string" then
    error("bad argument #1 to 'loadstring' (string expected, got " .. type(text) .. ")", 2)
  end
  return load_text(text, name or text)
end

function globals.load(read, name)
  local parts = {}
  while true do
    local part = read()
    if part == nil or part == "" then break end
    if type(part) ~= "string" then return nil, "reader function must return a string" end
    parts[#parts + 1] = part
  end
  return load_text(concat(parts), name or "=(load)")
end

function globals.collectgarbage(option, argument)
  if option == nil or option == "collect" or option == "count" or option == "step" then
    return collectgarbage(option or "collect", argument)
  end
  return 0 -- the collector is never stopped
end

-- Functions ---------------------------------------------------------------------------------------

-- What the code of a library sees while it is loaded. The functions that it registers see `globals`
-- when they run, but a `redis` that the code has kept remains this one.
local load_redis = readonly(setmetatable({
  register_function = native.register_function,
  log = native.log,
  LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
  REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
}, of_globals))
local load_globals = setmetatable({redis = load_redis, server = load_redis}, of_globals)

-- The environment of all libraries: `__index` is `load_globals` while one is loaded.
local of_libraries = {
  __index = globals, __newindex = refuse, __metatable = seen_of_environment,
}
local library_environment = setmetatable({}, of_libraries)

local function load_library(code) return pcall(code) end

-- Running ----------------------------------------------------------------------------------------

globals._G = setmetatable(environment, of_environment)
local on_error = native.on_error

local function run_function(body, keys, arguments)
  return xpcall(function() return (body(keys, arguments)) end, on_error)
end

return {
  run_function = run_function, load_library = load_library,
  globals = globals, load_globals = load_globals, environment = environment,
  library_environment = library_environment, of_libraries = of_libraries,
}
