//! Service `Scaling`: strategies, what they decide, and what is done about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use loadline_api::scaling as wire;
use loadline_api::v1::resource::Resource as Shown;
use loadline_api::v1::scaling_server::Scaling;
use loadline_api::v1::{
    AbandonActionRequest, ApproveActionRequest, CreateReplicaRequest, CreateStrategyRequest, DeleteReplicaRequest,
    DeleteStrategiesRequest, DeleteStrategyRequest, ExplainRequest, ExplainResponse, GetRequest, ListResponse,
    ListScalingRequest, PauseClusterRequest, ReadResponse, RejectActionRequest, ResolveActionRequest, Resource,
    ResumeClusterRequest, RetryActionRequest, UpdateStrategyRequest, WriteResponse,
};
use loadline_api::{Write, fields, listing, millis, resource};
use loadline_audit::Moment;
use loadline_state_machine::{
    Action, ActionId, ClusterId, Decision, Event, Operation, OperationEnd, OperationId, Rejection, ResourceKind,
    ResourceName, Revision, State, Time, audit,
};
use tonic::{Request, Response, Status};

use super::exchange::{Answer, Exchange, name_nodes_of};
use super::history::{self, Past};
use super::{errors, pages};
use crate::travel::Travel;

#[derive(Debug)]
pub(crate) struct ScalingService {
    pub(crate) exchange: Exchange,
    pub(crate) travel: Arc<Travel>,
}

/// How long the state of a past moment may take to be made.
const TRAVEL_MAX: Duration = Duration::from_secs(30);

fn shown(shown: Shown) -> Resource {
    Resource { resource: Some(shown) }
}

/// An id in the name of a request.
fn named<T: std::str::FromStr<Err: std::fmt::Display>>(name: &str) -> Result<T, Status> {
    if name.is_empty() {
        return Err(errors::invalid_field("name", "is required"));
    }
    name.parse().map_err(|error: T::Err| errors::invalid_field("name", error.to_string()))
}

/// The cluster that a list is to be about; nothing if it is about all.
fn cluster_of(state: &State, name: &str) -> Result<Option<ClusterId>, Status> {
    if name.is_empty() {
        return Ok(None);
    }
    let missing = || errors::rejected(&Rejection::NotFound { resource: ResourceName::cluster(name) });
    state.cluster(name).map(|cluster| Some(cluster.id)).ok_or_else(missing)
}

impl ScalingService {
    fn node(&self) -> &loadline_raft_node::Node {
        &self.exchange.node
    }

    /// What there is, one page of it.
    async fn list(&self, kind: ResourceKind, request: &ListScalingRequest) -> Answer<ListResponse> {
        let after = pages::position(kind, &request.page_token)?;
        let size = pages::page_size(request.page_size);
        let state = self.exchange.read(request.consistency).await?;
        let wanted = cluster_of(&state, &request.cluster)?;
        let mut rows = match wanted {
            _ if request.dead_letters => dead_letters(&state, wanted, after.as_deref()),
            None => listing::rows(&state, kind, after.as_deref(), size + 1).ok_or_else(|| pages::not_of(kind))?,
            // One cluster has few of anything: they fit on a page.
            Some(cluster) => of_cluster(&state, kind, cluster),
        };
        let paged = wanted.is_none() || request.dead_letters;
        let more = paged && rows.len() > size;
        rows.truncate(if paged { size } else { usize::MAX });
        let next_page_token = match rows.last() {
            Some((position, _)) if more => pages::token(kind, position),
            _ => String::new(),
        };
        let mut resources: Vec<Resource> = rows.into_iter().map(|(_, resource)| resource).collect();
        self.exchange.name_nodes(&mut resources);
        Ok(Response::new(ListResponse { resources, next_page_token, revision: state.applied().0 }))
    }

