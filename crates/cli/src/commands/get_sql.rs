//! `get -o sql`: what is there, as the statements that make it so. What it prints, `apply -f` and `loadline sql` read.

use loadline_client::v1::resource::Resource as Kept;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{Cluster, Resource, Setting, Signal, Strategy, StrategyTarget};
use loadline_client::{Kind, Scope};
use loadline_sql::Statement;
use loadline_sql::statement::{
    CreateCluster, CreateSignal, CreateStrategy, Place, SignalKind, SignalSaying, StrategyKind, StrategyOption,
    TargetName, Value,
};
use loadline_state_machine::{OptionKind, Span, option_definition, read_milli, signal_option};

use super::Session;
use crate::args::GetArgs;
use crate::exit::{Exit, Failed};
use crate::noun::{Noun, Selection};

const CONFIG_VERSION_KEY: &str = "config_version";

pub(crate) async fn get(args: &GetArgs, session: Session<'_>) -> Result<(), Failed> {
    let (noun, names) = Selection::parse(&args.what.words)?.one_type()?;
    let Noun::Resource(kind @ (Kind::Strategy | Kind::Cluster | Kind::Setting | Kind::Signal)) = noun else {
        return Err(Failed::usage("-o sql is of strategies, clusters, signals and settings"));
    };
    let resources: Vec<Resource> = if names.is_empty() {
        let scope = Scope { cluster: args.cluster.clone(), ..Scope::default() };
        match kind {
            Kind::Strategy => session.client.list_scaling(kind, &scope, session.reading).await?.resources,
            _ => session.client.list(kind, session.reading).await?.resources,
        }
    } else {
        let mut found = Vec::new();
        for name in &names {
            found.push(session.client.get(kind, name, session.reading).await?.resource);
        }
        found
    };
    let text: String =
        resources.into_iter().map(statement).map(|it| it.map(|it| it.unwrap_or_default())).collect::<Result<_, _>>()?;
    session.console.data(&text)
}

/// With its semicolon; nothing for what need not be said, such as a setting that nobody has set.
fn statement(resource: Resource) -> Result<Option<String>, Failed> {
    let line = |statement: &Statement| format!("{statement};\n");
    Ok(match resource.resource {
        Some(Kept::Strategy(strategy)) => Some(self::strategy(&strategy)?),
        Some(Kept::Cluster(cluster)) => Some(line(&self::cluster(cluster))),
        Some(Kept::Signal(signal)) => Some(line(&self::signal(&signal)?)),
        Some(Kept::Setting(setting)) if !setting.is_default => Some(line(&self::setting(setting))),
        _ => None,
    })
}

/// Where it lives is not said: a file says only that it is there.
fn cluster(cluster: Cluster) -> Statement {
    Statement::CreateCluster(CreateCluster { name: cluster.name, if_not_exists: false, size: None, backend: None })
}

fn setting(setting: Setting) -> Statement {
    Statement::SetSetting { name: setting.name, value: Value::Text(setting.value) }
}

fn signal(signal: &Signal) -> Result<Statement, Failed> {
    let malformed = || Failed::new(Exit::Failure, format!("signal {} cannot be said in SQL", signal.name));
    let kind: SignalKind = signal.r#type.parse().map_err(|_| malformed())?;
    let option = |(key, text): (&String, &String)| {
        let known = signal_option(kind, key).ok_or_else(malformed)?;
        let (name_place, value_place) = (Place::default(), Place::default());
        Ok(SignalSaying { name: known.sql_name, value: Value::Text(text.clone()), name_place, value_place })
    };
    Ok(Statement::CreateSignal(CreateSignal {
        name: signal.name.clone(),
        if_not_exists: false,
        kind,
        target: target(signal.target.as_ref()).unwrap_or(TargetName::All),
        every: (signal.every_ms > 0).then(|| Span::from_millis(signal.every_ms)),
        options: signal.options.iter().map(option).collect::<Result<_, Failed>>()?,
    }))
}

fn target(target: Option<&StrategyTarget>) -> Option<TargetName> {
    Some(match target?.target.as_ref()? {
        Target::Cluster(name) => TargetName::Cluster(name.clone()),
        Target::Pattern(pattern) => TargetName::Pattern(pattern.clone()),
        Target::All(_) => TargetName::All,
    })
}

