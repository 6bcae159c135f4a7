//! What `dev` puts into a new group, so that there is something to see: a ladder of sizes, a cluster on this machine, and two
//! strategies for it.
//!
//! It is done once for a folder. What the user changed or deleted afterwards stays as it is, and what was there before is
//! not touched either: everything is made only where it is missing.

use std::path::Path;

use loadline_client::v1::change::Change;
use loadline_client::v1::resource::Resource as Kept;
use loadline_client::v1::strategy_target::Target;
use loadline_client::v1::{
    Cluster, CreateClusterRequest, CreateSizeRequest, CreateStrategyRequest, SetSettingRequest, Size, Strategy,
    StrategyTarget,
};
use loadline_client::{Client, Error, Kind, Reading, ScalingWrite, Writing};
use serde::{Deserialize, Serialize};

use super::state::write_json;
use crate::exit::Failed;

/// The cluster.
pub(super) const CLUSTER: &str = "demo";
/// The backend that every node of `dev` has.
pub(super) const BACKEND: &str = "local";
/// Says that the demo was made in this folder.
const FILE: &str = "demo.json";

/// Name, slots and price of an hour in millionths: each step is twice the one before.
const SIZES: [(&str, u32, u64); 5] = [
    ("25cc", 1, 100_000),
    ("50cc", 2, 200_000),
    ("100cc", 4, 400_000),
    ("200cc", 8, 800_000),
    ("400cc", 16, 1_600_000),
];

const SETTINGS: [(&str, &str); 2] = [("default_backend", BACKEND), ("enable_auto_scaling", "true")];

/// Type and options. Short enough that nobody falls asleep: a cluster that is not used is suspended after half a minute.
const STRATEGIES: [(&str, &[(&str, &str)]); 2] = [
    ("target_size", &[("SIZE", "100cc"), ("COOLDOWN", "10s")]),
    ("idle_suspend", &[("IDLE_AFTER", "30s"), ("COOLDOWN", "10s")]),
];

#[derive(Debug, Serialize, Deserialize)]
struct Made {
    cluster: String,
}

/// Makes the demo unless it was made before in this folder. Says whether its cluster is there.
pub(super) async fn set_up(home: &Path, client: &Client) -> Result<bool, Failed> {
    let marker = home.join(FILE);
    if !marker.exists() {
        make(client).await?;
        write_json(&marker, &Made { cluster: CLUSTER.to_owned() })?;
    }
    match client.get(Kind::Cluster, CLUSTER, Reading::Linearizable).await {
        Ok(_) => Ok(true),
        Err(Error::Refused(refusal)) if refusal.code == tonic::Code::NotFound => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn make(client: &Client) -> Result<(), Failed> {
    for (name, slots, price_micros_per_hour) in SIZES {
        let size = Size { name: name.to_owned(), slots, price_micros_per_hour, ..Size::default() };
        let create = CreateSizeRequest { options: None, size: Some(size) };
        unless_there(client.write(Change::CreateSize(create), Writing::Record).await)?;
    }
    for (name, value) in SETTINGS {
        let found = client.get(Kind::Setting, name, Reading::Linearizable).await?;
        if matches!(found.resource.resource, Some(Kept::Setting(setting)) if !setting.is_default) {
            continue;
        }
        let set = SetSettingRequest {
            options: None,
            name: name.to_owned(),
            value: value.to_owned(),
            ..SetSettingRequest::default()
        };
        client.write(Change::SetSetting(set), Writing::Record).await?;
    }
    let cluster = Cluster { name: CLUSTER.to_owned(), ..Cluster::default() };
    let create = CreateClusterRequest { options: None, cluster: Some(cluster) };
    if !unless_there(client.write(Change::CreateCluster(create), Writing::Record).await)? {
        // Somebody's own, of the same name: it is scaled as its owner says.
        return Ok(());
    }
    for (kind, options) in STRATEGIES {
        let strategy = Strategy {
            r#type: kind.to_owned(),
            target: Some(StrategyTarget { target: Some(Target::Cluster(CLUSTER.to_owned())) }),
            options: options.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Strategy::default()
        };
        let create = CreateStrategyRequest { options: None, strategy: Some(strategy), allow_existing: true };
        client.write_scaling(ScalingWrite::CreateStrategy(create), Writing::Record).await?;
    }
    Ok(())
}

/// True: it was made now. False: there is one already.
fn unless_there<T>(made: Result<T, Error>) -> Result<bool, Failed> {
    match made {
        Ok(_) => Ok(true),
        Err(Error::Refused(refusal)) if refusal.code == tonic::Code::AlreadyExists => Ok(false),
        Err(error) => Err(error.into()),
    }
}
