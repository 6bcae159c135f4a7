//! Whatever is written, reading it does not panic; and whatever is printed is read as the same.

use loadline_sql::statement::{
    AlterRole, AlterSignal, AlterStrategy, CreateCluster, CreateReplica, CreateRole, CreateSignal, CreateStrategy,
    DropStrategy, Isolation, Password, Place, Privileges, PrivilegesOn, RoleOptions, ShowActions, SignalKind,
    SignalSaying, StrategyKind, StrategyOption, TargetName, TransactionModes, Value,
};
use loadline_sql::{Statement, parse};
use loadline_state_machine::Span;
use proptest::prelude::*;

/// Names that need quotes, and some that would be something else without.
fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z_][a-z0-9_]{0,8}",
        "[A-Za-z0-9 .;'\"\\-ä%]{1,8}",
        prop::sample::select(vec![
            "all", "like", "if", "replica", "size", "true", "interval", "default", "local", "session"
        ])
        .prop_map(str::to_owned),
    ]
}

/// Settings and parameters have dots between names.
fn parameter() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z_][a-z0-9_]{0,8}(\\.[a-z][a-z0-9_]{0,4}){0,2}", "[A-Z \"]{1,6}"].prop_filter(
        "words that begin something else",
        |name| {
            !["session", "local", "transaction", "time", "names", "scaling", "signals", "characteristics"]
                .contains(&name.as_str())
        },
    )
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9%_\\\\]{0,8}", "[ -~äß\n']{0,12}"]
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        text().prop_map(Value::Text),
        any::<i64>().prop_map(|number| Value::Number(number.to_string())),
        "[0-9]{1,4}\\.[0-9]{1,4}".prop_map(Value::Number),
        any::<bool>().prop_map(Value::Bool),
        name().prop_map(Value::Word),
        text().prop_map(Value::Interval),
    ]
}

fn target() -> impl Strategy<Value = TargetName> {
    prop_oneof![name().prop_map(TargetName::Cluster), text().prop_map(TargetName::Pattern), Just(TargetName::All)]
}

fn kind() -> impl Strategy<Value = StrategyKind> {
    prop::sample::select(StrategyKind::PRIORITY_ORDER.to_vec())
}

const OPTIONS: [&str; 17] = [
    "COOLDOWN",
    "ENABLED",
    "REPLICA_SCOPE",
    "DRY_RUN",
    "APPROVAL",
    "SIZE",
    "REPLICA_NAME",
    "MAX_SIZE",
    "MIN_OOM_COUNT",
    "MIN_CRASH_COUNT",
    "CRASH_WINDOW",
    "BURST_SIZE",
    "IDLE_AFTER",
    "SIGNALS",
    "MAX_REPLICAS",
    "TOLERANCE",
    "SCALE_UP_POLICIES",
];

fn options(min: usize) -> impl Strategy<Value = Vec<StrategyOption>> {
    let option = |(name, value)| StrategyOption { name, value, name_place: Place(0), value_place: Place(0) };
    prop::sample::subsequence(OPTIONS.to_vec(), min..=4)
        .prop_flat_map(|names| names.into_iter().map(|name| (Just(name), value())).collect::<Vec<_>>())
        .prop_map(move |options| options.into_iter().map(option).collect())
}

fn signal_options(min: usize) -> impl Strategy<Value = Vec<SignalSaying>> {
    let names = vec!["URL", "QUERY", "CLUSTER_LABEL", "PASSWORD", "CONNECTION", "STREAM", "ACK_PENDING", "TIMEOUT"];
    let option = |(name, value)| SignalSaying { name, value, name_place: Place(0), value_place: Place(0) };
    prop::sample::subsequence(names, min..=4)
        .prop_flat_map(|names| names.into_iter().map(|name| (Just(name), value())).collect::<Vec<_>>())
        .prop_map(move |options| options.into_iter().map(option).collect())
}

fn signals() -> impl Strategy<Value = Statement> {
    let every = || prop::option::of((0_u64..1 << 40).prop_map(Span::from_millis));
    let kind = prop::sample::select(SignalKind::ALL.to_vec());
    let create = (name(), any::<bool>(), kind, target(), every(), signal_options(0));
    let alter = (name(), prop::option::of(target()), every(), signal_options(1));
    prop_oneof![
        create.prop_map(|(name, if_not_exists, kind, target, every, options)| {
            Statement::CreateSignal(CreateSignal { name, if_not_exists, kind, target, every, options })
        }),
        (alter, prop::sample::subsequence(vec!["USERNAME", "PASSWORD"], 0..=2)).prop_map(
            |((name, target, every, options), reset)| {
                Statement::AlterSignal(AlterSignal { name, target, every, options, reset })
            }
        ),
        (name(), any::<bool>()).prop_map(|(name, if_exists)| Statement::DropSignal { name, if_exists }),
        Just(Statement::ShowSignals),
    ]
}

fn modes() -> impl Strategy<Value = TransactionModes> {
    let isolation = prop::sample::select(vec![
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ]);
    (prop::option::of(isolation), any::<Option<bool>>())
        .prop_map(|(isolation, read_only)| TransactionModes { isolation, read_only })
}

