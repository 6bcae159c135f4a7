//! Conversations with the state machine, kept as text: what somebody says, and all that came of it.
//!
//! A line that begins at the margin is said by somebody; the indented lines below it are the answer, and are rewritten
//! by `LOADLINE_GOLDEN=rewrite cargo test -p loadline-state-machine --test all conversations`. The diff is the review.
//!
//! ```text
//! alice: create cluster demo                 one request in one entry
//! & bob: create cluster other                another request in the same entry
//! alice: create cluster a; create cluster b  a transaction
//! alice (#7): create cluster demo            under request id 7, made at noon, when all begins; (#7 -5m) five minutes ago
//! time passes 10m                            the clock of the leader goes on; "time falls back 10m" is a bad clock
//! raft: anything                             an index that holds something of Raft's own
//! snapshot                                   the state is written to bytes and read back
//! backup NAME                                keeps the bytes of the state, for "begin restore NAME"
//! list                                       everything there is; "list settings": those at their default, too
//! ```

mod say;
mod show;

use crate::common::{golden_file, rewriting, write_golden_file};
use say::Speaker;

fn check(name: &str) {
    let path = format!("conversations/{name}.txt");
    let expected = golden_file(&path);
    assert!(!expected.is_empty(), "{path} is missing");
    let said = expected.lines().filter(|line| !line.starts_with("    "));
    let mut speaker = Speaker::new();
    let mut actual = String::new();
    // Lines that begin with "&" belong to the entry of the line above, so an entry is done when the next line is not one.
    let mut lines = said.peekable();
    while let Some(line) = lines.next() {
        actual += &format!("{line}\n");
        let mut entry = vec![line];
        while let Some(more) = lines.next_if(|line| line.starts_with("& ")) {
            actual += &format!("{more}\n");
            entry.push(more);
        }
        for answer in speaker.hear(&entry) {
            actual += &format!("    {answer}\n");
        }
    }
    if rewriting() {
        write_golden_file(&path, &actual);
    } else {
        assert_eq!(actual, expected, "{path} differs; LOADLINE_GOLDEN=rewrite rewrites it");
    }
}

