//! The strategies there are, and which of them rules a cluster.
//!
//! For every kind, a cluster is ruled by the strategy that names it, else by that of the most particular pattern, else by
//! that for all clusters. A strategy takes its place whether it is enabled, readable or neither: switching one off must not
//! hand its cluster to a wider one.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::like::Like;
use super::options::Options;
use super::{Configuration, ConfigurationProblem, StrategyKind};
use crate::sizes::Sizes;
use crate::table::{Key, Table};
use crate::{ClusterId, Revision, StrategyId, Time};

/// Which clusters a strategy is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Target {
    Cluster(ClusterId),
    /// All clusters whose name is LIKE this, at any time.
    Pattern(Key),
    All,
}

/// The same, as a user says it: a cluster has a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TargetName {
    Cluster(String),
    Pattern(String),
    All,
}

impl fmt::Display for TargetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "cluster {name}"),
            Self::Pattern(pattern) => write!(f, "all clusters like '{pattern}'"),
            Self::All => f.write_str("all clusters"),
        }
    }
}

/// A configured rule of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strategy {
    pub id: StrategyId,
    pub kind: StrategyKind,
    pub target: Target,
    pub options: Options,
    /// The version that the options had when they came; nothing if it was the current one. Worth a warning: what they
    /// meant was worked out, not said.
    pub migrated_from: Option<u32>,
    pub created: Revision,
    /// The etag.
    pub updated: Revision,
    pub created_at: Time,
    pub updated_at: Time,
}

impl Strategy {
    /// What the options mean, or why they mean nothing. A size that they name may still be missing.
    pub fn configuration(&self) -> Result<Configuration, ConfigurationProblem> {
        Configuration::read(self.kind, &self.options)
    }
}

/// What options mean, or why they mean nothing: understood once for all strategies that have the same ones.
pub(crate) type Understood = Arc<Result<Configuration, ConfigurationProblem>>;

/// What an evaluation needs of a strategy, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ruler {
    pub(crate) id: StrategyId,
    pub(crate) kind: StrategyKind,
    pub(crate) configuration: Understood,
}

/// Options that some strategies have, and how many of them. Most clusters are configured like others: kept once for all of
/// them, options take a third less memory, and what they mean stays in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
struct InUse {
    configuration: Understood,
    strategies: usize,
}

/// One of each kind, side by side: whoever looks at a cluster looks at all of them.
pub(crate) type Rulers = [Option<Ruler>; StrategyKind::COUNT];

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    ruler: Ruler,
    pattern: Key,
    like: Like,
    /// How many clusters it matches: the fewer, the more particular.
    matches: u64,
}

/// The strategy that rules a cluster, of one kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ruling<'a> {
    pub(crate) ruler: &'a Ruler,
    /// A pattern that matches this cluster and as many clusters as the one that rules. The older one rules.
    pub(crate) tied_with: Option<StrategyId>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Strategies {
    by_id: Table<StrategyId, Arc<Strategy>>,
    by_cluster: Table<ClusterId, Arc<Rulers>>,
    all: Rulers,
    /// Of each kind, the most particular first, and of two equal ones the older.
    patterns: [Arc<Vec<Pattern>>; StrategyKind::COUNT],
    in_use: Table<(StrategyKind, Options), InUse>,
}

impl Strategies {
    /// By age.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Strategy> {
        self.by_id.values().map(Arc::as_ref)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(crate) fn get(&self, id: StrategyId) -> Option<&Strategy> {
        self.by_id.get(&id).map(Arc::as_ref)
    }

    pub(crate) fn find(&self, target: &Target, kind: StrategyKind) -> Option<&Strategy> {
        let slot = kind.slot();
        let ruler = match target {
            Target::Cluster(id) => self.by_cluster.get(id)?[slot].as_ref(),
            Target::All => self.all[slot].as_ref(),
            Target::Pattern(pattern) => {
                self.patterns[slot].iter().find(|it| it.pattern == *pattern).map(|it| &it.ruler)
            }
        };
        self.get(ruler?.id)
    }

