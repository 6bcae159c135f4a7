//! The services that callers find at a node, each behind its door, and how connections to them are kept.

use std::sync::Arc;

use loadline_api::FILE_DESCRIPTOR_SET;
use loadline_api::v1::admin_server::AdminServer;
use loadline_api::v1::audit_server::AuditServer;
use loadline_api::v1::operator_server::OperatorServer;
use loadline_api::v1::scale_to_zero_server::ScaleToZeroServer;
use loadline_api::v1::scaling_server::ScalingServer;
use loadline_api::v1::signals_server::SignalsServer;
use loadline_api::v1::watch_server::WatchServer;
use loadline_api::v1::writes_server::WritesServer;
use tonic::service::{LayerExt as _, Routes};
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};

use super::admin::AdminService;
use super::audit::AuditService;
use super::guard::Guard;
use super::limits::{Deadlines, Door};
use super::operator::OperatorService;
use super::scale_to_zero::ScaleToZeroService;
use super::scaling::ScalingService;
use super::signals::SignalsService;
use super::watch::WatchService;
use super::writes::WritesService;
use crate::config::{Limits, ServerConfig};
use crate::metrics::Metrics;
use crate::serve::ServeError;

/// No header of ours comes near it.
const HEADERS_BYTES_MAX: u32 = 16 << 10;

/// How connections are kept.
pub(crate) fn transport(limits: &Limits) -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .max_concurrent_streams(u32::try_from(limits.streams_max).unwrap_or(u32::MAX))
        .http2_keepalive_interval(Some(limits.keepalive_interval))
        .http2_keepalive_timeout(Some(limits.keepalive_timeout))
        // No grace after it: calls and streams under way, those between nodes too, end by themselves.
        .max_connection_age(limits.connection_age_max)
        .http2_max_header_list_size(HEADERS_BYTES_MAX)
}

/// What callers may ask of a node.
pub(crate) struct Services {
    pub(crate) admin: AdminService,
    pub(crate) scaling: ScalingService,
    pub(crate) scale_to_zero: ScaleToZeroService,
    pub(crate) signals: SignalsService,
    pub(crate) writes: WritesService,
    pub(crate) watch: WatchService,
    pub(crate) operator: OperatorService,
    pub(crate) audit: AuditService,
}

impl Services {
    pub(crate) fn behind(self, doors: &Doors, guard: &Guard, limits: &Limits) -> Routes {
        let (message_in, message_out) = (size(limits.message_in_max), size(limits.message_out_max));
        let admin =
            AdminServer::new(self.admin).max_decoding_message_size(message_in).max_encoding_message_size(message_out);
        let scaling = ScalingServer::new(self.scaling)
            .max_decoding_message_size(message_in)
            .max_encoding_message_size(message_out);
        let scale_to_zero = ScaleToZeroServer::new(self.scale_to_zero)
            .max_decoding_message_size(message_in)
            .max_encoding_message_size(message_out);
        let signals = SignalsServer::new(self.signals)
            .max_decoding_message_size(message_in)
            .max_encoding_message_size(message_out);
        let writes =
            WritesServer::new(self.writes).max_decoding_message_size(message_in).max_encoding_message_size(message_out);
        let watch =
            WatchServer::new(self.watch).max_decoding_message_size(message_in).max_encoding_message_size(message_out);
        let operator = OperatorServer::new(self.operator)
            .max_decoding_message_size(message_in)
            .max_encoding_message_size(message_out);
        let audit =
            AuditServer::new(self.audit).max_decoding_message_size(message_in).max_encoding_message_size(message_out);
        Routes::default()
            .add_service(doors.admin.named_layer(guard.named_layer(admin)))
            .add_service(doors.scaling.named_layer(guard.named_layer(scaling)))
            .add_service(doors.scale_to_zero.named_layer(guard.named_layer(scale_to_zero)))
            .add_service(doors.signals.named_layer(guard.named_layer(signals)))
            .add_service(doors.writes.named_layer(guard.named_layer(writes)))
            .add_service(doors.watch.named_layer(guard.named_layer(watch)))
            .add_service(doors.operator.named_layer(guard.named_layer(operator)))
            .add_service(doors.audit.named_layer(guard.named_layer(audit)))
    }
}

pub(crate) fn reflection() -> Result<ServerReflectionServer<impl ServerReflection>, ServeError> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        .build_v1()
        .map_err(ServeError::Reflection)
}

/// The doors of the client services. Each has places of its own, so that a flood of one leaves room for the others:
/// an operator can look at a node that is overrun.
#[derive(Debug, Clone)]
pub(crate) struct Doors {
    admin: Door,
    scaling: Door,
    /// Of its own, so that many who wait for clusters to wake keep nobody from anything else.
    scale_to_zero: Door,
    /// Of its own, so that a flood of signals keeps nobody from changing a strategy.
    signals: Door,
    /// A stream has one place, however many callers share it.
    writes: Door,
    watch: Door,
    operator: Door,
    /// Of its own, so that many who read the past keep no operator from the present.
    audit: Door,
    pub(crate) helpers: Door,
}

impl Doors {
    pub(crate) fn new(config: &ServerConfig, metrics: &Arc<Metrics>) -> Doors {
        let limits = &config.limits;
        let deadlines = Deadlines { default: limits.request_deadline, max: limits.request_deadline_max };
        let door = |service, places| Door::new(service, places, deadlines, Arc::clone(metrics));
        Doors {
            admin: door("Admin", size(limits.requests_max)),
            scaling: door("Scaling", size(limits.requests_max)),
            scale_to_zero: door("ScaleToZero", size(limits.watches_max)),
            signals: door("Signals", size(limits.requests_max)),
            writes: door("Writes", size(limits.requests_max)),
            watch: door("Watch", size(limits.watches_max)),
            operator: door("Operator", size(limits.operator_calls_max)),
            audit: door("Audit", size(limits.operator_calls_max)),
            // Health can be watched, too.
            helpers: door("other", size(limits.watches_max)),
        }
    }

    pub(crate) fn all(&self) -> Vec<Door> {
        let Doors { admin, scaling, scale_to_zero, signals, writes, watch, operator, audit, helpers: _ } = self.clone();
        vec![admin, scaling, scale_to_zero, signals, writes, watch, operator, audit]
    }
}

pub(crate) fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