    /// What is over, one page of it.
    async fn past(&self, kind: ResourceKind, request: &ListScalingRequest) -> Answer<ListResponse> {
        let before = pages::position(kind, &request.page_token)?;
        let before: Option<u64> = before
            .map(|text| text.strip_prefix('<').and_then(|index| index.parse().ok()))
            .map_or(Ok(None), |index| index.map(Some).ok_or_else(|| pages::not_of(kind)))?;
        let count = pages::page_size(request.page_size);
        let state = self.exchange.read(request.consistency).await?;
        let wanted = cluster_of(&state, &request.cluster)?;
        let of = move |cluster: ClusterId| wanted.is_none_or(|wanted| wanted == cluster);
        let names = state.clone();
        let Past { mut rows, next } = match kind {
            ResourceKind::Decision => {
                let key = wanted.map_or_else(
                    || audit::event_key(Event::DECISION_MADE),
                    |cluster| audit::resource_key(&ResourceName::decision(cluster)),
                );
                let pick = move |_, event: &Event| match event {
                    Event::DecisionMade { decision } if of(decision.cluster) => {
                        Some(shown(Shown::Decision(wire::decision(decision, &names))))
                    }
                    _ => None,
                };
                history::page(self.node(), key, before, count, pick).await?
            }
            ResourceKind::Operation => {
                let pick = move |_, event: &Event| match event {
                    Event::OperationEnded { operation, end } if of(operation.cluster) => {
                        Some(shown(Shown::Operation(wire::operation(operation, Some(*end), &names))))
                    }
                    _ => None,
                };
                history::page(self.node(), key_of(wanted, Event::OPERATION_ENDED), before, count, pick).await?
            }
            _ => {
                let pick = move |index, event: &Event| match event {
                    Event::ActionSettled { action, .. } if of(action.cluster) => {
                        // Every node shows the same rows, however long its journal is.
                        let kept = names.shows_action(action, index);
                        kept.then(|| shown(Shown::Action(wire::action(action, &names))))
                    }
                    _ => None,
                };
                history::page(self.node(), key_of(wanted, Event::ACTION_SETTLED), before, count, pick).await?
            }
        };
        self.exchange.name_nodes(&mut rows);
        let next_page_token = next.map(|index| pages::token(kind, &format!("<{index}"))).unwrap_or_default();
        Ok(Response::new(ListResponse { resources: rows, next_page_token, revision: state.applied().0 }))
    }

    async fn list_or_past(&self, kind: ResourceKind, request: Request<ListScalingRequest>) -> Answer<ListResponse> {
        let request = request.into_inner();
        if request.dead_letters && (kind != ResourceKind::Action || request.history) {
            return Err(errors::invalid_field("dead_letters", "is of actions, and not of the past"));
        }
        if request.history { self.past(kind, &request).await } else { self.list(kind, &request).await }
    }

    /// By its id, or by its revision if no other was recorded there.
    async fn decision(&self, state: &State, name: &str) -> Result<Decision, Status> {
        let wanted: Revision = match name.parse::<u64>() {
            Ok(index) => Revision { index: loadline_state_machine::LogIndex(index), ordinal: u32::MAX },
            Err(_) => named(name)?,
        };
        let any = wanted.ordinal == u32::MAX;
        let matches = |decision: &Decision| decision.id == wanted || (any && decision.id.index == wanted.index);
        let mut found: Vec<Decision> = Vec::new();
        for event in history::at(self.node(), wanted.index).await? {
            if let Event::DecisionMade { decision } = event
                && matches(&decision)
            {
                found.push(*decision);
            }
        }
        if found.is_empty() {
            // The journal of this node may begin later than the decision that still counts.
            let latest = state.clusters_after(None).filter_map(|cluster| state.decision_by_id(cluster.id));
            found.extend(latest.filter(|decision| matches(decision)));
        }
        let count = found.len();
        match (found.pop(), count) {
            (Some(decision), 1) => Ok(decision),
            (Some(last), _) => {
                let message = format!(
                    "{count} decisions were recorded at revision {}: name one of them, such as {}",
                    wanted.index, last.id
                );
                Err(errors::invalid_field("name", message))
            }
            (None, _) => Err(errors::nothing_of_that_name(&format!("decisions/{name}"))),
        }
    }

    async fn operation(&self, state: &State, id: OperationId) -> Result<(Operation, Option<OperationEnd>), Status> {
        if let Some(operation) = state.operation(id) {
            return Ok((operation.clone(), None));
        }
        let name = ResourceName::operation(id);
        let events = history::last_of(self.node(), &name).await?;
        let ended = events.into_iter().rev().find_map(|event| match event {
            Event::OperationEnded { operation, end } if operation.id == id => Some((operation, Some(end))),
            _ => None,
        });
        ended.ok_or_else(|| errors::nothing_of_that_name(&name.to_string()))
    }

    async fn action(&self, state: &State, id: ActionId) -> Result<Action, Status> {
        if let Some(action) = state.action(id).or_else(|| state.dead_letter(id)) {
            return Ok(action.clone());
        }
        let name = ResourceName::action(id);
        let events = history::last_of(self.node(), &name).await?;
        let settled = events.into_iter().rev().find_map(|event| match event {
            Event::ActionSettled { action, .. } if action.id == id => Some(action),
            _ => None,
        });
        settled.map(|action| *action).ok_or_else(|| errors::nothing_of_that_name(&name.to_string()))
    }

