//! Epochs as text, for whoever keeps them elsewhere.

use loadline_state_machine::{Epoch, LogIndex};

/// An epoch as text of a fixed width. Later ones compare greater as text, and no number is too large for a language that knows only
/// floats.
pub fn epoch_text(epoch: Epoch) -> String {
    format!("{:020}.{:020}", epoch.incarnation, epoch.index.0)
}

pub fn parse_epoch(text: &str) -> Option<Epoch> {
    let (incarnation, index) = text.split_once('.')?;
    let number = |digits: &str| match digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => digits.parse::<u64>().ok(),
        false => None,
    };
    Some(Epoch { incarnation: number(incarnation)?, index: LogIndex(number(index)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn epochs_compare_as_text_and_come_back_whole() {
        let epoch = |incarnation, index| Epoch { incarnation, index: LogIndex(index) };
        let rising =
            [epoch(0, 1), epoch(0, 2), epoch(0, 10), epoch(0, u64::MAX), epoch(1, 0), epoch(10, 3), epoch(u64::MAX, 0)];
        for pair in rising.windows(2) {
            assert!(epoch_text(pair[0]) < epoch_text(pair[1]), "{} is not below {}", pair[0], pair[1]);
        }
        for epoch in rising {
            assert_eq!(parse_epoch(&epoch_text(epoch)), Some(epoch));
        }
        for wrong in ["", "1.2", "1/2", "99999999999999999999.00000000000000000001"] {
            assert_eq!(parse_epoch(wrong), None, "{wrong}");
        }
    }
}
