//! An error with its causes as one text.

use std::error::Error;

/// The text of an error, then that of each cause that it does not contain already: some errors
/// quote their cause.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text.push_str(": ");
            text.push_str(&next);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use super::*;

    #[derive(Debug)]
    struct Link(&'static str, Option<Box<Link>>);

    impl fmt::Display for Link {
        fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
            formatter.write_str(self.0)
        }
    }

    impl Error for Link {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.1.as_deref().map(|cause| cause as &(dyn Error + 'static))
        }
    }

    #[test]
    fn each_cause_is_named_once() {
        let root = Link("no such file", None);
        assert_eq!(with_causes(&root), "no such file");
        let quoting = Link("read a: no such file", Some(Box::new(root)));
        assert_eq!(with_causes(&quoting), "read a: no such file");
        let outer = Link("start", Some(Box::new(quoting)));
        assert_eq!(with_causes(&outer), "start: read a: no such file");
    }
}
