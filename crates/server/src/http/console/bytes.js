// Bytes of keys and values as text.

const strict = new TextDecoder("utf-8", { fatal: true });
const encoder = new TextEncoder();

/** The text of bytes; null if they are not UTF-8. */
export function textOf(bytes) {
  try {
    return strict.decode(bytes);
  } catch {
    return null;
  }
}

/** Bytes as in the output of redis-cli: text, with escapes for what cannot be shown. */
export function shown(bytes, max = 2000) {
  const some = bytes.length > max ? bytes.subarray(0, max) : bytes;
  const text = textOf(some);
  const safe = text ?? [...some].map((byte) => (byte < 128 ? String.fromCharCode(byte) : `\\x${byte.toString(16)}`)).join("");
  // Control characters and those that change the direction of text.
  const visible = safe.replace(/[\0-\x1f\x7f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g, (sign) =>
    (sign === "\n" ? "\\n" : sign === "\t" ? "\\t" : `\\x${sign.charCodeAt(0).toString(16).padStart(2, "0")}`));
  return some.length < bytes.length ? `${visible}…` : visible;
}

/** 16 bytes per line: offset, hexadecimal, text. */
export function hexDump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.subarray(at, at + 16);
    const hex = [...row].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
    const text = [...row].map((byte) => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(47)}  ${text}`);
  }
  return lines.join("\n");
}

/** Indented JSON; null if the text is not a JSON object or list. */
export function prettyJson(text) {
  if (!/^\s*[[{]/.test(text)) return null;
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

const ESCAPES = { n: 10, r: 13, t: 9, b: 8, a: 7 };

/** Splits a line into words as redis-cli does: quotes, and escapes in double quotes. Throws on an open quote. */
export function splitWords(line) {
  const words = [];
  let at = 0;
  while (at < line.length) {
    if (/\s/.test(line[at])) {
      at += 1;
      continue;
    }
    const bytes = [];
    const push = (text) => bytes.push(...encoder.encode(text));
    while (at < line.length && !/\s/.test(line[at])) {
      const quote = line[at];
      if (quote !== "\"" && quote !== "'") {
        const sign = String.fromCodePoint(line.codePointAt(at));
        push(sign);
        at += sign.length;
        continue;
      }
      at += 1;
      for (;;) {
        if (at >= line.length) throw new Error("a quote is not closed");
        if (line[at] === quote) break;
        const hex = quote === "\"" && /^\\x([0-9a-f]{2})/i.exec(line.slice(at, at + 4));
        if (hex) {
          bytes.push(Number.parseInt(hex[1], 16));
          at += 4;
        } else if (line[at] === "\\" && at + 1 < line.length && (quote === "\"" || line[at + 1] === "'")) {
          const code = quote === "\"" ? ESCAPES[line[at + 1]] : undefined;
          if (code === undefined) push(line[at + 1]);
          else bytes.push(code);
          at += 2;
        } else {
          const sign = String.fromCodePoint(line.codePointAt(at));
          push(sign);
          at += sign.length;
        }
      }
      at += 1;
    }
    const word = Uint8Array.from(bytes);
    words.push(textOf(word) ?? word);
  }
  return words;
}
