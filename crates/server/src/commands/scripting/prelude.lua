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
local gmatch, gsub, rep = std.string.gmatch, std.string.gsub, std.string.rep
local floor = std.math.floor
local concat, insert, sort = std.table.concat, std.table.insert, std.table.sort
local tonumber, unpack = std.tonumber, std.unpack
local READONLY = "Attempt to modify a readonly table"

-- Fails if the script must end: for what takes long in C, where no hook is called.
local check_end = native.check_end
-- Bytes or elements that take long.
local LONG = 65536

-- Read-only tables ------------------------------------------------------------------------------

local function refuse() error(READONLY, 2) end

-- What is in each read-only table.
local contents = {}

-- The metatable of every read-only table; scripts see `false` instead.
local function readonly(fields)
  local shown = {}
  contents[shown] = fields
  return setmetatable(shown, {__index = fields, __newindex = refuse, __metatable = false})
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

-- For functions that replace those of C, and are called by scripts.
local function expect_table(value, name)
  if type(value) == "table" then return end
  bad_argument(1, name, "table expected, got " .. found(value), 4)
end

local INT_MAX = 2147483647

-- Whether C can convert a number to its `int`.
local function is_int(number) return number >= -INT_MAX and number <= INT_MAX end

local function is_text(value) return type(value) == "string" or type(value) == "number" end

local function bad_text(place, name, value)
  return "bad argument #" .. place .. " to '" .. name .. "' (string expected, got "
    .. found(value) .. ")"
end

-- Raises errors of this file again, at the call of its function.
local function raise_again(problem, level)
  local text = type(problem) == "string" and match(problem, "^prelude:%d+: (.*)$")
  if text then error(text, level + 1) end
  error(problem, 0)
end

-- Searches -------------------------------------------------------------------------------------

-- A script cannot be ended while C searches, which takes exponential time for some patterns. So C
-- makes only cheap searches. Those of Rust take longer to begin, and are as fast then.

-- Matching is recursive in the items of a pattern, and Lua 5.1 does not limit it.
local PATTERN_BYTES_MAX = 4096
-- Steps of C in a search: a few milliseconds.
local STEPS_MAX = 1000000
-- The same for patterns of linear time.
local LINEAR_STEPS_MAX = 100000000
-- Patterns whose cost is remembered.
local PATTERNS_MAX = 1000

local pattern_cost, find_plain, search = native.pattern_cost, native.find_plain, native.search
local exponents, malformed, plain_texts, patterns = {}, {}, {}, 0

local function add_pattern(pattern)
  if patterns == PATTERNS_MAX then
    exponents, malformed, plain_texts, patterns = {}, {}, {}, 0
  end
  patterns = patterns + 1
  local exponent, is_malformed, is_plain = pattern_cost(pattern)
  exponents[pattern] = exponent
  malformed[pattern] = is_malformed or nil
  plain_texts[pattern] = is_plain or nil
  return exponent
end

