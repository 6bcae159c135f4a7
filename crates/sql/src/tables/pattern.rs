//! LIKE and regular expressions as PostgreSQL has them, as far as anybody needs them here.
//!
//! The regular expressions are those that psql writes for `\d name` (anchors, groups, alternatives, classes, repetitions). They are
//! matched by simulation of all ways at once, so that no pattern takes longer than text times pattern.

/// `%` is any text, `_` any one character.
pub fn like(pattern: &str, text: &str, escape: Option<char>, fold: bool) -> bool {
    let folded = |text: &str| if fold { text.to_lowercase() } else { text.to_owned() };
    let (pattern, text) = (folded(pattern), folded(text));
    let mut tokens = Vec::new();
    let mut chars = pattern.chars();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            _ if Some(c) == escape => Like::One(chars.next().unwrap_or(c)),
            '%' => Like::Any,
            '_' => Like::Single,
            other => Like::One(other),
        });
    }
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut token) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while at < text.len() {
        match tokens.get(token) {
            Some(Like::Any) => {
                back = Some((token + 1, at));
                token += 1;
            }
            Some(Like::Single) => {
                at += 1;
                token += 1;
            }
            Some(Like::One(c)) if *c == text[at] => {
                at += 1;
                token += 1;
            }
            _ => match back {
                Some((after, from)) => {
                    back = Some((after, from + 1));
                    token = after;
                    at = from + 1;
                }
                None => return false,
            },
        }
    }
    tokens[token..].iter().all(|token| matches!(token, Like::Any))
}

enum Like {
    Any,
    Single,
    One(char),
}

/// Whether the expression matches somewhere in the text.
pub(crate) fn regex(pattern: &str, text: &str, fold: bool) -> Result<bool, &'static str> {
    let folded = |text: &str| if fold { text.to_lowercase() } else { text.to_owned() };
    let program = Compiler::compile(&folded(pattern))?;
    Ok(program.matches(&folded(text)))
}

/// Longer ones are nobody's.
const PATTERN_CHARS_MAX: usize = 2_000;
const REPEAT_MAX: usize = 100;
const STEPS_MAX: usize = 20_000;

#[derive(Clone, Debug)]
enum Step {
    One(Class),
    /// Either of two.
    Split(usize, usize),
    Jump(usize),
    Start,
    End,
    Match,
}

#[derive(Clone, Debug)]
struct Class {
    negated: bool,
    ranges: Vec<(char, char)>,
}

impl Class {
    fn of(c: char) -> Self {
        Self { negated: false, ranges: vec![(c, c)] }
    }

    fn holds(&self, c: char) -> bool {
        self.ranges.iter().any(|(from, to)| (*from..=*to).contains(&c)) != self.negated
    }
}

struct Program(Vec<Step>);

impl Program {
    fn matches(&self, text: &str) -> bool {
        let chars: Vec<char> = text.chars().collect();
        let mut here = vec![false; self.0.len()];
        for at in 0..=chars.len() {
            // A match may begin anywhere.
            let mut waiting = vec![0];
            waiting.extend(here.iter().enumerate().filter(|(_, on)| **on).map(|(step, _)| step));
            let mut on = vec![false; self.0.len()];
            while let Some(step) = waiting.pop() {
                if std::mem::replace(&mut on[step], true) {
                    continue;
                }
                match &self.0[step] {
                    Step::Match => return true,
                    Step::Jump(to) => waiting.push(*to),
                    Step::Split(a, b) => waiting.extend([*a, *b]),
                    Step::Start if at == 0 => waiting.push(step + 1),
                    Step::End if at == chars.len() => waiting.push(step + 1),
                    Step::Start | Step::End | Step::One(_) => {}
                }
            }
            here = vec![false; self.0.len()];
            if let Some(c) = chars.get(at) {
                for (step, _) in on.iter().enumerate().filter(|(_, on)| **on) {
                    if let Step::One(class) = &self.0[step]
                        && class.holds(*c)
                    {
                        here[step + 1] = true;
                    }
                }
            }
        }
        false
    }
}

struct Compiler {
    chars: Vec<char>,
    at: usize,
    depth: usize,
}

