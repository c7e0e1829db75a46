use super::*;

fn user(rules: &str) -> Result<User, Refusal> {
    let mut user = User::new(b"app", false);
    let words = rules.split(' ').filter(|word| !word.is_empty()).map(str::as_bytes);
    apply_all(&mut user, words, false).map(|()| user)
}

fn described(user: &User) -> String {
    let mut text = Vec::new();
    user.describe(&mut text);
    String::from_utf8(text).unwrap()
}

#[track_caller]
fn check(rules: &str, expected: &str) {
    assert_eq!(described(&user(rules).unwrap()), expected, "{rules}");
}

#[track_caller]
fn check_refused(rules: &str, modifier: &str, error: RuleError) {
    let expected = Refusal::Rule { modifier: modifier.as_bytes().to_vec(), error };
    assert_eq!(user(rules).map(|user| described(&user)), Err(expected), "{rules}");
}

#[test]
fn a_user_is_described_as_in_redis() {
    check("", "off sanitize-payload resetchannels -@all");
    check("ON nopass ~* &* +@all", "on nopass sanitize-payload ~* &* +@all");
    check("allkeys allchannels allcommands", "off sanitize-payload ~* &* +@all");
    check(
        "on skip-sanitize-payload ~a* %R~b* %w~c %rw~d &x &y +get",
        "on skip-sanitize-payload ~a* %R~b* %W~c ~d resetchannels &x &y -@all +get",
    );
    check("%R~a %W~a &x &x", "off sanitize-payload ~a resetchannels &x -@all");
    check("~a resetkeys allkeys &a resetchannels", "off sanitize-payload ~* resetchannels -@all");
    let hash = PasswordHash::of(b"pw").hex();
    check(
        ">pw >pw",
        &format!("off #{hash} sanitize-payload resetchannels -@all").replace(
            &format!("off #{hash} sanitize-payload"),
            &format!("off sanitize-payload #{hash}"),
        ),
    );
    check(&format!("nopass #{hash} <pw"), "off sanitize-payload resetchannels -@all");
    check(
        "(~a +get) ( %R~b +@read )",
        "off sanitize-payload resetchannels -@all (~a resetchannels -@all +get) \
         (%R~b resetchannels -@all +@read)",
    );
    check("(+get) clearselectors", "off sanitize-payload resetchannels -@all");
    check("on >a +@all ~* &* (+get) reset", "off sanitize-payload resetchannels -@all");
}

/// The last rule about a command is kept, at its place in the order.
#[test]
fn rules_about_commands_keep_their_order() {
    for (rules, expected) in [
        ("+get +set +get", "-@all +set +get"),
        ("+@read -@read", "-@all -@read"),
        ("+@all -@write +set", "+@all -@write +set"),
        ("-@write +@all -get", "+@all -get"),
        ("+config|get +config|set -config", "-@all -config"),
        ("+config -config|set", "-@all +config -config|set"),
        ("+select|0 +select|1 +SELECT|0", "-@all +select|1 +select|0"),
        ("+select|0 +select", "-@all +select"),
        ("+GET -Set", "-@all +get -set"),
        ("+get nocommands +set", "-@all +set"),
    ] {
        let mut text = Vec::new();
        user(rules).unwrap().root.describe_commands(&mut text);
        assert_eq!(String::from_utf8(text).unwrap(), expected, "{rules}");
    }
}

#[test]
fn refusals_name_the_rule_and_the_reason() {
    check_refused("+nosuch", "+nosuch", RuleError::Unknown);
    check_refused("-nosuch", "-nosuch", RuleError::Unknown);
    check_refused("+@nosuch", "+@nosuch", RuleError::Unknown);
    check_refused("+config|nosuch", "+config|nosuch", RuleError::Unknown);
    check_refused("+", "+", RuleError::Unknown);
    check_refused("-config|", "-config|", RuleError::Unknown);
    check_refused("-select|0", "-select|0", RuleError::Unknown);
    check_refused("+config|", "+config|", RuleError::Syntax);
    check_refused("+config|set|port", "+config|set|port", RuleError::FirstArgumentOfSubcommand);
    check_refused("nonsense", "nonsense", RuleError::Syntax);
    check_refused("%X~a", "%X~a", RuleError::Syntax);
    check_refused("%~a", "%~a", RuleError::Syntax);
    check_refused("%RR~a", "%RR~a", RuleError::Syntax);
    check_refused("%R", "%R", RuleError::Syntax);
    check_refused("~* ~a", "~a", RuleError::AfterAllKeys);
    check_refused("&* &a", "&a", RuleError::AfterAllChannels);
    check_refused("<pw", "<pw", RuleError::NoSuchPassword);
    check_refused("#abc", "#abc", RuleError::BadHash);
    check_refused("!abc", "!abc", RuleError::BadHash);
    check_refused("(on)", "(on)", RuleError::Syntax);
    check_refused("(+get (+set))", "(+get (+set))", RuleError::Syntax);
    check_refused("~a\tb", "~a\tb", RuleError::Syntax);
    assert_eq!(user("on (+get ~a").unwrap_err(), Refusal::OpenSelector(b"(+get".to_vec()));
}

