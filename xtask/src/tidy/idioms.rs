//! Phrases that are wrong or unclear in English, in the sense in which this project misused them.
//!
//! Checked are comments, documents, and string literals that are prose: log messages, errors and
//! help texts. Inline code in backticks, code blocks, raw strings, byte strings and the strings of
//! unit tests are data.

mod pattern;
mod prose;

use std::collections::HashMap;

use self::pattern::{Pattern, find};
use super::{SourceFile, Violation};

/// A phrase to avoid. The notation of `banned` and `except` is explained in [`pattern`].
struct Idiom {
    banned: &'static [&'static str],
    /// Longer phrases that contain a banned one and are good English.
    except: &'static [&'static str],
    write: &'static str,
}

const IDIOMS: [Idiom; 26] = [
    Idiom {
        banned: &["beside"],
        except: &[],
        write: "next to, besides, in addition to, compared with",
    },
    Idiom {
        banned: &[r"say|says|said|saying"],
        except: &[],
        write: "specifies, reports, documents, states",
    },
    Idiom {
        banned: &[r"tell|tells|told|telling"],
        except: &[r"can|cannot|to tell", "tell _ apart", "tell _ _ apart", "tell _ _ _ apart"],
        write: "notifies, sends, reports",
    },
    Idiom {
        banned: &[r"nobody|somebody|everybody|anybody|whoever"],
        except: &[],
        write: "a noun: no client, a caller, every thread",
    },
    Idiom {
        banned: &[
            r"^ who",
            r"for|of|by|to|with|from|than|and|or|if|as|but|knows|shows|see|on|is|not|about who",
        ],
        except: &[r"^ who can|may"],
        write: "a noun before it: the client that, a caller that",
    },
    Idiom { banned: &[r"those who|that"], except: &[], write: "the noun" },
    Idiom { banned: &[r"go|goes|going|went|gone on"], except: &[], write: "continues, resumes" },
    Idiom {
        banned: &["behind"],
        except: &[
            r"fall|falls|falling|fell|lag|lags|lagging|stay|stays behind",
            r"behind a|an|the|one|its|this proxy|balancer|lock|mutex|trait|interface|firewall|NAT",
            r"behind a|the load|thin balancer|pointer",
            r"leave|leaves|left behind",
            r"leave|leaves|leaving nothing behind",
        ],
        write: "after, following",
    },
    Idiom {
        banned: &[r"become|becomes|became of"],
        except: &[],
        write: "a change to, the outcome of",
    },
    Idiom {
        banned: &[r"let|lets|letting go", r"let|lets|letting it|them|him go"],
        except: &[],
        write: "release, disconnect, close",
    },
    Idiom { banned: &["wanted"], except: &[], write: "required, requested, target" },
    Idiom { banned: &["lives"], except: &[], write: "TTL or lifetime; is stored, is kept" },
    Idiom {
        banned: &[r"comes|came", r"have|has|had come"],
        except: &[
            r"comes|came|come from|with",
            r"comes|came|come only|directly|either|mostly|always|straight|first from",
        ],
        write: "arrives, is received, occurs, is",
    },
    Idiom { banned: &["anew"], except: &[], write: "again, or re-read, recompute" },
    Idiom { banned: &[r"mend|mends|mended|mending"], except: &[], write: "fix, repair" },
    Idiom { banned: &["for ever"], except: &[], write: "forever, indefinitely, never expires" },
    Idiom { banned: &["in vain"], except: &[], write: "without result; times out" },
    Idiom {
        banned: &[
            r"is|are|was|were|be over $",
            r"is|are|was|were|be over then|when|before|and|or|if|once|again|by|only|it",
        ],
        except: &[],
        write: "has ended, has elapsed",
    },
    Idiom {
        banned: &[r"put|puts|putting off", r"put|puts|putting it|them off"],
        except: &[],
        write: "defer, postpone",
    },
    Idiom {
        banned: &[r"stand|stands|stood"],
        except: &[r"stand|stands|stood for", r"stand|stands|stood in for"],
        write: "is, is stored",
    },
    Idiom { banned: &["lies"], except: &[r"lies between|within|outside"], write: "is, is stored" },
    Idiom {
        banned: &["so many", "so long"],
        except: &["so long as", "so many that", "so many _ that", "so many _ _ that"],
        write: "`count`, the given number of",
    },
    Idiom {
        banned: &[r"is|are|was|were no|none"],
        except: &[
            r"there|There is|are|was|were no|none",
            r"is|are|was|were no longer|more|less|later|earlier|worse|better|fewer|larger",
            r"is|are|was|were no smaller|greater|shorter|faster|slower|older|newer|higher|lower",
            r"is|are|was|were none of",
        ],
        write: "is not a, malformed; there is no",
    },
    Idiom {
        banned: &[
            r"give|gives|given|gave|giving back",
            r"give|gives|given|gave|giving it|them back",
        ],
        except: &[],
        write: "returns, releases, frees",
    },
    Idiom {
        banned: &[r"look|looks|looked|looking at|whether"],
        except: &[],
        write: "checks, reads, inspects",
    },
    Idiom {
        banned: &[
            "as one $",
            r"as one and|or|but|when|if|with|in|at|to|for|by|after|before|on|that|then",
        ],
        except: &["as one would", r"count|counts|counted as one"],
        write: "atomically, as a unit",
    },
];

/// Recorded results and dialogues are data.
const DATA: [&str; 2] = ["benchmarks/record/", "tests/transcripts/"];