fn strategy(strategy: &Strategy) -> Result<String, Failed> {
    let malformed = || Failed::new(Exit::Failure, format!("strategy {} cannot be said in SQL", strategy.id));
    let kind: StrategyKind = strategy.r#type.parse().map_err(|_| malformed())?;
    let target = target(strategy.target.as_ref()).ok_or_else(malformed)?;
    let (mut options, mut rest) = (Vec::new(), String::new());
    for (key, text) in strategy.options.iter().filter(|(key, _)| *key != CONFIG_VERSION_KEY) {
        let Some(known) = option_definition(kind, key) else {
            // One that was stored and means nothing: whoever reads this must not lose it unseen.
            rest.push_str(&format!(
                "-- {} has an option that cannot be said in SQL: {key:?} = {text:?}\n",
                strategy.id
            ));
            continue;
        };
        let (name_place, value_place) = (Place::default(), Place::default());
        options.push(StrategyOption { name: known.sql_name, value: value(known.kind, text), name_place, value_place });
    }
    let statement = Statement::CreateStrategy(CreateStrategy { if_not_exists: false, target, kind, options });
    Ok(format!("{rest}{statement};\n"))
}

fn value(kind: OptionKind, text: &str) -> Value {
    match (kind, text.parse::<u64>()) {
        (OptionKind::Seconds { .. }, Ok(secs)) if secs < u64::MAX / 1_000 => {
            Value::Text(Span::from_secs(secs).to_string())
        }
        (OptionKind::Count { .. }, Ok(count)) => Value::Number(count.to_string()),
        (OptionKind::Decimal { .. }, _) if read_milli(text).is_some() => Value::Number(text.to_owned()),
        (OptionKind::Bool, _) if text == "true" || text == "false" => Value::Bool(text == "true"),
        _ => Value::Text(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manifest::{self, Spec};

    #[test]
    fn a_strategy_is_printed_as_the_statement_that_makes_it() {
        let options = [("config_version", "1"), ("cooldown_s", "5400"), ("enabled", "false"), ("idle_after_s", "1800")];
        let strategy = Strategy {
            id: "s12.0".into(),
            r#type: "idle_suspend".into(),
            target: Some(StrategyTarget { target: Some(Target::Pattern("it's_%".into())) }),
            options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Strategy::default()
        };
        let printed = super::strategy(&strategy).expect("a statement");
        let expected = "CREATE SCALING STRATEGY FOR ALL CLUSTERS LIKE 'it''s_%' TYPE IDLE_SUSPEND WITH (COOLDOWN = '1h30m', \
                        ENABLED = false, IDLE_AFTER = '30m');\n";
        assert_eq!(printed, expected);
        // And it is the same strategy to apply -f: nothing differs.
        let manifest = manifest::parse(&printed).expect("a manifest").remove(0);
        let Spec::Strategy(wanted) = &manifest.spec else { panic!("{manifest:?}") };
        assert!(wanted.is(&strategy));
        assert!(wanted.differences(Some(&strategy)).is_empty());
    }

    #[test]
    fn clusters_and_settings_are_printed_too() {
        let made = Cluster { name: "Prod-1".into(), ..Cluster::default() };
        assert_eq!(cluster(made).to_string(), "CREATE CLUSTER \"Prod-1\"");
        let set = Setting { name: "default_backend".into(), value: "local".into(), ..Setting::default() };
        assert_eq!(setting(set).to_string(), "ALTER SYSTEM SET default_backend = 'local'");
    }

    #[test]
    fn a_strategy_that_follows_signals_is_printed_as_the_statement_that_makes_it() {
        let options = [
            ("config_version", "1"),
            ("max_replicas", "10"),
            ("signals", "requests average 100; latency value 0.25"),
            ("size", "100cc"),
            ("stabilization_down_s", "600"),
            ("tolerance", "0.05"),
        ];
        let strategy = Strategy {
            id: "s12.0".into(),
            r#type: "target_tracking".into(),
            target: Some(StrategyTarget { target: Some(Target::Cluster("web".into())) }),
            options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Strategy::default()
        };
        let printed = super::strategy(&strategy).expect("a statement");
        let expected = "CREATE SCALING STRATEGY FOR CLUSTER web TYPE TARGET_TRACKING WITH (MAX_REPLICAS = 10, SIGNALS = \
                        'requests average 100; latency value 0.25', SIZE = '100cc', STABILIZATION_DOWN = '10m', TOLERANCE = \
                        0.05);\n";
        assert_eq!(printed, expected);
        let manifest = manifest::parse(&printed).expect("a manifest").remove(0);
        let Spec::Strategy(wanted) = &manifest.spec else { panic!("{manifest:?}") };
        assert!(wanted.differences(Some(&strategy)).is_empty());
    }
}