fn role_options() -> impl Strategy<Value = RoleOptions> {
    let password = prop::option::of(prop_oneof![text().prop_map(Password::Is), Just(Password::None)]);
    (any::<Option<bool>>(), any::<Option<bool>>(), password).prop_map(|(superuser, login, password)| RoleOptions {
        superuser,
        login,
        password,
    })
}

fn privileges() -> impl Strategy<Value = Privileges> {
    let on = prop_oneof![
        prop::collection::vec(name(), 1..3).prop_map(PrivilegesOn::Clusters),
        Just(PrivilegesOn::AllClusters)
    ];
    (on, prop::collection::vec(name(), 1..3)).prop_map(|(on, roles)| Privileges { on, roles })
}

fn scaling() -> impl Strategy<Value = Statement> {
    prop_oneof![
        (any::<bool>(), target(), kind(), options(0)).prop_map(|(if_not_exists, target, kind, options)| {
            Statement::CreateStrategy(CreateStrategy { if_not_exists, target, kind, options })
        }),
        (target(), kind(), options(1)).prop_map(|(target, kind, options)| Statement::AlterStrategy(AlterStrategy {
            target,
            kind,
            options
        })),
        (any::<bool>(), target(), kind()).prop_map(|(if_exists, target, kind)| Statement::DropStrategy(DropStrategy {
            if_exists,
            target,
            kind
        })),
        target().prop_map(|target| Statement::DropStrategies { target }),
        prop::option::of(target()).prop_map(|target| Statement::ShowStrategies { target }),
        (prop::option::of(name()), any::<Option<u64>>())
            .prop_map(|(cluster, limit)| Statement::ShowActions(ShowActions { cluster, limit })),
        name().prop_map(|cluster| Statement::ExplainCluster { cluster }),
        prop_oneof![text(), any::<u64>().prop_map(|number| number.to_string())]
            .prop_map(|action| Statement::ExplainAction { action }),
    ]
}

fn clusters() -> impl Strategy<Value = Statement> {
    prop_oneof![
        (name(), any::<bool>(), prop::option::of(text()), prop::option::of(name())).prop_map(
            |(name, if_not_exists, size, backend)| {
                Statement::CreateCluster(CreateCluster { name, if_not_exists, size, backend })
            }
        ),
        (name(), name()).prop_map(|(name, to)| Statement::RenameCluster { name, to }),
        (name(), prop::option::of(name())).prop_map(|(name, backend)| Statement::PlaceCluster { name, backend }),
        (name(), any::<bool>(), any::<bool>()).prop_map(|(name, if_exists, cascade)| Statement::DropCluster {
            name,
            if_exists,
            cascade
        }),
        (name(), name(), any::<bool>(), text()).prop_map(|(cluster, replica, if_not_exists, size)| {
            Statement::CreateReplica(CreateReplica { cluster, replica, if_not_exists, size })
        }),
        (name(), name(), any::<bool>()).prop_map(|(cluster, replica, if_exists)| Statement::DropReplica {
            cluster,
            replica,
            if_exists
        }),
    ]
}

fn sessions() -> impl Strategy<Value = Statement> {
    prop_oneof![
        (parameter(), value()).prop_map(|(name, value)| Statement::SetSetting { name, value }),
        parameter().prop_map(|name| Statement::ResetSetting { name }),
        prop::option::of(parameter()).prop_map(|name| Statement::Show { name }),
        modes().prop_map(Statement::Begin),
        Just(Statement::Commit),
        Just(Statement::Rollback),
        (modes().prop_filter("says something", |modes| *modes != TransactionModes::default()), any::<bool>())
            .prop_map(|(modes, session)| Statement::SetTransaction { modes, session }),
        (parameter(), prop::collection::vec(value(), 0..3), any::<bool>())
            .prop_map(|(name, values, local)| Statement::SetSession { name, values, local }),
        prop::option::of(parameter()).prop_map(|name| Statement::ResetSession { name }),
        Just(Statement::Discard),
        Just(Statement::CloseAll),
        Just(Statement::UnlistenAll),
        prop::option::of(name()).prop_map(|name| Statement::Deallocate { name }),
    ]
}

fn roles() -> impl Strategy<Value = Statement> {
    prop_oneof![
        (name(), any::<bool>(), role_options()).prop_map(|(name, if_not_exists, options)| {
            Statement::CreateRole(CreateRole { name, if_not_exists, options })
        }),
        (name(), role_options().prop_filter("says something", |it| *it != RoleOptions::default()))
            .prop_map(|(name, options)| Statement::AlterRole(AlterRole { name, options })),
        (name(), any::<bool>()).prop_map(|(name, if_exists)| Statement::DropRole { name, if_exists }),
        privileges().prop_map(Statement::Grant),
        privileges().prop_map(Statement::Revoke),
    ]
}

fn statement() -> impl Strategy<Value = Statement> {
    prop_oneof![scaling(), clusters(), sessions(), roles(), signals()]
}