#[test]
fn a_user_has_a_limited_number_of_rules() {
    let many = |count: usize, form: fn(usize) -> String| {
        user(&(0..count).map(form).collect::<Vec<_>>().join(" ")).map(drop)
    };
    assert_eq!(many(4_096, |index| format!("~{index}")), Ok(()));
    assert_eq!(many(4_097, |index| format!("~{index}")), Err(Refusal::TooMany));
    assert_eq!(many(4_097, |index| format!("+select|{index}")), Err(Refusal::TooMany));
    assert_eq!(many(1_025, |_| "(+get)".to_owned()), Err(Refusal::TooMany));
    assert_eq!(many(100_000, |_| "on".to_owned()), Err(Refusal::TooMany));
    let words = vec!["~a"; 9_000].join(" ");
    assert_eq!(user(&format!("({words})")).map(drop), Err(Refusal::TooMany));
    assert_eq!(user(&format!("~{}", "x".repeat(65_536))).map(drop), Err(Refusal::TooMany));
    assert_eq!(user(&format!("&{}", "x".repeat(65_000))).map(drop), Ok(()));
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    fn commands() -> impl Strategy<Value = String> {
        let names = [
            "get",
            "set",
            "select",
            "config",
            "config|get",
            "config|set",
            "client",
            "client|list",
            "@read",
            "@write",
            "@connection",
            "@admin",
            "@slow",
            "@fast",
            "@all",
            "@keyspace",
            "flushall",
        ];
        prop_oneof![
            8 => (prop::bool::ANY, prop::sample::select(names.to_vec()))
                .prop_map(|(allows, name)| format!("{}{name}", if allows { '+' } else { '-' })),
            1 => (0..3u8).prop_map(|index| format!("+select|{index}")),
        ]
    }

    /// Without the pattern `*`, which a description shows as `allkeys`, as in Redis.
    fn selector_rules() -> impl Strategy<Value = String> {
        prop_oneof![
            6 => commands(),
            2 => "(~|%R~|%W~|%RW~)[a-c?][a-c*?]?",
            1 => "&[a-c*]{1,2}",
            1 => prop::sample::select(vec!["allkeys", "resetkeys", "resetchannels", "allchannels"])
                .prop_map(str::to_owned),
        ]
    }

    fn rules() -> impl Strategy<Value = Vec<String>> {
        let selector = prop::collection::vec(selector_rules(), 0..6)
            .prop_map(|words| format!("({})", words.join(" ")));
        let plain =
            vec!["on", "off", "nopass", "resetpass", "clearselectors", "skip-sanitize-payload"];
        prop::collection::vec(
            prop_oneof![
                8 => selector_rules(),
                2 => selector,
                1 => ">[a-c]",
                1 => prop::sample::select(plain).prop_map(str::to_owned),
            ],
            0..24,
        )
    }

    /// Applies rules one by one, and leaves out the rules that do not fit the previous ones.
    fn applied(rules: &[String]) -> User {
        let mut user = User::new(b"app", false);
        for rule in rules {
            let mut next = user.clone();
            if apply(&mut next, rule.as_bytes(), false).is_ok() {
                user = next;
            }
        }
        user
    }

    fn first_arguments(
        selector: &Selector,
    ) -> Vec<(RequestId, std::collections::BTreeSet<Box<[u8]>>)> {
        let sets = selector.first_arguments.iter();
        sets.map(|(id, all)| (*id, all.iter().cloned().collect()))
            .filter(|(_, all): &(_, std::collections::BTreeSet<_>)| !all.is_empty())
            .collect()
    }

    /// Whether two selectors permit the same; the order of first arguments has no meaning.
    fn assert_same(one: &Selector, other: &Selector) {
        for (id, entry) in REGISTRY.entries() {
            let both = (one.allowed.contains(id), other.allowed.contains(id));
            assert_eq!(both.0, both.1, "{}", entry.full_name);
        }
        assert_eq!(first_arguments(one), first_arguments(other));
        assert_eq!(one.has_all_keys, other.has_all_keys);
        assert_eq!(one.has_all_channels, other.has_all_channels);
        assert_eq!(one.starts_with_all, other.starts_with_all);
        assert_eq!(one.rules, other.rules);
        assert_eq!(one.keys, other.keys);
        assert_eq!(one.channels, other.channels);
    }

    /// What the rules mean, one by one, without any summary of them.
    fn is_allowed(rules: &[String], id: RequestId) -> bool {
        let entry = REGISTRY.entry(id);
        let parent = entry.parent.map(|parent| REGISTRY.entry(parent));
        let mut allowed = false;
        for rule in rules {
            let (sign, name) = rule.split_at(1);
            let of = |entry: &crate::commands::registry::Entry| {
                entry.full_name == name || entry.command.categories().contains(&name)
            };
            if name == "@all" || of(entry) || parent.is_some_and(of) {
                allowed = sign == "+";
            }
        }
        allowed
    }

    proptest! {
        #[test]
        fn a_description_makes_the_same_user(rules in rules()) {
            let user = applied(&rules);
            let text = described(&user);
            // As ACL LOAD reads it: a new user, and words between spaces.
            let again = super::user(&text).unwrap();
            prop_assert_eq!(&described(&again), &text);
            prop_assert_eq!(again.is_on, user.is_on);
            prop_assert_eq!(again.takes_any_password, user.takes_any_password);
            prop_assert_eq!(again.skips_sanitizing, user.skips_sanitizing);
            prop_assert_eq!(&again.passwords, &user.passwords);
            prop_assert_eq!(again.selectors.len(), user.selectors.len());
            for (one, other) in again.all_selectors().zip(user.all_selectors()) {
                assert_same(one, other);
            }
        }

        #[test]
        fn the_last_rule_about_a_command_counts(rules in prop::collection::vec(commands(), 0..24)) {
            let user = applied(&rules);
            for (id, entry) in REGISTRY.entries() {
                let allowed = user.root.allowed.contains(id);
                prop_assert_eq!(allowed, is_allowed(&rules, id), "{}", entry.full_name);
            }
        }
    }
}