/// No file uses a banned phrase.
pub(crate) fn check_idioms(files: &[SourceFile]) -> Vec<Violation> {
    let matcher = Matcher::new();
    files.iter().flat_map(|file| matcher.check(file)).collect()
}

/// [`IDIOMS`] with their patterns parsed.
struct Matcher {
    idioms: Vec<ParsedIdiom>,
    /// Banned patterns by the words that they can begin with, as positions in `idioms` and in
    /// `banned`: few words begin a phrase.
    by_first_word: HashMap<&'static str, Vec<(usize, usize)>>,
}

struct ParsedIdiom {
    banned: Vec<Pattern>,
    except: Vec<Pattern>,
    write: &'static str,
}

impl Matcher {
    fn new() -> Matcher {
        let parse =
            |patterns: &[&'static str]| patterns.iter().map(|p| Pattern::parse(p)).collect();
        let idioms = IDIOMS.iter().map(|idiom| ParsedIdiom {
            banned: parse(idiom.banned),
            except: parse(idiom.except),
            write: idiom.write,
        });
        let idioms: Vec<ParsedIdiom> = idioms.collect();
        let mut by_first_word: HashMap<&'static str, Vec<(usize, usize)>> = HashMap::new();
        for (nth, idiom) in idioms.iter().enumerate() {
            for (place, pattern) in idiom.banned.iter().enumerate() {
                assert!(!pattern.first_words().is_empty(), "a banned phrase begins with a word");
                for word in pattern.first_words() {
                    by_first_word.entry(word).or_default().push((nth, place));
                }
            }
        }
        Matcher { idioms, by_first_word }
    }

    fn check(&self, file: &SourceFile) -> Vec<Violation> {
        if DATA.iter().any(|folder| file.path.starts_with(folder)) {
            return Vec::new();
        }
        let words = prose::words(file);
        let mut found = Vec::new();
        for (start, word) in words.iter().enumerate() {
            let patterns = self.by_first_word.get(word.text.to_ascii_lowercase().as_str());
            for (nth, place) in patterns.into_iter().flatten() {
                let ParsedIdiom { banned, except, write } = &self.idioms[*nth];
                let Some(range) = find(&banned[*place], except, &words, start) else { continue };
                let phrase = words[range].iter().map(|word| word.text.as_str());
                let phrase = phrase.collect::<Vec<_>>().join(" ");
                let what = format!("\"{phrase}\": rewrite the sentence with: {write}");
                found.push(Violation { path: file.path.clone(), line: word.line, what });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of violations in a file of this text.
    fn check(path: &str, text: &str) -> Vec<usize> {
        let file = SourceFile { path: path.into(), text: text.into() };
        Matcher::new().check(&file).iter().map(|violation| violation.line).collect()
    }

    #[test]
    fn misused_phrases_are_found() {
        for text in [
            "What evaluation needs beside the expression.",
            "Its format is said there.",
            "A longer value is not told.",
            "Nobody waits for the disk.",
            "For who holds every stripe already.",
            "The group; who asks twice waits.",
            "Waits for those whose turn it is, and those that follow.",
            "It goes on with the next one.",
            "Resumes behind the last row.",
            "What becomes of one key.",
            "The connection is let go: let it go.",
            "0.35 (0.28 wanted)",
            "The format lives there.",
            "A message that comes next.",
            "Messages that have come.",
            "The setting is read anew.",
            "It stays for ever.",
            "It is over.",
            "It is over when all have read it.",
            "Requests that it puts off.",
            "The format stands in a file.",
            "It lies in a file.",
            "Reads so many messages.",
            "Bytes that are no UTF-8.",
            "The node is given back.",
            "It looks at one row.",
            "It runs them as one.",
        ] {
            assert_ne!(check("docs/a.md", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn the_same_words_in_other_senses_are_not() {
        for text in [
            "It comes from the log, or comes directly from the disk.",
            "The letter stands for a type, and stands in for a name.",
            "It is read as one of the options, as one batch.",
            "There are no rows; it is no longer open; none is.",
            "It is over 100 bytes, and it is over the limit.",
            "A slow reader falls behind; it is behind a proxy.",
            "So long as it is open, it cannot tell why.",
            "As it is, no row matches.",
            "The word `comes` is code.",
            "```\nit comes\n```",
        ] {
            assert_eq!(check("docs/a.md", text), [0; 0], "{text}");
        }
    }

    #[test]
    fn comments_and_prose_in_strings_are_checked() {
        assert_eq!(check("a.rs", "fn f() {} // it comes\n"), [1]);
        assert_eq!(check("a.rs", "\n/// What goes\n/// on here.\nfn f() {}\n"), [2]);
        assert_eq!(check("a.rs", "error!(\n    \"a message that comes\"\n);\n"), [2]);
        assert_eq!(check("a.rs", "/* a\n it comes */\n"), [2]);
        assert_eq!(check("a.sh", "x=\"$#\" # it comes\n"), [1]);
        assert_eq!(check("a.toml", "# it comes\n"), [1]);
    }

    #[test]
    fn code_and_data_are_not() {
        for text in [
            "let comes = said(b\"a message that comes\");",
            "let a = r#\"a message that comes\"#;",
            "let a = (\"comes\", 'a', \"SET comes so long\", f::<'a>());",
            "/// ```\n/// comes(1);\n/// ```\nfn f() {}",
            "#[cfg(test)]\nmod tests {\n    let a = \"a message that comes\";\n}",
        ] {
            assert_eq!(check("a.rs", text), [0; 0], "{text}");
        }
        assert_eq!(check("benchmarks/record/a.md", "it comes"), [0; 0]);
    }
}