    /// With where each part of the answer comes from, on the state that is asked about.
    async fn story(&self, state: &Arc<State>, name: ResourceName) -> Result<ExplainResponse, Status> {
        let (node, own, wanted) = (self.node().clone(), Arc::clone(state), name.clone());
        let story = history::off_thread(move || {
            crate::explaining::explain(&node, &own, &wanted).map_err(|error| errors::trail(&error))
        });
        let Some(story) = story.await? else {
            return Err(match name.kind {
                ResourceKind::Cluster => errors::rejected(&Rejection::NotFound { resource: name }),
                _ => errors::nothing_of_that_name(&name.to_string()),
            });
        };
        let lines = story.lines();
        let facts = story.facts.iter().map(wire::fact).collect();
        let (decision, operation) = (story.decision.as_ref(), story.operation.as_ref());
        let mut answer = ExplainResponse {
            decision: decision.map(|it| wire::decision(it, state)),
            operation: operation.map(|(it, end)| wire::operation(it, *end, state)),
            actions: story.action.iter().map(|it| wire::action(it, state)).collect(),
            lines,
            facts,
            revision: state.applied().0,
            ..ExplainResponse::default()
        };
        if let Some(why) = &story.explanation {
            answer.decision = Some(wire::decision(&why.now, state));
            answer.recorded = why.recorded.as_ref().map(|it| wire::decision(it, state));
            answer.pause = why.pause.as_ref().map(wire::pause);
            answer.operation = why.operation.as_ref().map(|it| wire::operation(it, None, state));
            answer.actions = why.actions.iter().map(|(it, _)| wire::action(it, state)).collect();
            answer.pending_since_ms = why.pending_since.map(millis).unwrap_or_default();
            answer.idle_since_ms = why.idle_since.map(millis).unwrap_or_default();
        }
        Ok(answer)
    }

    /// The state that an explanation is to be about.
    async fn asked_about(&self, request: &ExplainRequest) -> Result<Arc<State>, Status> {
        let moment = match (request.at_index, request.at_time_ms) {
            (0, 0) => return self.exchange.read(request.consistency).await,
            (index, 0) => Moment::Index(index),
            (0, millis) => match u64::try_from(millis) {
                Ok(millis) => Moment::Time(Time::from_millis(millis)),
                Err(_) => return Err(errors::invalid_field("at_time_ms", "must not be before 1970")),
            },
            _ => return Err(errors::invalid_field("at_time_ms", "is given beside at_index: give one of them")),
        };
        let travel = Arc::clone(&self.travel);
        let until = Instant::now() + TRAVEL_MAX;
        history::off_thread(move || {
            travel.to(moment, || Instant::now() < until).map_err(|error| errors::travel(&error))
        })
        .await
    }
}

/// Where events of this kind are found, of one cluster or of all.
fn key_of(wanted: Option<ClusterId>, kind: u16) -> Vec<u8> {
    wanted.map_or_else(|| audit::event_key(kind), |cluster| audit::cluster_event_key(cluster, kind))
}

/// What was given up, the oldest first; there are never many.
fn dead_letters(state: &State, wanted: Option<ClusterId>, after: Option<&str>) -> Vec<(String, Resource)> {
    let after: Option<ActionId> = after.and_then(|after| after.parse().ok());
    let letters = state.dead_letters().filter(|it| wanted.is_none_or(|wanted| it.cluster == wanted));
    let rest = letters.filter(|it| after.is_none_or(|after| it.id > after));
    rest.map(|it| (it.id.to_string(), shown(Shown::Action(wire::action(it, state))))).collect()
}

/// What there is of one cluster.
fn of_cluster(state: &State, kind: ResourceKind, cluster: ClusterId) -> Vec<(String, Resource)> {
    use loadline_state_machine::Resource as Kept;
    let kept: Vec<Kept> = match kind {
        ResourceKind::Strategy => {
            state.ruling(cluster).into_iter().map(|ruled| Kept::Strategy(ruled.strategy.clone())).collect()
        }
        ResourceKind::Decision => {
            state.decision_by_id(cluster).map(|it| Kept::Decision(Box::new(it))).into_iter().collect()
        }
        ResourceKind::Operation => {
            let operation = state.standing(cluster).and_then(|standing| standing.operation());
            operation.cloned().map(|it| Kept::Operation(Box::new(it))).into_iter().collect()
        }
        ResourceKind::Action => {
            let actions = state.actions().filter(|action| action.cluster == cluster);
            actions.cloned().map(|it| Kept::Action(Box::new(it))).collect()
        }
        ResourceKind::Size
        | ResourceKind::Cluster
        | ResourceKind::Setting
        | ResourceKind::Role
        | ResourceKind::Signal => Vec::new(),
    };
    kept.iter().map(|it| (it.name().name, resource(it, state))).collect()
}

