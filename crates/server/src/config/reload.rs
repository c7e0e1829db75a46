//! Reading the configuration file again while the server runs.

use options::{Change, CommandLine, ConfigError, Loaded, Source};

use super::{Changed, Config, OPTIONS, Settings, rows};

/// What reading the file again has changed.
#[derive(Debug, Default)]
pub(crate) struct Reload {
    pub(crate) changed: Changed,
    /// Options that have other values after a restart.
    pub(crate) waiting: Vec<&'static str>,
}

/// Values of the file, the environment and the command line.
#[derive(Debug)]
pub(crate) struct Reading(Loaded<Settings>);

/// Reads the file that the command line names. Blocks on disk I/O.
pub(crate) fn read_again(line: &CommandLine) -> Result<Reading, ConfigError> {
    let loaded = line.load(OPTIONS)?;
    loaded.settings.validate().map_err(|conflict| loaded.conflict(conflict))?;
    Ok(Reading(loaded))
}

impl Config {
    /// Returns the command line of the process.
    pub(crate) fn line(&self) -> CommandLine {
        self.line.clone()
    }

    /// Takes what differs from the last reading of the file, all or nothing. The rest stays as
    /// CONFIG SET has left it.
    pub(crate) fn take(&mut self, Reading(fresh): Reading) -> Result<Reload, ConfigError> {
        let mut next = self.loaded.clone();
        next.sources.clone_from(&fresh.sources);
        let mut reload = Reload::default();
        for option in rows().filter(|option| option.owns_its_value()) {
            let wanted = option.text(&fresh.settings);
            let is_set = self.loaded.source_of(option) == Source::ConfigSet;
            let differs = wanted != option.text(self.settings());
            let is_new = wanted != option.text(&self.read);
            match option.change {
                Change::Running | Change::WithoutEffect if is_new => {
                    if differs {
                        option
                            .set(&mut next.settings, &wanted)
                            .expect("the text of a value is valid");
                        reload.changed.0.push(option.name);
                    }
                    continue;
                }
                // REPLICAOF sets such an option.
                Change::Start if differs && (is_new || !is_set) => reload.waiting.push(option.name),
                _ => {}
            }
            if is_set {
                next.sources.insert(option.name, Source::ConfigSet);
            }
        }
        next.settings.validate().map_err(|conflict| next.conflict(conflict))?;
        self.loaded = next;
        self.read = fresh.settings;
        Ok(reload)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::config::{Arguments, Environment, parse_arguments};

    const NOTHING: [Vec<&str>; 2] = [Vec::new(), Vec::new()];

    fn environment() -> Environment {
        Environment::of([("MYRIAD_ACTIVE_EXPIRE_EFFORT".into(), "3".into())])
    }

    struct File(PathBuf);

    impl File {
        fn new(label: &str, text: &str) -> File {
            let name = format!("myriad-config-reload-{label}-{}.toml", std::process::id());
            let file = File(std::env::temp_dir().join(name));
            fs::write(&file.0, text).unwrap();
            file
        }

        fn config(&self, options: &[&str]) -> Config {
            let given = ["--config", self.0.to_str().unwrap()];
            let all = given.iter().chain(options);
            match parse_arguments(&mut lexopt::Parser::from_args(all), environment()).unwrap() {
                Arguments::Serve(config) => *config,
                Arguments::Help => panic!("no help is requested"),
            }
        }

        /// Returns the changed options, and the waiting ones.
        fn reload(
            &self,
            config: &mut Config,
            text: &str,
        ) -> Result<[Vec<&'static str>; 2], String> {
            fs::write(&self.0, text).unwrap();
            let read = read_again(&config.line()).map_err(|error| error.to_string())?;
            let Reload { changed, waiting } = config.take(read).map_err(|e| e.to_string())?;
            Ok([changed.names().to_vec(), waiting])
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            fs::remove_file(&self.0).unwrap();
        }
    }

    #[test]
    fn changes_of_the_file_are_taken_or_wait() {
        let file = File::new("take", "hz = 20\ntimeout = 5\nreactors = 2\n");
        let mut config = file.config(&["--maxclients", "7"]);
        let text = "hz = 30\nreactors = 3\nmaxclients = 9\nmaxmemory = \"1gb\"\n";
        let [changed, waiting] = file.reload(&mut config, text).unwrap();
        assert_eq!(changed, ["timeout", "maxmemory", "hz"]);
        assert_eq!(waiting, ["reactors"]);
        let settings = config.settings();
        assert_eq!((settings.hz, settings.timeout_s, settings.reactors), (30, 0, 2));
        assert_eq!((settings.maxclients, settings.maxmemory_bytes), (7, 1 << 30));
        assert_eq!(file.reload(&mut config, text).unwrap(), [vec![], vec!["reactors"]]);
        // The environment still overrides the file.
        let text = format!("{text}active-expire-effort = 9\n");
        assert_eq!(file.reload(&mut config, &text).unwrap(), [vec![], vec!["reactors"]]);
        assert_eq!(config.settings().active_expire_effort, 3);
    }

    #[test]
    fn config_set_holds_until_the_file_changes_the_option() {
        let file = File::new("set", "hz = 20\n");
        let mut config = file.config(&[]);
        config.set(&[(b"hz", b"40"), (b"timeout", b"9")]).unwrap();
        let [changed, _] = file.reload(&mut config, "hz = 20\nmaxclients = 50\n").unwrap();
        assert_eq!(changed, ["maxclients"]);
        assert_eq!((config.settings().hz, config.settings().timeout_s), (40, 9));
        assert_eq!(config.loaded.source("hz"), Some(Source::ConfigSet));
        assert_eq!(file.reload(&mut config, "hz = 21\n").unwrap()[0], ["maxclients", "hz"]);
        assert_eq!(config.loaded.source("hz"), Some(Source::File { line: 1 }));
        // What CONFIG REWRITE has written changes nothing, but a later edit does.
        config.rewrite().unwrap();
        let written = fs::read_to_string(&file.0).unwrap();
        assert_eq!(written, "hz = 21\ntimeout = 9\n");
        assert_eq!(file.reload(&mut config, &written).unwrap(), NOTHING);
        assert_eq!(file.reload(&mut config, "hz = 21\n").unwrap()[0], ["timeout"]);
    }

    #[test]
    fn an_error_changes_nothing() {
        let valid = "hz = 20\nrequirepass = \"secret\"\n";
        let file = File::new("error", valid);
        let mut config = file.config(&[]);
        let before = config.settings().clone();
        for (text, part) in [
            ("requirepass = \"other\"\nhz = 0\n", ":2: hz: argument must be"),
            ("hz = = 1\n", ":1: "),
        ] {
            let error = file.reload(&mut config, text).unwrap_err();
            assert!(error.contains(part), "{error}");
            assert_eq!(config.settings(), &before);
        }
        assert_eq!(file.reload(&mut config, valid).unwrap(), NOTHING);
    }
}