/// Pieces of statements, in any order: far more likely to get deep into the reader than arbitrary characters.
fn pieces() -> impl Strategy<Value = String> {
    let words = "CREATE ALTER DROP SHOW SCALING STRATEGY STRATEGIES ACTIONS FOR CLUSTER CLUSTERS ALL LIKE TYPE TARGET SIZE \
                 TARGET_SIZE SHRINK TO FIT BURST IDLE SUSPEND WITH UPDATE ( ) , = ; . 'x' '200cc' \"q\" \" ' $$ -- /* */ 1 -1 \
                 2.5 1e9 IF NOT EXISTS COOLDOWN ENABLED true false INTERVAL LIMIT SYSTEM SET RESET BEGIN COMMIT ROLLBACK \
                 EXPLAIN ACTION REPLICA CASCADE RENAME BACKEND ROLE GRANT REVOKE USAGE ON PASSWORD NULL SELECT FROM WHERE \
                 INSERT INTO VALUES DELETE * || :: jsonb AND OR a.b E'\\' U&'\\ x'zz ä \u{0} \u{feff} \n \r\n [ ] { } ? $1 : @ #";
    let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
    prop::collection::vec(prop::sample::select(words), 0..24).prop_map(|pieces| pieces.join(" "))
}

/// Reading comes to an end, and what is said has its place inside the text.
fn read(text: &str) -> Result<(), TestCaseError> {
    match parse(text) {
        Ok(statements) => {
            for parsed in statements {
                prop_assert!(text.contains(&parsed.text), "{:?} is not in {text:?}", parsed.text);
            }
        }
        Err(error) => {
            let characters = text.chars().count();
            prop_assert!(error.position.is_none_or(|at| (1..=characters + 1).contains(&at)), "{error:?} in {text:?}");
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn what_is_printed_is_read_as_the_same(statement in statement()) {
        let printed = statement.to_string();
        let read = parse(&printed);
        prop_assert!(read.is_ok(), "{printed}: {read:?}");
        let read = read.unwrap();
        prop_assert_eq!(read.len(), 1);
        prop_assert_eq!(&read[0].statement, &statement, "{}", printed);
        prop_assert_eq!(read[0].statement.to_string(), printed);
    }

    #[test]
    fn several_statements_are_read_as_each_of_them(statements in prop::collection::vec(statement(), 0..5)) {
        let printed: Vec<String> = statements.iter().map(ToString::to_string).collect();
        let read: Vec<Statement> = parse(&printed.join(";\n")).unwrap().into_iter().map(|it| it.statement).collect();
        prop_assert_eq!(read, statements);
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        read(&text)?;
    }

    #[test]
    fn any_pieces_of_statements_are_read_or_refused(text in pieces()) {
        read(&text)?;
    }

    /// A statement with one character gone, added or changed.
    #[test]
    fn a_statement_with_a_slip_is_read_or_refused(statement in statement(), place in 0_usize..200, slip in any::<Option<char>>()) {
        let mut characters: Vec<char> = statement.to_string().chars().collect();
        let place = place.min(characters.len());
        match slip {
            Some(slip) => characters.insert(place, slip),
            None if place < characters.len() => { characters.remove(place); }
            None => {}
        }
        read(&characters.into_iter().collect::<String>())?;
    }
}

/// On a stack as small as a worker has, in a build without optimisation: what is too deep is refused, not tried.
#[test]
fn deep_and_long_texts_are_refused_and_do_not_end_the_process() {
    let texts = [
        format!("SELECT {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("SELECT {}1", "(".repeat(100_000)),
        format!("SELECT {}", vec!["1"; 100_000].join("+")),
        format!("SELECT 1{}", "::int".repeat(50_000)),
        format!("SELECT {} 1", "NOT ".repeat(100_000)),
        format!("SELECT {} 1", "- ".repeat(100_000)),
        format!("SELECT 1 {}", "IS NULL ".repeat(50_000)),
        format!("SELECT 1 {}", "UNION SELECT 1 ".repeat(50_000)),
        format!("SELECT * FROM {}", "(SELECT * FROM ".repeat(10_000)),
        format!("SELECT {}", "CASE WHEN ".repeat(10_000)),
        format!("SELECT a{}", "[1]".repeat(50_000)),
        format!("SELECT {}", "ARRAY[".repeat(50_000)),
        format!("SELECT {}", "f(".repeat(50_000)),
        format!("SELECT * FROM a {}", "JOIN a ON 1 ".repeat(50_000)),
        format!("SELECT {}", vec!["1=1"; 999].join(" AND ")),
        format!("{}SELECT 1", "EXPLAIN ".repeat(50_000)),
        format!("SELECT {}", vec!["1"; 100_000].join(",")),
        "/*".repeat(100_000),
        "(".repeat(100_000),
        "x".repeat(5 << 20),
    ];
    let reading = std::thread::Builder::new().stack_size(2 << 20).spawn(move || {
        for text in texts {
            // Printing and dropping walk the tree too.
            if let Ok(statements) = parse(&text) {
                for parsed in statements {
                    assert!(!parsed.statement.to_string().is_empty());
                }
            }
        }
    });
    reading.unwrap().join().expect("no panic");
}