impl Compiler {
    fn compile(pattern: &str) -> Result<Program, &'static str> {
        let chars: Vec<char> = pattern.chars().collect();
        if chars.len() > PATTERN_CHARS_MAX {
            return Err("it is too long");
        }
        let mut compiler = Self { chars, at: 0, depth: 0 };
        let mut steps = compiler.alternatives()?;
        if compiler.at < compiler.chars.len() {
            return Err("a parenthesis is closed that was not opened");
        }
        steps.push(Step::Match);
        Ok(Program(steps))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn alternatives(&mut self) -> Result<Vec<Step>, &'static str> {
        let mut steps = self.sequence()?;
        while self.peek() == Some('|') {
            self.at += 1;
            let other = self.sequence()?;
            let mut both = vec![Step::Split(1, steps.len() + 2)];
            both.extend(shifted(&steps, 1));
            both.push(Step::Jump(steps.len() + 2 + other.len()));
            both.extend(shifted(&other, steps.len() + 2));
            steps = both;
            check(&steps)?;
        }
        Ok(steps)
    }

    fn sequence(&mut self) -> Result<Vec<Step>, &'static str> {
        let mut steps: Vec<Step> = Vec::new();
        while let Some(c) = self.peek().filter(|c| !matches!(c, '|' | ')')) {
            let _ = c;
            let atom = self.atom()?;
            let repeated = self.repeated(atom)?;
            let base = steps.len();
            steps.extend(shifted(&repeated, base));
            check(&steps)?;
        }
        Ok(steps)
    }

    fn atom(&mut self) -> Result<Vec<Step>, &'static str> {
        let c = self.peek().ok_or("it ends too early")?;
        self.at += 1;
        Ok(match c {
            '(' => {
                self.depth += 1;
                if self.depth > 50 {
                    return Err("it is nested too deeply");
                }
                if self.chars[self.at..].starts_with(&['?', ':']) {
                    self.at += 2;
                }
                let inner = self.alternatives()?;
                if self.peek() != Some(')') {
                    return Err("a parenthesis is not closed");
                }
                self.at += 1;
                self.depth -= 1;
                inner
            }
            '[' => vec![Step::One(self.class()?)],
            '.' => vec![Step::One(Class { negated: true, ranges: vec![] })],
            '^' => vec![Step::Start],
            '$' => vec![Step::End],
            '*' | '+' | '?' => return Err("there is nothing to repeat"),
            '\\' => {
                let escaped = self.peek().ok_or("it ends in a backslash")?;
                self.at += 1;
                let class = |negated, ranges: &[(char, char)]| Class { negated, ranges: ranges.to_vec() };
                let word = [('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')];
                let space = [(' ', ' '), ('\t', '\r')];
                vec![Step::One(match escaped {
                    'd' => class(false, &[('0', '9')]),
                    'D' => class(true, &[('0', '9')]),
                    'w' => class(false, &word),
                    'W' => class(true, &word),
                    's' => class(false, &space),
                    'S' => class(true, &space),
                    other => Class::of(other),
                })]
            }
            other => vec![Step::One(Class::of(other))],
        })
    }

    fn class(&mut self) -> Result<Class, &'static str> {
        let negated = self.peek() == Some('^');
        if negated {
            self.at += 1;
        }
        let mut ranges = Vec::new();
        let mut first = true;
        loop {
            let mut c = self.peek().ok_or("a bracket is not closed")?;
            self.at += 1;
            if c == ']' && !first {
                return Ok(Class { negated, ranges });
            }
            first = false;
            if c == '\\' {
                c = self.peek().ok_or("a bracket is not closed")?;
                self.at += 1;
            }
            let to = match (self.peek(), self.chars.get(self.at + 1)) {
                (Some('-'), Some(to)) if *to != ']' => {
                    self.at += 2;
                    *to
                }
                _ => c,
            };
            ranges.push((c, to));
        }
    }

    fn repeated(&mut self, atom: Vec<Step>) -> Result<Vec<Step>, &'static str> {
        let mut steps = atom;
        while let Some(c) = self.peek() {
            steps = match c {
                '*' => star(&steps),
                '+' => {
                    let mut plus = steps.clone();
                    plus.extend(shifted(&star(&steps), steps.len()));
                    plus
                }
                '?' => maybe(&steps),
                '{' => {
                    let close = self.chars[self.at..].iter().position(|c| *c == '}').ok_or("a brace is not closed")?;
                    let inside: String = self.chars[self.at + 1..self.at + close].iter().collect();
                    self.at += close;
                    let (min, max) = match inside.split_once(',') {
                        None => (inside.parse().ok(), inside.parse().ok().map(Some)),
                        Some((min, "")) => (min.parse().ok(), Some(None)),
                        Some((min, max)) => (min.parse().ok(), max.parse().ok().map(Some)),
                    };
                    let (Some(min), Some(max)) = (min, max) else { return Err("a repetition is no number") };
                    times(&steps, min, max)?
                }
                _ => break,
            };
            self.at += 1;
            check(&steps)?;
        }
        Ok(steps)
    }
}

