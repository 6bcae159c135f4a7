//! What the state machine refuses, as an SQL error.

use loadline_state_machine::{
    ConfigurationProblem, Rejection, RejectionClass, ScalingRejection, SignalOptionProblem, SignalRejection,
    option_definition,
};

use super::OptionPlaces;
use crate::error::{SqlError, SqlState};

/// Why something was refused that no option of a statement is to blame for.
pub fn refused(rejection: &Rejection) -> SqlError {
    refused_at(rejection, &[])
}

pub(super) fn refused_at(rejection: &Rejection, places: &[OptionPlaces]) -> SqlError {
    match rejection {
        Rejection::Scaling(ScalingRejection::Configuration { kind, problem, expected }) => {
            configuration(*kind, problem, expected, places)
        }
        Rejection::Signal(signal) => match &**signal {
            SignalRejection::Option { option, problem, expected } => of_signal(option, *problem, expected, places),
            _ => SqlError::new(sqlstate(rejection), rejection.to_string()),
        },
        _ => SqlError::new(sqlstate(rejection), rejection.to_string()),
    }
}

fn sqlstate(rejection: &Rejection) -> SqlState {
    match rejection {
        Rejection::InvalidName { .. } => SqlState::INVALID_NAME,
        Rejection::TooManyCommands { .. } => SqlState::PROGRAM_LIMIT_EXCEEDED,
        Rejection::Scaling(ScalingRejection::FeatureOff) => SqlState::FEATURE_NOT_SUPPORTED,
        Rejection::Scaling(ScalingRejection::AmbiguousPattern { .. }) => SqlState::DUPLICATE_OBJECT,
        Rejection::Scaling(ScalingRejection::ClusterInUse { .. }) => SqlState::DEPENDENT_OBJECTS_STILL_EXIST,
        Rejection::Scaling(ScalingRejection::OperationUnderWay { .. }) => SqlState::OBJECT_IN_USE,
        _ => match rejection.class() {
            RejectionClass::Invalid => SqlState::INVALID_PARAMETER_VALUE,
            RejectionClass::NotFound => SqlState::UNDEFINED_OBJECT,
            RejectionClass::AlreadyExists => SqlState::DUPLICATE_OBJECT,
            RejectionClass::EtagMismatch => SqlState::SERIALIZATION_FAILURE,
            RejectionClass::Precondition => SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            RejectionClass::Unauthenticated => SqlState::INVALID_AUTHORIZATION,
            RejectionClass::Denied => SqlState::INSUFFICIENT_PRIVILEGE,
            RejectionClass::TooOld => SqlState::STATEMENT_COMPLETION_UNKNOWN,
        },
    }
}

/// What the option said is not repeated: it may be a secret.
fn of_signal(key: &str, problem: SignalOptionProblem, expected: &str, places: &[OptionPlaces]) -> SqlError {
    let code = match problem {
        SignalOptionProblem::Unknown => SqlState::SYNTAX_ERROR,
        _ => SqlState::INVALID_PARAMETER_VALUE,
    };
    let error = SqlError::new(code, format!("option {} {problem}", key.to_ascii_uppercase()))
        .with_hint(format!("Expected {expected}."));
    match places.iter().find(|places| places.key == key) {
        Some(places) if problem == SignalOptionProblem::Unknown => error.at(places.name.0),
        Some(places) => error.at(places.value.0),
        None => error,
    }
}

/// Options have other names in SQL than where they are stored.
fn configuration(
    kind: loadline_state_machine::StrategyKind,
    problem: &ConfigurationProblem,
    expected: &str,
    places: &[OptionPlaces],
) -> SqlError {
    let key = problem.option();
    let shown =
        option_definition(kind, key).map_or_else(|| key.to_ascii_uppercase(), |known| known.sql_name.to_owned());
    let invalid = SqlState::INVALID_PARAMETER_VALUE;
    let error = match problem {
        ConfigurationProblem::UnknownOption { .. } => {
            SqlError::new(SqlState::SYNTAX_ERROR, format!("strategies of type {kind} have no option {shown}"))
        }
        ConfigurationProblem::Missing { .. } => SqlError::new(invalid, format!("option {shown} is required")),
        ConfigurationProblem::Invalid { value, .. } => {
            SqlError::new(invalid, format!("'{value}' is not a value for option {shown}"))
        }
        ConfigurationProblem::UnknownSize { size, .. } => SqlError::new(
            SqlState::UNDEFINED_OBJECT,
            format!("option {shown} names size '{size}', which does not exist"),
        ),
        ConfigurationProblem::Unfit { problem, .. } => SqlError::new(invalid, format!("option {shown}: {problem}")),
        ConfigurationProblem::Version | ConfigurationProblem::NameNotManaged { .. } => {
            SqlError::new(invalid, problem.to_string())
        }
    };
    let error = if expected.is_empty() { error } else { error.with_hint(format!("Expected {expected}.")) };
    let place = places.iter().find(|places| places.key == key).map(|places| match problem {
        ConfigurationProblem::UnknownOption { .. } => places.name,
        _ => places.value,
    });
    match place {
        Some(place) => error.at(place.0),
        None => error,
    }
}
