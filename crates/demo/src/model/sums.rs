//! Arithmetic in a sentence: `what is 2 + 3 * 4?`.

/// An expression and its result.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ArithmeticResult {
    /// The expression in code syntax.
    pub(crate) written: String,
    /// The result in decimal.
    pub(crate) outcome: String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ArithmeticToken {
    Number(f64),
    Act(char),
    Open,
    Close,
}

/// Returns the first expression of a text with at least one operation and a result.
pub(crate) fn find(text: &str) -> Option<ArithmeticResult> {
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
        let acts = signs.iter().any(|sign| matches!(sign, ArithmeticToken::Act(_)));
        let mut at = ExpressionWalk { signs: &signs, at: 0, deep: 0 };
        let outcome = at.sum().filter(|sum| acts && sum.is_finite())?;
        (at.at == signs.len())
            .then(|| ArithmeticResult { written: write(&signs), outcome: decimal(outcome) })
    })
}

/// Formats a number without trailing digits.
pub(crate) fn decimal(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        return format!("{number:.0}");
    }
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the runs of numbers, operators and brackets in a text.
fn runs(text: &str) -> Vec<Vec<ArithmeticToken>> {
    let mut runs = vec![Vec::new()];
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let mut length = next.len_utf8();
        let sign = match next {
            ' ' => {
                rest = rest.get(length..).unwrap_or_default();
                continue;
            }
            '+' | '-' | '*' | '/' => Some(ArithmeticToken::Act(next)),
            '(' => Some(ArithmeticToken::Open),
            ')' => Some(ArithmeticToken::Close),
            '0'..='9' => {
                let digits = |c: &char| c.is_ascii_digit() || *c == '.';
                let word: String = rest.chars().take_while(digits).collect();
                let word = word.trim_end_matches('.');
                length = word.len().max(1);
                word.parse().ok().map(ArithmeticToken::Number)
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
    // A dash or bracket of the surrounding sentence is not part of the expression.
    for run in &mut runs {
        while matches!(run.last(), Some(ArithmeticToken::Act(_) | ArithmeticToken::Open)) {
            run.pop();
        }
        while matches!(
            run.first(),
            Some(ArithmeticToken::Act('+' | '*' | '/') | ArithmeticToken::Close)
        ) {
            run.remove(0);
        }
    }
    runs
}

fn write(signs: &[ArithmeticToken]) -> String {
    let words: Vec<String> = signs
        .iter()
        .map(|sign| match sign {
            ArithmeticToken::Number(number) => decimal(*number),
            ArithmeticToken::Act(act) => format!(" {act} "),
            ArithmeticToken::Open => "(".to_owned(),
            ArithmeticToken::Close => ")".to_owned(),
        })
        .collect();
    words.concat().trim().to_owned()
}

struct ExpressionWalk<'a> {
    signs: &'a [ArithmeticToken],
    at: usize,
    deep: u32,
}

impl ExpressionWalk<'_> {
    fn take_act(&mut self, among: [char; 2]) -> Option<char> {
        match self.signs.get(self.at) {
            Some(ArithmeticToken::Act(act)) if among.contains(act) => {
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
            ArithmeticToken::Number(number) => Some(number),
            ArithmeticToken::Act('-') if self.deep < 16 => {
                self.deep += 1;
                let value = self.one().map(|number| -number);
                self.deep -= 1;
                value
            }
            ArithmeticToken::Open if self.deep < 16 => {
                self.deep += 1;
                let value = self.sum()?;
                self.deep -= 1;
                let closed = matches!(self.signs.get(self.at), Some(ArithmeticToken::Close));
                self.at += 1;
                closed.then_some(value)
            }
            ArithmeticToken::Act(_) | ArithmeticToken::Open | ArithmeticToken::Close => None,
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