fn check(steps: &[Step]) -> Result<(), &'static str> {
    if steps.len() > STEPS_MAX { Err("it is too complex") } else { Ok(()) }
}

fn shifted(steps: &[Step], by: usize) -> Vec<Step> {
    let moved = steps.iter().map(|step| match step {
        Step::Split(a, b) => Step::Split(a + by, b + by),
        Step::Jump(to) => Step::Jump(to + by),
        other => other.clone(),
    });
    moved.collect()
}

fn star(steps: &[Step]) -> Vec<Step> {
    let mut star = vec![Step::Split(1, steps.len() + 2)];
    star.extend(shifted(steps, 1));
    star.push(Step::Jump(0));
    star
}

fn maybe(steps: &[Step]) -> Vec<Step> {
    let mut maybe = vec![Step::Split(1, steps.len() + 1)];
    maybe.extend(shifted(steps, 1));
    maybe
}

fn times(steps: &[Step], min: usize, max: Option<usize>) -> Result<Vec<Step>, &'static str> {
    if min > REPEAT_MAX || max.is_some_and(|max| max > REPEAT_MAX || max < min) {
        return Err("a repetition is out of range");
    }
    let mut out: Vec<Step> = Vec::new();
    let add = |out: &mut Vec<Step>, more: &[Step]| {
        let base = out.len();
        out.extend(shifted(more, base));
        check(out)
    };
    for _ in 0..min {
        add(&mut out, steps)?;
    }
    match max {
        None => add(&mut out, &star(steps))?,
        Some(max) => {
            for _ in min..max {
                add(&mut out, &maybe(steps))?;
            }
        }
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_is_that_of_postgresql() {
        let check =
            |pattern, text, expected| assert_eq!(like(pattern, text, Some('\\'), false), expected, "{pattern} {text}");
        check("prod_%", "prod_a", true);
        check("prod_%", "prod", false);
        check("PROD%", "prod", false);
        check("%a%b%", "xxaxxbxx", true);
        check("%a%b", "xxaxxbxx", false);
        check(r"100\%", "100%", true);
        check(r"100\%", "1000", false);
        check("", "", true);
        check("%", "", true);
        check("_", "é", true);
        assert!(like("PROD%", "production", None, true));
    }

    #[test]
    fn expressions_match_as_psql_needs_them() {
        let check = |pattern, text, expected| assert_eq!(regex(pattern, text, false), Ok(expected), "{pattern} {text}");
        check("^(clusters)$", "clusters", true);
        check("^(clusters)$", "mz_clusters", false);
        check("^(mz_.*)$", "mz_clusters", true);
        check("^(a|b|)$", "b", true);
        check("^pg_toast", "pg_toast_1", true);
        check("[a-c]+[^x]", "zzabq", true);
        check("^[a-c]+$", "abcd", false);
        check(r"^\d{2,3}$", "1234", false);
        check(r"^\d{2,3}$", "123", true);
        check("a?b*c+", "c", true);
        check(".", "", false);
        for wrong in ["(", "a)", "[a", "*", "a{", "a{x}", "a{5,2}", "\\"] {
            assert!(regex(wrong, "a", false).is_err(), "{wrong}");
        }
    }

    #[test]
    fn no_pattern_takes_for_ever() {
        let evil = "(a*)*".repeat(20) + "b";
        assert_eq!(regex(&evil, &"a".repeat(200), false), Ok(false));
        assert!(regex(&"(".repeat(1_000), "", false).is_err());
        assert!(regex("((((a{100}){100}){100}){100})", "a", false).is_err());
    }
}
