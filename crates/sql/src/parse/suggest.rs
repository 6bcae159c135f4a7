//! Which word was meant.

/// The candidate that is closest, if it is close at all. Letters only half alike are no help to anybody.
pub(crate) fn did_you_mean<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word = word.to_ascii_uppercase();
    let distance = |candidate: &str| strsim::damerau_levenshtein(&word, &candidate.to_ascii_uppercase());
    let close = candidates.into_iter().map(|candidate| (distance(candidate), candidate));
    // A third of the letters may be wrong, and in short words one.
    close
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min()
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_is_recognised_and_another_word_is_not() {
        let options = ["COOLDOWN", "IDLE_AFTER", "SIZE"];
        assert_eq!(did_you_mean("cooldwon", options), Some("COOLDOWN"));
        assert_eq!(did_you_mean("IDLE_AFTR", options), Some("IDLE_AFTER"));
        assert_eq!(did_you_mean("sise", options), Some("SIZE"));
        assert_eq!(did_you_mean("colour", options), None);
        assert_eq!(did_you_mean("", options), None);
    }
}