macro_rules! conversations {
    ($($name:ident),* $(,)?) => {
        $( #[test] fn $name() { check(stringify!($name)); } )*

        /// A conversation that nobody holds proves nothing.
        #[test]
        fn every_conversation_is_held() {
            let mut held: Vec<String> = vec![$( format!("{}.txt", stringify!($name)) ),*];
            held.sort();
            let folder = format!("{}/tests/conversations", env!("CARGO_MANIFEST_DIR"));
            let mut kept: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .filter(|name| name.ends_with(".txt"))
                .collect();
            kept.sort();
            assert_eq!(held, kept);
        }
    };
}

conversations! {
    a_change_is_made_only_if_what_decides_is_as_it_was_seen,
    a_cluster_is_woken_by_hand_and_kept_awake,
    a_wake_comes_between_two_replicas_of_a_scale_down,
    what_is_suspended_is_checkpointed_first_where_that_can_be,
    a_panic_of_knative_only_grows_and_ends_after_its_window,
    a_ratio_counts_once_for_each_number_of_replicas,
    a_target_of_nomad_changes_by_so_many_at_a_time,
    an_override_holds_a_minimum_until_its_deadline,
    a_node_suggests_what_nobody_has_said,
    a_backup_brings_strategies_back_and_ends_what_was_under_way,
    a_backup_starts_a_new_incarnation,
    a_bad_configuration_disables_only_itself,
    a_burst_replica_helps_until_another_one_is_hydrated,
    a_call_says_the_same_under_its_key_for_ever,
    a_claim_looks_again_at_what_has_changed,
    a_cluster_is_not_moved_while_it_is_scaled,
    a_cluster_keeps_its_id_under_a_new_name,
    a_cluster_lives_where_it_says_or_where_the_default_says,
    a_configuration_of_another_version_is_migrated_or_left_alone,
    a_cooldown_counts_from_the_end_of_an_operation,
    a_failed_action_is_tried_again_and_starts_no_cooldown,
    a_failed_drain_uncordons_the_replica,
    a_further_try_waits_for_the_rate_limit,
    a_later_strategy_starts_its_own_cooldown_and_no_other,
    a_leader_is_announced_before_it_acts,
    a_missing_signal_never_shrinks_and_others_may_still_grow,
    a_new_leader_goes_on_in_the_middle_of_a_window,
    a_node_number_is_given_once,
    a_pause_stops_what_has_not_begun_and_lets_the_rest_finish,
    a_paused_cluster_is_decided_about_and_left_alone,
    a_queue_gets_the_workers_that_it_needs,
    a_replica_about_to_be_taken_away_is_not_relied_on,
    a_replica_that_changes_its_size_is_made_before_the_old_one_goes,
    a_replica_that_does_not_become_ready_in_time_fails_the_scale_up,
    a_restore_that_goes_wrong_changes_nothing,
    a_retry_is_not_a_second_request,
    a_scale_down_is_resumed_where_the_last_leader_stopped,
    a_scale_up_begins_records_verifies_and_completes,
    a_schedule_changes_size_and_minimum_by_the_wall_clock,
    a_schedule_suspends_a_cluster_and_wakes_it_once,
    a_schedule_wakes_a_cluster_that_another_strategy_wants_to_run,
    a_signal_counts_to_the_moment_it_is_stale,
    a_signal_says_how_old_it_is_and_a_stale_one_holds,
    a_step_that_was_left_out_starts_no_cooldown,
    a_strategy_in_dry_run_is_heard_and_not_obeyed,
    a_strategy_is_created_changed_and_dropped,
    a_stream_is_heard_once,
    a_suspended_cluster_stays_suspended_when_the_collector_breaks,
    a_target_size_keeps_one_replica_and_drops_others_once_it_is_hydrated,
    a_tie_that_comes_later_is_shown_and_the_older_pattern_rules,
    a_transaction_is_all_or_nothing,
    a_user_asks_for_a_replica_beside_the_strategies,
    all_sizes_crashing_does_not_swing_between_none_and_all,
    an_action_can_wait_for_a_person,
    an_alarm_goes_with_its_cluster,
    an_idle_cluster_is_suspended_and_comes_back_when_it_is_used,
    an_operation_that_is_stuck_fails_after_what_was_called_has_settled,
    an_operator_does_not_want_to_wait,
    an_operator_gives_an_action_up,
    an_operator_says_what_came_of_an_action,
    an_outcome_nobody_knows_is_asked_for_again_under_the_same_key,
    an_uncordon_of_a_dropped_cluster_is_not_tried_again,
    bad_input_is_refused_with_what_would_be_right,
    dropping_a_cluster_takes_its_strategies_with_it,
    no_more_than_ten_actions_in_five_minutes,
    of_two_strategies_that_count_the_larger_number_is_right,
    old_sights_do_not_undo_what_is_known,
    one_cluster_changes_at_most_every_half_minute,
    rows_are_written_to_the_tables_by_hand,
    scenario_1_a_strategy_makes_its_replica,
    scenario_2_what_users_do_by_hand_ends_in_the_same_state,
    scenario_3_a_crash_in_the_middle_of_an_action_makes_no_second_replica,
    scenario_4_within_a_cooldown_a_strategy_skips_and_says_so,
    scenario_5_patterns_follow_names,
    settings_have_defaults_bounds_and_etags,
    shrink_to_fit_finds_the_smallest_size_that_carries_the_work,
    signals_ask_for_replicas_and_fewer_only_after_the_window,
    silence_never_suspends_a_cluster,
    sizes_are_a_ladder,
    something_is_made_before_anything_goes,
    strategies_do_not_share_what_they_remember,
    strategies_run_in_order_and_a_later_one_overrules,
    the_kill_switch_records_what_would_have_been_executed,
    the_kill_switch_stops_what_has_begun_and_uncordons_when_it_is_on_again,
    the_most_particular_strategy_rules,
    the_next_leader_records_what_it_reads_back,
    the_order_of_actions_is_the_same_everywhere,
    time_never_goes_back,
    what_a_later_strategy_cancelled_leaves_no_trace,
    what_failed_together_is_not_tried_again_together,
    what_is_no_longer_wanted_is_not_done,
    what_is_not_ours_is_not_touched,
    what_somebody_else_has_dropped_is_not_dropped_again,
    what_was_called_for_a_dropped_cluster_is_still_settled,
    what_was_given_up_is_an_alarm_until_it_succeeds,
    what_was_rejected_would_not_have_been_executed,
    while_the_feature_is_off_nothing_is_configured_and_nothing_is_decided,
}
