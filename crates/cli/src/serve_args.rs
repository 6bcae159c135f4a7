//! The flags of `loadline serve`, one for every key of the server's list: a key that is added there has a flag here.

use std::path::PathBuf;

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use loadline_server::config::{KEYS, Sources};

use crate::args::CLIENT_VARIABLES;

/// Variable that names the file, for those who cannot add a flag.
const CONFIG_VARIABLE: &str = "LOADLINE_CONFIG";

/// Where the configuration of a node comes from.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServeArgs {
    pub(crate) config: Option<PathBuf>,
    /// Key and value.
    pub(crate) flags: Vec<(String, String)>,
    /// The process that this node must not outlive. Set by `loadline dev`.
    pub(crate) supervisor: Option<i32>,
}

impl ServeArgs {
    pub(crate) fn sources(&self) -> Sources {
        let mut sources = Sources::of_process(self.config.clone(), self.flags.clone());
        // A node may run in a shell whose variables are meant for the client.
        sources.other_variables =
            CLIENT_VARIABLES.iter().chain([&CONFIG_VARIABLE]).map(|name| (*name).to_owned()).collect();
        sources
    }
}

impl FromArgMatches for ServeArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ServeArgs, clap::Error> {
        let given = |name: &str| matches.get_one::<String>(name).map(|value| (name.to_owned(), value.clone()));
        Ok(ServeArgs {
            config: matches.get_one::<PathBuf>("config").cloned(),
            flags: KEYS.iter().filter_map(|key| given(key.name)).collect(),
            supervisor: matches.get_one::<i32>("supervisor").copied(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = ServeArgs::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ServeArgs {
    fn augment_args(command: Command) -> Command {
        let config = Arg::new("config")
            .long("config")
            .env(CONFIG_VARIABLE)
            .hide_env_values(true)
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file with any of the keys below; variables win over it, and flags over both");
        let supervisor = Arg::new("supervisor").long("supervisor").hide(true).value_parser(clap::value_parser!(i32));
        let keys = KEYS.iter().map(|key| {
            let default = if key.default.is_empty() { String::new() } else { format!(" [default: {}]", key.default) };
            Arg::new(key.name)
                .long(key.flag().trim_start_matches('-').to_owned())
                .value_name(key.placeholder())
                .help(format!("{}{default} [env: {}]", key.help, key.variable()))
                .help_heading("Keys")
        });
        command.arg(config).arg(supervisor).args(keys)
    }

    fn augment_args_for_update(command: Command) -> Command {
        ServeArgs::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};

    #[test]
    fn every_key_of_a_node_is_a_flag() {
        let words: Vec<String> = KEYS.iter().flat_map(|key| [key.flag(), format!("value of {}", key.name)]).collect();
        let cli =
            Cli::try_parse_from(["loadline".to_owned(), "serve".to_owned()].into_iter().chain(words)).expect("parsed");
        let Verb::Serve(args) = cli.verb else { panic!("{:?}", cli.verb) };
        let expected: Vec<(String, String)> =
            KEYS.iter().map(|key| (key.name.to_owned(), format!("value of {}", key.name))).collect();
        assert_eq!(args.flags, expected);
    }
}
