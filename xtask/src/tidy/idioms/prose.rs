//! The words of a file that are prose.

use super::pattern::Word;
use crate::tidy::SourceFile;

/// Words of a string literal that is prose; fewer words are a name or a key.
const STRING_WORDS_MIN: usize = 3;

/// Words of comments, prose strings and documents, in their order.
pub(super) fn words(file: &SourceFile) -> Vec<Word> {
    let blocks = if file.is_a("rs") {
        rust_blocks(&file.text, is_test_file(&file.path))
    } else if file.is_a("md") {
        vec![Block { line: 1, text: file.text.clone() }]
    } else if ["toml", "sh", "py", "yml"].iter().any(|extension| file.is_a(extension)) {
        hash_comments(&file.text)
    } else {
        Vec::new()
    };
    blocks.iter().flat_map(Block::words).collect()
}

/// Text that is read as a whole; sentences may continue on its next line.
struct Block {
    /// Of the first line, from 1.
    line: usize,
    text: String,
}

impl Block {
    /// Words without code: blocks of code are skipped, and inline code is one word, a backtick.
    fn words(&self) -> Vec<Word> {
        let mut words = Vec::new();
        let (mut in_fence, mut in_code, mut starts_clause) = (false, false, true);
        for (index, line) in self.text.lines().enumerate() {
            let line_number = self.line + index;
            if line.trim_start().starts_with("```") {
                in_fence = !in_fence;
                starts_clause = true;
                continue;
            }
            if in_fence || line.trim().is_empty() {
                // Inline code does not extend over paragraphs: a single backtick is a character.
                (in_code, starts_clause) = (false, true);
                continue;
            }
            let mut rest = line;
            while let Some(first) = rest.chars().next() {
                if first == '`' {
                    if !in_code {
                        words.push(Word { text: "`".into(), line: line_number, starts_clause });
                        starts_clause = false;
                    }
                    in_code = !in_code;
                }
                let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                if end == 0 {
                    starts_clause |= !in_code && !matches!(first, ' ' | '\t' | '`' | '*' | '\\');
                    rest = &rest[first.len_utf8()..];
                    continue;
                }
                if !in_code {
                    words.push(Word { text: rest[..end].into(), line: line_number, starts_clause });
                    starts_clause = false;
                }
                rest = &rest[end..];
            }
        }
        words
    }
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '\'')
}

/// Comments after `#`. One at the start of a line continues the one of the line before it.
fn hash_comments(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let code = match line.find(" #") {
            _ if line.starts_with('#') => "",
            Some(end) => &line[..end],
            None => continue,
        };
        let comment = line[code.len()..].trim_start_matches([' ', '#']);
        add_comment(&mut blocks, index + 1, code.trim().is_empty(), comment);
    }
    blocks
}

fn add_comment(blocks: &mut Vec<Block>, line: usize, is_whole_line: bool, comment: &str) {
    let last = blocks.last_mut().filter(|last| last.line + last.text.lines().count() == line);
    match last {
        Some(last) if is_whole_line => {
            last.text.push('\n');
            // An empty line would not be counted.
            last.text.push_str(if comment.is_empty() { " " } else { comment });
        }
        _ => blocks.push(Block { line, text: format!("{comment} ") }),
    }
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

/// Comments, and strings that are prose; the strings of tests are data.
fn rust_blocks(text: &str, mut in_tests: bool) -> Vec<Block> {
    let mut blocks = Vec::new();
    let (mut at, mut line, mut line_start) = (0, 1, 0);
    while let Some(first) = text[at..].chars().next() {
        let rest = &text[at..];
        let length = if rest.starts_with("//") {
            let length = rest.find('\n').unwrap_or(rest.len());
            let comment = rest[..length].trim_start_matches(['/', '!']);
            add_comment(&mut blocks, line, text[line_start..at].trim().is_empty(), comment);
            length
        } else if rest.starts_with("/*") {
            let length = rest.find("*/").map_or(rest.len(), |end| end + 2);
            blocks.push(Block { line, text: rest[2..length].trim_end_matches("*/").into() });
            length
        } else if let Some(length) = raw_string(rest) {
            length
        } else if first == '"' {
            let length = string(rest);
            if !in_tests && is_prose(&rest[1..length]) {
                blocks.push(Block { line, text: without_placeholders(&rest[1..length]) });
            }
            length
        } else if rest.starts_with("b\"") {
            1 + string(&rest[1..])
        } else if first == '\'' {
            character(rest)
        } else if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            // By convention, the unit tests of a file are its end.
            in_tests |= rest.starts_with("#[cfg(test)]\nmod tests");
            first.len_utf8()
        };
        let skipped = &rest[..length];
        line += skipped.matches('\n').count();
        if let Some(last) = skipped.rfind('\n') {
            line_start = at + last + 1;
        }
        at += length;
    }
    blocks
}

/// A literal in which `{name}` is inline code and an escaped line end is punctuation.
fn without_placeholders(literal: &str) -> String {
    literal.replace("\\n", " . ").replace(['{', '}'], "`")
}

/// Bytes of a string literal with its quotes.
fn string(text: &str) -> usize {
    let mut escaped = false;
    for (at, character) in text.char_indices().skip(1) {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of a raw string literal, if `text` starts with one.
fn raw_string(text: &str) -> Option<usize> {
    let after = text.strip_prefix("br").or_else(|| text.strip_prefix('r'))?;
    let hashes = &after[..after.find(|c| c != '#')?];
    let body = after[hashes.len()..].strip_prefix('"')?;
    let start = text.len() - body.len();
    let end = body.find(&format!("\"{hashes}"))?;
    Some(start + end + 1 + hashes.len())
}

/// Bytes of a character literal, or of the quote that starts a lifetime.
fn character(text: &str) -> usize {
    let mut rest = text.char_indices().skip(1);
    match (rest.next(), rest.next()) {
        (Some((_, '\\')), _) => 2 + text[3.min(text.len())..].find('\'').map_or(0, |end| end + 2),
        (Some(_), Some((end, '\''))) => end + 1,
        _ => 1,
    }
}

/// Several words, the first of which is not the name of a command or the code of an error.
fn is_prose(literal: &str) -> bool {
    let words = literal.split_whitespace();
    let words = words.filter(|word| word.chars().filter(|c| c.is_alphabetic()).count() > 0);
    let words: Vec<&str> = words.take(STRING_WORDS_MIN).collect();
    let is_protocol = |word: &str| word.len() > 1 && word.chars().all(|c| !c.is_lowercase());
    words.len() == STRING_WORDS_MIN && !is_protocol(words[0])
}