    /// Those that name this very cluster.
    pub(crate) fn own(&self, id: ClusterId) -> Option<&Arc<Rulers>> {
        self.by_cluster.get(&id)
    }

    /// Those that name this very cluster.
    pub(crate) fn of_cluster(&self, id: ClusterId) -> impl Iterator<Item = &Strategy> {
        let own = self.own(id).into_iter().flat_map(|own| own.iter().flatten());
        own.filter_map(|ruler| self.get(ruler.id))
    }

    /// Which strategy of each kind rules a cluster whose own ones these are, in the order in which they run. Its name is only asked for where there are
    /// patterns.
    pub(crate) fn rulings<'s, 'n>(
        &'s self,
        own: Option<&'s Rulers>,
        name: impl Fn() -> Option<&'n str>,
    ) -> [Option<Ruling<'s>>; StrategyKind::COUNT] {
        StrategyKind::PRIORITY_ORDER.map(|kind| {
            let slot = kind.slot();
            let untied = |ruler| Ruling { ruler, tied_with: None };
            own.and_then(|own| own[slot].as_ref())
                .map(untied)
                .or_else(|| self.most_particular(slot, &name))
                .or_else(|| self.all[slot].as_ref().map(untied))
        })
    }

    fn most_particular<'n>(&self, slot: usize, name: impl Fn() -> Option<&'n str>) -> Option<Ruling<'_>> {
        let patterns = &self.patterns[slot];
        let name = if patterns.is_empty() { None } else { name() }?;
        let mut matching = patterns.iter().filter(|pattern| pattern.like.matches(name));
        let first = matching.next()?;
        let tied = matching.next().filter(|second| second.matches == first.matches);
        Some(Ruling { ruler: &first.ruler, tied_with: tied.map(|second| second.ruler.id) })
    }

    /// The patterns of one kind: whose each is, and how many clusters it matches.
    pub(crate) fn patterns(&self, kind: StrategyKind) -> impl Iterator<Item = (StrategyId, &Key, &Like, u64)> {
        self.patterns[kind.slot()].iter().map(|it| (it.ruler.id, &it.pattern, &it.like, it.matches))
    }

    pub(crate) fn pattern_count(&self) -> usize {
        self.patterns.iter().map(|patterns| patterns.len()).sum()
    }

    /// How many clusters the pattern of this strategy matches; nothing if it has none.
    pub(crate) fn matches(&self, strategy: &Strategy) -> Option<u64> {
        self.patterns(strategy.kind).find(|(id, ..)| *id == strategy.id).map(|(.., matches)| matches)
    }

    /// `names` are those of all clusters, to be counted if the strategy has a pattern.
    pub(crate) fn put<'a>(&mut self, strategy: &Strategy, sizes: &Sizes, names: impl Iterator<Item = &'a str>) {
        self.remove(strategy.id);
        let (options, configuration) = self.understand(strategy, sizes);
        let ruler = Ruler { id: strategy.id, kind: strategy.kind, configuration };
        let slot = strategy.kind.slot();
        match &strategy.target {
            Target::Cluster(cluster) => {
                let own = Arc::make_mut(self.by_cluster.entry(*cluster).or_default());
                own[slot] = Some(ruler);
            }
            Target::All => self.all[slot] = Some(ruler),
            Target::Pattern(pattern) => {
                // What cannot be understood was never let in; it would match nothing.
                if let Some(like) = Like::new(pattern) {
                    let matches = names.filter(|name| like.matches(name)).count() as u64;
                    let patterns = Arc::make_mut(&mut self.patterns[slot]);
                    patterns.push(Pattern { ruler, pattern: Key::clone(pattern), like, matches });
                    sort(patterns);
                }
            }
        }
        self.by_id.insert(strategy.id, Arc::new(Strategy { options, ..strategy.clone() }));
    }

    /// The one copy of its options, which has one user more now, and what they mean.
    fn understand(&mut self, strategy: &Strategy, sizes: &Sizes) -> (Options, Understood) {
        let wanted = (strategy.kind, strategy.options.clone());
        let key = self.in_use.get_key_value(&wanted).map_or(wanted, |(known, _)| known.clone());
        let in_use = self.in_use.entry(key.clone()).or_insert_with(|| {
            let mut configuration = strategy.configuration();
            if let Ok(configuration) = &mut configuration {
                configuration.rule.share_names(sizes);
            }
            InUse { configuration: Arc::new(configuration), strategies: 0 }
        });
        in_use.strategies += 1;
        (key.1, in_use.configuration.clone())
    }

    /// One user fewer.
    fn forget(&mut self, strategy: &Strategy) {
        let key = (strategy.kind, strategy.options.clone());
        if let Some(in_use) = self.in_use.get_mut(&key) {
            in_use.strategies -= 1;
            if in_use.strategies == 0 {
                self.in_use.remove(&key);
            }
        }
    }

    pub(crate) fn remove(&mut self, id: StrategyId) {
        let Some(strategy) = self.by_id.remove(&id) else { return };
        self.forget(&strategy);
        let slot = strategy.kind.slot();
        match &strategy.target {
            Target::Cluster(cluster) => {
                if let Some(own) = self.by_cluster.get_mut(cluster) {
                    let own = Arc::make_mut(own);
                    own[slot] = None;
                    if own.iter().all(Option::is_none) {
                        self.by_cluster.remove(cluster);
                    }
                }
            }
            Target::All => self.all[slot] = None,
            Target::Pattern(_) => {
                Arc::make_mut(&mut self.patterns[slot]).retain(|pattern| pattern.ruler.id != id);
            }
        }
    }

    /// A cluster came, went, or changed its name: each pattern may match one more or one fewer. True: that changes which of
    /// them are more particular than others, so other clusters may be ruled by another one now.
    pub(crate) fn cluster_renamed(&mut self, from: Option<&str>, to: Option<&str>) -> bool {
        let mut reordered = false;
        for patterns in self.patterns.iter_mut().filter(|patterns| !patterns.is_empty()) {
            let matches = |like: &Like, name: Option<&str>| u64::from(name.is_some_and(|name| like.matches(name)));
            if patterns.iter().all(|it| matches(&it.like, from) == matches(&it.like, to)) {
                continue;
            }
            let before = standing(patterns);
            let patterns = Arc::make_mut(patterns);
            for pattern in patterns.iter_mut() {
                pattern.matches += matches(&pattern.like, to);
                pattern.matches = pattern.matches.saturating_sub(matches(&pattern.like, from));
            }
            sort(patterns);
            reordered |= standing(patterns) != before;
        }
        reordered
    }
}

