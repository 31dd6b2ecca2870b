//! Small arithmetic found in a sentence: `what is 2 + 3 * 4?`.

/// A sum and its outcome.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sum {
    /// As it is written in code.
    pub(crate) written: String,
    /// Its outcome, in decimal.
    pub(crate) outcome: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Sign {
    Number(f64),
    Act(char),
    Open,
    Close,
}

/// The first sum of a text that has at least one operation and an outcome.
pub(crate) fn find(text: &str) -> Option<Sum> {
    let text = text
        .replace(" plus ", " + ")
        .replace(" minus ", " - ")
        .replace(" times ", " * ")
        .replace(" multiplied by ", " * ")
        .replace(" divided by ", " / ")
        .replace(['×', '·'], "*")
        .replace('÷', "/")
        .replace('−', "-");
    runs(&text).into_iter().find_map(|signs| {
        let acts = signs.iter().any(|sign| matches!(sign, Sign::Act(_)));
        let mut at = Walk { signs: &signs, at: 0, deep: 0 };
        let outcome = at.sum().filter(|sum| acts && sum.is_finite())?;
        (at.at == signs.len()).then(|| Sum { written: write(&signs), outcome: decimal(outcome) })
    })
}

/// A number without needless digits.
pub(crate) fn decimal(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Stretches of the text that consist of numbers, operators and brackets.
fn runs(text: &str) -> Vec<Vec<Sign>> {
    let mut runs = vec![Vec::new()];
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        let sign = match next {
            ' ' => {
                rest = rest.get(length..).unwrap_or_default();
                continue;
            }
            '+' | '-' | '*' | '/' => Some(Sign::Act(next)),
            '(' => Some(Sign::Open),
            ')' => Some(Sign::Close),
            '0'..='9' => {
                let digits = |c: &char| c.is_ascii_digit() || *c == '.';
                let word: String = rest.chars().take_while(digits).collect();
                let word = word.trim_end_matches('.');
                length = word.len().max(1);
                word.parse().ok().map(Sign::Number)
            }
            _ => None,
        };
        match (sign, runs.last_mut()) {
            (Some(sign), Some(run)) if run.len() < 64 => run.push(sign),
            (Some(_), _) | (None, None) => {}
            (None, Some(run)) if run.is_empty() => {}
            (None, Some(_)) => runs.push(Vec::new()),
        }
        rest = rest.get(length..).unwrap_or_default();
    }
    // A dash or a bracket of the sentence around it is no part of the sum.
    for run in &mut runs {
        while matches!(run.last(), Some(Sign::Act(_) | Sign::Open)) {
            run.pop();
        }
        while matches!(run.first(), Some(Sign::Act('+' | '*' | '/') | Sign::Close)) {
            run.remove(0);
        }
    }
    runs
}

fn write(signs: &[Sign]) -> String {
    let words: Vec<String> = signs
        .iter()
        .map(|sign| match sign {
            Sign::Number(number) => decimal(*number),
            Sign::Act(act) => format!(" {act} "),
            Sign::Open => "(".to_owned(),
            Sign::Close => ")".to_owned(),
        })
        .collect();
    words.concat().trim().to_owned()
}

struct Walk<'a> {
    signs: &'a [Sign],
    at: usize,
    deep: u32,
}

impl Walk<'_> {
    fn take_act(&mut self, among: [char; 2]) -> Option<char> {
        match self.signs.get(self.at) {
            Some(Sign::Act(act)) if among.contains(act) => {
                self.at += 1;
                Some(*act)
            }
            _ => None,
        }
    }

    fn sum(&mut self) -> Option<f64> {
        let mut value = self.product()?;
        while let Some(act) = self.take_act(['+', '-']) {
            let other = self.product()?;
            value = if act == '+' { value + other } else { value - other };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<f64> {
        let mut value = self.one()?;
        while let Some(act) = self.take_act(['*', '/']) {
            let other = self.one()?;
            value = if act == '*' { value * other } else { value / other };
        }
        Some(value)
    }

    fn one(&mut self) -> Option<f64> {
        let sign = *self.signs.get(self.at)?;
        self.at += 1;
        match sign {
            Sign::Number(number) => Some(number),
            Sign::Act('-') if self.deep < 16 => {
                self.deep += 1;
                let value = self.one().map(|number| -number);
                self.deep -= 1;
                value
            }
            Sign::Open if self.deep < 16 => {
                self.deep += 1;
                let value = self.sum()?;
                self.deep -= 1;
                let closed = matches!(self.signs.get(self.at), Some(Sign::Close));
                self.at += 1;
                closed.then_some(value)
            }
            Sign::Act(_) | Sign::Open | Sign::Close => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_in_sentences_are_worked_out() {
        let outcome = |text| find(text).map(|sum| sum.outcome);
        assert_eq!(outcome("Quickly now: 2+2?").as_deref(), Some("4"));
        assert_eq!(outcome("What is 2 + 3 * 4, please?").as_deref(), Some("14"));
        assert_eq!(outcome("what is 7 times 6").as_deref(), Some("42"));
        assert_eq!(outcome("(1 + 2) * -3").as_deref(), Some("-9"));
        assert_eq!(outcome("10 / 4").as_deref(), Some("2.5"));
        assert_eq!(outcome("work out 6*7").as_deref(), Some("42"));
        assert_eq!(outcome("1 / 0"), None);
        assert_eq!(outcome("I have 3 apples - really"), None);
        assert_eq!(outcome("no numbers"), None);
    }
}