local function is_cheap(text, pattern)
  local exponent = exponents[pattern] or add_pattern(pattern)
  if exponent <= 1 then return #text * #pattern <= LINEAR_STEPS_MAX end
  return (#text + 1) ^ exponent * #pattern <= STEPS_MAX
end

local function as_text(name, place, value)
  if type(value) == "string" then return value end
  if type(value) ~= "number" then error(bad_text(place, name, value), 3) end
  return tostring(value)
end

local function as_pattern(name, value)
  if type(value) == "number" then return tostring(value) end
  if type(value) ~= "string" then error(bad_text(2, name, value), 3) end
  if #value > PATTERN_BYTES_MAX then error("pattern too complex", 3) end
  return value
end

-- Results of a search in C for a pattern that is malformed.
local function checked(ok, problem, ...)
  if ok then return problem, ... end
  error(problem, type(problem) == "string" and 3 or 0)
end

local function found_at(first, last, ...)
  if first == false then error(last, 3) end
  if first == nil then return nil end
  return first, last, ...
end

local function captures_of(text, first, last, ...)
  if first == false then error(last, 3) end
  if first == nil then return nil end
  if select("#", ...) == 0 then return sub(text, first, last) end
  return ...
end

-- An optional number.
local function number_or(default, value, place, name)
  if value == nil then return default end
  local number = tonumber(value)
  if not number then
    bad_argument(place, name, "number expected, got " .. type(value), 4)
  end
  return number
end

function string_library.find(text, pattern, from, is_plain)
  text = as_text("find", 1, text)
  pattern = is_plain and as_text("find", 2, pattern) or as_pattern("find", pattern)
  from = number_or(1, from, 3, "find")
  local is_cheap = is_plain or is_cheap(text, pattern)
  if is_plain or plain_texts[pattern] then
    if #text * #pattern <= STEPS_MAX then return find(text, pattern, from, true) end
    local first, last = find_plain(text, pattern, from)
    if first then return first, last end
    return nil
  end
  if not is_cheap then return found_at(search(text, pattern, from, false)) end
  if malformed[pattern] then return checked(pcall(find, text, pattern, from)) end
  return find(text, pattern, from)
end

function string_library.match(text, pattern, from)
  text, pattern = as_text("match", 1, text), as_pattern("match", pattern)
  from = number_or(1, from, 3, "match")
  if not is_cheap(text, pattern) then
    return captures_of(text, search(text, pattern, from, false))
  end
  if malformed[pattern] then return checked(pcall(match, text, pattern, from)) end
  return match(text, pattern, from)
end

function string_library.gmatch(text, pattern)
  text, pattern = as_text("gmatch", 1, text), as_pattern("gmatch", pattern)
  if is_cheap(text, pattern) then return gmatch(text, pattern) end
  local at = 1
  local function take(first, last, ...)
    if first == false then error(last, 3) end
    if first == nil then
      at = #text + 2
      return nil
    end
    at = last >= first and last + 1 or first + 1
    if select("#", ...) == 0 then return sub(text, first, last) end
    return ...
  end
  return function()
    if at > #text + 1 then return nil end
    return take(search(text, pattern, at, true))
  end
end
string_library.gfind = string_library.gmatch

-- Replaces the captures in the text of a replacement. `nil`: there is no such capture.
local function filled(replacement, whole, captures)
  local is_unknown = false
  local text = gsub(replacement, "%%(.?)", function(name)
    if name == "" then return "\0" end -- C reads the end of the string
    if name == "0" then return whole end
    local index = tonumber(name)
    if not index then return name end
    local capture = captures[index]
    if capture == nil and index == 1 and #captures == 0 then return whole end
    if capture == nil then is_unknown = true end
    return capture
  end)
  if is_unknown then return nil end
  return text
end

local function replaced(replacement, whole, ...)
  local kind = type(replacement)
  if kind == "function" then
    if select("#", ...) == 0 then return (replacement(whole)) end
    return (replacement(...))
  end
  if kind == "table" then
    local name = ...
    if select("#", ...) == 0 then name = whole end
    return replacement[name]
  end
  return filled(tostring(replacement), whole, {...})
end

-- Without a tail call, so that errors of C name this file.
local function short_gsub(...)
  local result, count = gsub(...)
  return result, count
end

-- `gsub` with the searches of Rust.
local function long_gsub(text, pattern, replacement, limit)
  local parts, count, at = {}, 0, 1
  local function take(first, last, ...)
    if first == false then error(last) end
    if first == nil then return false end
    count = count + 1
    local whole = sub(text, first, last)
    local value = replaced(replacement, whole, ...)
    if not value then
      if is_text(replacement) then error("invalid capture index") end
      value = whole
    elseif not is_text(value) then
      error("invalid replacement value (a " .. type(value) .. ")")
    end
    parts[#parts + 1] = sub(text, at, first - 1)
    parts[#parts + 1] = value
    at = last + 1
    if last >= first then return true end
    parts[#parts + 1] = sub(text, first, first)
    at = first + 1
    return first <= #text
  end
  local is_anchored = byte(pattern) == 94 -- ^
  while count < limit and take(search(text, pattern, at, false)) and not is_anchored do end
  parts[#parts + 1] = sub(text, at)
  return concat(parts), count
end

function string_library.gsub(text, pattern, replacement, limit)
  text, pattern = as_text("gsub", 1, text), as_pattern("gsub", pattern)
  limit = floor(number_or(#text + 1, limit, 4, "gsub"))
  local kind = type(replacement)
  if not is_text(replacement) and kind ~= "function" and kind ~= "table" then
    bad_argument(3, "gsub", "string/function/table expected")
  end
  local replace = is_cheap(text, pattern) and short_gsub or long_gsub
  local ok, result, count = pcall(replace, text, pattern, replacement, limit)
  if not ok then raise_again(result, 2) end
  return result, count
end

-- C copies an empty string as often as it is told.
function string_library.rep(text, count)
  if not is_text(text) then error(bad_text(1, "rep", text), 2) end
  local times = tonumber(count)
  if not times then bad_argument(2, "rep", "number expected, got " .. found(count)) end
  text = tostring(text)
  if text == "" then return "" end
  if #text * times > LONG then check_end() end
  return rep(text, times)
end

-- Values that fit on the stack, with the arguments.
-- Source: Lua 5.1 `luaconf.h`, `LUAI_MAXCSTACK`
local STACK_MAX = 8000

-- C computes the number of results without a check for overflow, and writes beyond its stack.
local function limited_unpack(list, first, last)
  expect_table(list, "unpack")
  local from = first == nil and 1 or tonumber(first)
  local to = last == nil and #list or tonumber(last)
  if not from then bad_argument(2, "unpack", "number expected, got " .. type(first)) end
  if not to then bad_argument(3, "unpack", "number expected, got " .. type(last)) end
  local arguments = last ~= nil and 3 or first ~= nil and 2 or 1
  if not is_int(from) or not is_int(to) or to - from >= STACK_MAX - arguments then
    error("too many results to unpack", 2)
  end
  if arguments == 1 then return unpack(list) end
  if arguments == 2 then return unpack(list, from) end
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
-- The same for lists with texts that are longer.
local SORTED_BYTES_MAX = 1000
local UNORDERED = "invalid order function for sorting"

local function is_less(a, b) return a < b end

local function is_long(list)
  if #list > SORTED_MAX then return true end
  for index = 1, #list do
    local value = list[index]
    if type(value) == "string" and #value > SORTED_BYTES_MAX then return true end
  end
  return false
end

function table_library.sort(list, compare)
  expect_table(list, "sort")
  if compare == nil and is_long(list) then compare = is_less end
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
  ipairs = std.ipairs,
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

function globals.setmetatable(value, ...)
  expect_table(value, "setmetatable")
  if is_protected(value) then error(READONLY, 0) end
  local metatable = ...
  if select("#", ...) == 0 or (metatable ~= nil and type(metatable) ~= "table") then
    bad_argument(2, "setmetatable", "nil or table expected")
  end
  if getmetatable(value) == nil then return setmetatable(value, metatable) end
  local ok, problem = pcall(setmetatable, value, metatable)
  if not ok then error(problem, 2) end
  return value
end

function globals.rawset(fields, ...)
  expect_table(fields, "rawset")
  if is_protected(fields) then error(READONLY, 0) end
  local given = select("#", ...)
  if given < 2 then bad_argument(given + 2, "rawset", "value expected") end
  return rawset(fields, ...)
end

function globals.rawget(fields, ...)
  expect_table(fields, "rawget")
  if select("#", ...) == 0 then bad_argument(2, "rawget", "value expected") end
  return rawget(contents[fields] or fields, (...))
end

function globals.next(list, key)
  expect_table(list, "next")
  return next(contents[list] or list, key)
end

-- The real table stays hidden: scripts could change it.
function globals.pairs(list)
  expect_table(list, "pairs")
  local fields = contents[list]
  if not fields then return next, list, nil end
  return function(_, key) return next(fields, key) end, list, nil
end

function table_library.foreach(list, body)
  expect_table(list, "foreach")
  if type(body) ~= "function" then
    bad_argument(2, "foreach", "function expected, got " .. found(body))
  end
  for name, value in next, contents[list] or list do
    local result = body(name, value)
    if result ~= nil then return result end
  end
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

function globals.xpcall(body, ...)
  if select("#", ...) == 0 then bad_argument(2, "xpcall", "value expected") end
  local handle = ...
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
function coroutine_library.resume(routine, ...)
  if type(routine) ~= "thread" then bad_argument(1, "resume", "coroutine expected") end
  return resume_results(resume(routine, ...))
end

-- Each coroutine counts its instructions from zero, so many of them would avoid the hook.
local COROUTINES_PER_CHECK = 100
local coroutines = 0

for _, name in std.ipairs({"create", "wrap"}) do
  local make = std.coroutine[name]
  coroutine_library[name] = function(body)
    coroutines = coroutines + 1
    if coroutines % COROUTINES_PER_CHECK == 0 then check_end() end
    local ok, made = pcall(make, body)
    if ok then return made end
    if type(made) == "string" and find(made, "function expected", 1, true) then
      bad_argument(1, name, "Lua function expected")
    end
    error(made, 0)
  end
end
globals.coroutine = readonly(coroutine_library)

-- Text only: a script that begins like bytecode fails to parse.
local TEXT_BYTES_MAX = native.text_bytes_max

local function load_text(text, name)
  if #text > TEXT_BYTES_MAX then return nil, "the chunk is too long" end
  if #text > LONG then check_end() end
  if byte(text, 1) == 27 then text = " " .. text end
  local chunk, problem = loadstring(text, name)
  if chunk then setfenv(chunk, environment) end
  return chunk, problem
end

function globals.loadstring(text, name)
  if type(text) == "number" then text = tostring(text) end
  if type(text) ~= "string" then
    bad_argument(1, "loadstring", "string expected, got " .. found(text))
  end
  return load_text(text, name or text)
end

function globals.load(read, name)
  if type(read) ~= "function" then
    bad_argument(1, "load", "function expected, got " .. found(read))
  end
  local parts, bytes = {}, 0
  while bytes <= TEXT_BYTES_MAX do
    local ok, part = pcall(read)
    if not ok then return nil, visible(part) end
    if part == nil or part == "" then break end
    if not is_text(part) then return nil, "reader function must return a string" end
    parts[#parts + 1] = part
    bytes = bytes + #tostring(part)
  end
  return load_text(concat(parts), name or "=(load)")
end

function globals.collectgarbage(option, argument)
  if option == nil or option == "collect" or option == "count" or option == "step" then
    if option ~= "count" then check_end() end
    return collectgarbage(option or "collect", argument)
  end
  if option == "stop" or option == "restart" or option == "setpause" or option == "setstepmul" then
    return 0 -- the collector is never stopped
  end
  if not is_text(option) then
    bad_argument(1, "collectgarbage", "string expected, got " .. type(option))
  end
  bad_argument(1, "collectgarbage", "invalid option '" .. option .. "'")
end

-- Functions ---------------------------------------------------------------------------------------

-- What the code of a library sees while it is loaded. The functions that it registers see `globals`
-- when they run, but a `redis` that the code has kept remains this one.
local function table_while_loading(register)
  return readonly(setmetatable({
    register_function = register,
    log = native.log,
    LOG_DEBUG = 0, LOG_VERBOSE = 1, LOG_NOTICE = 2, LOG_WARNING = 3,
    REDIS_VERSION = native.version, REDIS_VERSION_NUM = native.version_number,
  }, of_globals))
end
local load_globals = setmetatable({
  redis = table_while_loading(native.register_function_of_redis),
  server = table_while_loading(native.register_function_of_server),
}, of_globals)

-- The environment of all libraries: `__index` is `load_globals` while one is loaded.
local of_libraries = {
  __index = globals, __newindex = refuse, __metatable = seen_of_environment,
}
local library_environment = setmetatable({}, of_libraries)

local function load_library(code) return pcall(code) end

-- Running ----------------------------------------------------------------------------------------

globals._G = setmetatable(environment, of_environment)
contents[environment], contents[library_environment] = globals, globals
local on_error = native.on_error

-- The functions of libraries, which Rust knows by their indexes.
local functions = native.functions

local function run_function(index, keys, arguments)
  local body = functions[index]
  return xpcall(function() return (body(keys, arguments)) end, on_error)
end

return {
  run_function = run_function, load_library = load_library,
  globals = globals, load_globals = load_globals, environment = environment,
  library_environment = library_environment, of_libraries = of_libraries,
}