/// Who comes before whom, and who is tied with the next.
fn standing(patterns: &[Pattern]) -> Vec<(StrategyId, bool)> {
    let next = patterns.iter().skip(1).map(|next| next.matches).map(Some).chain([None]);
    patterns.iter().zip(next).map(|(it, next)| (it.ruler.id, Some(it.matches) == next)).collect()
}

fn sort(patterns: &mut [Pattern]) {
    patterns.sort_by_key(|pattern| (pattern.matches, pattern.ruler.id));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LogIndex;

    fn strategy(ordinal: u32, target: Target) -> Strategy {
        let made = Revision { index: LogIndex(1), ordinal };
        Strategy {
            id: made.into(),
            kind: StrategyKind::IdleSuspend,
            target,
            options: Options::from([("idle_after_s", 60)]),
            migrated_from: None,
            created: made,
            updated: made,
            created_at: Time::default(),
            updated_at: Time::default(),
        }
    }

    fn id(ordinal: u32) -> StrategyId {
        StrategyId { index: LogIndex(1), ordinal }
    }

    const CLUSTER: ClusterId = ClusterId { index: LogIndex(9), ordinal: 0 };

    /// Who rules the cluster of this name, and with whom it is tied.
    fn ruling(strategies: &Strategies, name: &str) -> Option<(StrategyId, Option<StrategyId>)> {
        let own = strategies.own(CLUSTER).map(Arc::as_ref);
        let ruling = strategies.rulings(own, || Some(name))[StrategyKind::IdleSuspend.priority()]?;
        Some((ruling.ruler.id, ruling.tied_with))
    }

    fn table(names: &[&str], targets: Vec<Target>) -> Strategies {
        let mut strategies = Strategies::default();
        for (ordinal, target) in (0..).zip(targets) {
            strategies.put(&strategy(ordinal, target), &Sizes::default(), names.iter().copied());
        }
        strategies
    }

    #[test]
    fn the_cluster_itself_comes_before_a_pattern_and_a_pattern_before_all() {
        let pattern = Target::Pattern("prod%".into());
        let mut strategies = table(&["prod_a"], vec![Target::All, pattern, Target::Cluster(CLUSTER)]);
        assert_eq!(ruling(&strategies, "prod_a"), Some((id(2), None)));
        strategies.remove(id(2));
        assert_eq!(ruling(&strategies, "prod_a"), Some((id(1), None)));
        assert_eq!(ruling(&strategies, "test"), Some((id(0), None)));
        strategies.remove(id(1));
        assert_eq!(ruling(&strategies, "prod_a"), Some((id(0), None)));
        strategies.remove(id(0));
        assert_eq!(ruling(&strategies, "prod_a"), None);
        assert_eq!(strategies, Strategies::default(), "nothing is left behind");
    }

    #[test]
    fn strategies_with_the_same_options_share_them() {
        let mut strategies = Strategies::default();
        for ordinal in 0..3 {
            let cluster = ClusterId { index: LogIndex(ordinal.into()), ordinal: 0 };
            let mut strategy = strategy(ordinal, Target::Cluster(cluster));
            if ordinal == 2 {
                strategy.options.set("idle_after_s", 61);
            }
            strategies.put(&strategy, &Sizes::default(), std::iter::empty());
        }
        let understood = |strategies: &Strategies, cluster| {
            let id = ClusterId { index: LogIndex(cluster), ordinal: 0 };
            strategies.own(id).and_then(|own| own[StrategyKind::IdleSuspend.slot()].clone()).map(|it| it.configuration)
        };
        let [first, second, third] =
            [0, 1, 2].map(|cluster| understood(&strategies, cluster).expect("it was put there"));
        assert!(Arc::ptr_eq(&first, &second) && !Arc::ptr_eq(&first, &third));
        let before = strategies.clone();
        strategies.put(&strategy(0, Target::All), &Sizes::default(), std::iter::empty());
        strategies.remove(id(2));
        assert_eq!(strategies.in_use.values().map(|it| it.strategies).collect::<Vec<_>>(), [2]);
        strategies.remove(id(0));
        strategies.remove(id(1));
        assert_eq!(strategies, Strategies::default(), "nothing is left behind");
        assert_eq!(before.in_use.len(), 2, "a fork keeps what it has");
    }

    #[test]
    fn of_two_patterns_the_one_that_matches_fewer_clusters_rules() {
        let names = ["prod_a", "prod_b", "a"];
        let strategies = table(&names, vec![Target::Pattern("prod%".into()), Target::Pattern("prod_a%".into())]);
        assert_eq!(ruling(&strategies, "prod_a"), Some((id(1), None)));
        assert_eq!(ruling(&strategies, "prod_b"), Some((id(0), None)));
    }

    #[test]
    fn a_cluster_that_comes_later_can_tie_two_patterns_and_the_older_one_rules() {
        let mut strategies =
            table(&["a_x", "b_x", "c_x"], vec![Target::Pattern("%\\_x".into()), Target::Pattern("a%".into())]);
        assert_eq!(ruling(&strategies, "a_x"), Some((id(1), None)));
        assert!(!strategies.cluster_renamed(None, Some("a")), "nobody else is ruled differently");
        assert!(strategies.cluster_renamed(Some("c_x"), None));
        assert_eq!(ruling(&strategies, "a_x"), Some((id(0), Some(id(1)))));
        assert!(strategies.cluster_renamed(Some("a"), Some("other")));
        assert_eq!(ruling(&strategies, "a_x"), Some((id(1), None)));
    }
}