#[tonic::async_trait]
impl Scaling for ScalingService {
    async fn create_strategy(&self, request: Request<CreateStrategyRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::create_strategy).await
    }

    async fn update_strategy(&self, request: Request<UpdateStrategyRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::update_strategy).await
    }

    async fn delete_strategy(&self, request: Request<DeleteStrategyRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::delete_strategy).await
    }

    async fn delete_strategies(&self, request: Request<DeleteStrategiesRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::delete_strategies).await
    }

    async fn get_strategy(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        let id = named(&request.name)?;
        let state = self.exchange.read(request.consistency).await?;
        let missing = || errors::rejected(&Rejection::NotFound { resource: ResourceName::strategy(id) });
        let strategy = state.strategy(id).ok_or_else(missing)?;
        let resource = Some(shown(Shown::Strategy(wire::strategy(strategy, &state))));
        Ok(Response::new(ReadResponse { resource, revision: state.applied().0 }))
    }

    async fn list_strategies(&self, request: Request<ListScalingRequest>) -> Answer<ListResponse> {
        let request = request.into_inner();
        if request.history {
            return Err(errors::invalid_field("history", "is of decisions, operations and actions"));
        }
        self.list(ResourceKind::Strategy, &request).await
    }

    async fn create_replica(&self, request: Request<CreateReplicaRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::create_replica).await
    }

    async fn delete_replica(&self, request: Request<DeleteReplicaRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::delete_replica).await
    }

    async fn pause_cluster(&self, request: Request<PauseClusterRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::pause_cluster).await
    }

    async fn resume_cluster(&self, request: Request<ResumeClusterRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::resume_cluster).await
    }

    async fn approve_action(&self, request: Request<ApproveActionRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::approve_action).await
    }

    async fn reject_action(&self, request: Request<RejectActionRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::reject_action).await
    }

    async fn retry_action(&self, request: Request<RetryActionRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::retry_action).await
    }

    async fn resolve_action(&self, request: Request<ResolveActionRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::resolve_action).await
    }

    async fn abandon_action(&self, request: Request<AbandonActionRequest>) -> Answer<WriteResponse> {
        self.exchange.write(request, Write::abandon_action).await
    }

    async fn get_decision(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        let state = self.exchange.read(request.consistency).await?;
        let decision = self.decision(&state, &request.name).await?;
        let resource = Some(shown(Shown::Decision(wire::decision(&decision, &state))));
        Ok(Response::new(ReadResponse { resource, revision: state.applied().0 }))
    }

    async fn list_decisions(&self, request: Request<ListScalingRequest>) -> Answer<ListResponse> {
        self.list_or_past(ResourceKind::Decision, request).await
    }

    async fn get_operation(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        let id = named(&request.name)?;
        let state = self.exchange.read(request.consistency).await?;
        let (operation, end) = self.operation(&state, id).await?;
        let resource = Some(shown(Shown::Operation(wire::operation(&operation, end, &state))));
        Ok(Response::new(ReadResponse { resource, revision: state.applied().0 }))
    }

    async fn list_operations(&self, request: Request<ListScalingRequest>) -> Answer<ListResponse> {
        self.list_or_past(ResourceKind::Operation, request).await
    }

    async fn get_action(&self, request: Request<GetRequest>) -> Answer<ReadResponse> {
        let request = request.into_inner();
        let id = named(&request.name)?;
        let state = self.exchange.read(request.consistency).await?;
        let action = self.action(&state, id).await?;
        let mut resource = shown(Shown::Action(wire::action(&action, &state)));
        self.exchange.name_nodes([&mut resource]);
        Ok(Response::new(ReadResponse { resource: Some(resource), revision: state.applied().0 }))
    }

    async fn list_actions(&self, request: Request<ListScalingRequest>) -> Answer<ListResponse> {
        self.list_or_past(ResourceKind::Action, request).await
    }

    async fn explain(&self, request: Request<ExplainRequest>) -> Answer<ExplainResponse> {
        let request = request.into_inner();
        let wanted = fields::resource_name("name", &request.name).map_err(errors::invalid)?;
        let state = self.asked_about(&request).await?;
        let name = match wanted {
            Some(name @ ResourceName { kind: ResourceKind::Cluster, .. }) => name,
            Some(name @ ResourceName { kind: ResourceKind::Decision, .. }) => {
                if name.name.parse::<u64>().is_err() {
                    named::<Revision>(&name.name)?;
                }
                name
            }
            Some(ResourceName { kind: ResourceKind::Action, name }) => ResourceName::action(named(&name)?),
            _ => {
                let wanted = "must be clusters/NAME, decisions/ID or actions/ID";
                return Err(errors::invalid_field("name", format!("{:?} {wanted}", request.name)));
            }
        };
        let mut answer = self.story(&state, name).await?;
        name_nodes_of(self.node(), &mut answer.actions);
        Ok(Response::new(answer))
    }
}
