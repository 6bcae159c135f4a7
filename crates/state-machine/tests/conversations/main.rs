//! Conversations with the state machine, kept as text: what somebody says, and all that came of it.
//!
//! A line that begins at the margin is said by somebody; the indented lines below it are the answer, and are rewritten
//! by `LOADLINE_GOLDEN=rewrite cargo test -p loadline-state-machine --test conversations`. The diff is the review.
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

#[path = "../common/mod.rs"]
mod common;
mod say;
mod show;

use common::{golden_file, rewriting, write_golden_file};
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
    a_backup_starts_a_new_incarnation,
    a_cluster_keeps_its_id_under_a_new_name,
    a_leader_is_announced_before_it_acts,
    a_node_number_is_given_once,
    a_restore_that_goes_wrong_changes_nothing,
    a_retry_is_not_a_second_request,
    a_transaction_is_all_or_nothing,
    bad_input_is_refused_with_what_would_be_right,
    settings_have_defaults_bounds_and_etags,
    sizes_are_a_ladder,
    time_never_goes_back,
}
