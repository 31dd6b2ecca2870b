//! Texts that match a regular expression, for the simple expressions common in schemas.

use crate::seeded_random::SeededRandom;

const MAX_REPETITION: usize = 2_048;
const MAX_DEPTH: u32 = 24;

/// Returns a text that the expression matches, at least `least` long if repetition allows it;
/// `None` if the expression uses unsupported syntax.
pub(crate) fn example(pattern: &str, least: usize, random: &mut SeededRandom) -> Option<String> {
    let start = random.clone();
    let mut shortest = None;
    for more in 0..=least.min(64) {
        *random = start.clone();
        let mut walk = PatternWalk {
            rest: pattern,
            out: String::new(),
            more,
            random: &mut *random,
            deep: 0,
            steps: 0,
        };
        walk.choice(true)?;
        if !walk.rest.is_empty() {
            return None;
        }
        let text = walk.out;
        if text.chars().count() >= least {
            return Some(text);
        }
        shortest.get_or_insert(text);
    }
    shortest
}

struct PatternWalk<'p, 'd> {
    rest: &'p str,
    out: String,
    more: usize,
    random: &'d mut SeededRandom,
    deep: u32,
    steps: u32,
}

impl PatternWalk<'_, '_> {
    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    fn eat(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Parses alternatives: writes the first one and skips the others.
    fn choice(&mut self, write: bool) -> Option<()> {
        self.deep += 1;
        self.steps += 1;
        if self.deep > MAX_DEPTH || self.steps > 20_000 {
            return None;
        }
        self.sequence(write)?;
        while self.eat("|") {
            self.sequence(false)?;
        }
        self.deep -= 1;
        Some(())
    }

    fn sequence(&mut self, write: bool) -> Option<()> {
        while let Some(next) = self.peek() {
            if matches!(next, '|' | ')') {
                break;
            }
            let kept = self.out.len();
            let from = self.rest;
            self.one(write)?;
            let behind_one = self.rest;
            let (least, most) = self.times()?;
            let behind = self.rest;
            if !write {
                continue;
            }
            let wanted = least.saturating_add(self.more).min(most).max(least);
            if wanted == 0 {
                self.out.truncate(kept);
            }
            for _ in 1..wanted {
                if self.out.len() > MAX_REPETITION {
                    return None;
                }
                self.rest = from;
                self.one(true)?;
                debug_assert_eq!(self.rest.len(), behind_one.len());
            }
            self.rest = behind;
        }
        Some(())
    }

    /// Parses a repetition and returns its bounds.
    fn times(&mut self) -> Option<(usize, usize)> {
        let times = match self.peek() {
            Some('*') => {
                self.next();
                (0, usize::MAX)
            }
            Some('+') => {
                self.next();
                (1, usize::MAX)
            }
            Some('?') => {
                self.next();
                (0, 1)
            }
            Some('{') => {
                self.next();
                let (inside, rest) = self.rest.split_once('}')?;
                self.rest = rest;
                match inside.split_once(',') {
                    None => {
                        let exact = inside.parse().ok()?;
                        (exact, exact)
                    }
                    Some((least, "")) => (least.parse().ok()?, usize::MAX),
                    Some((least, most)) => (least.parse().ok()?, most.parse().ok()?),
                }
            }
            _ => return Some((1, 1)),
        };
        // Greediness does not change the set of matches.
        let _ = self.eat("?");
        Some(times)
    }

    fn one(&mut self, write: bool) -> Option<()> {
        self.steps += 1;
        if self.steps > 20_000 {
            return None;
        }
        let letter = match self.next()? {
            '^' | '$' => return Some(()),
            '(' => {
                if self.eat("?:") {
                } else if self.eat("?<") || self.eat("?P<") {
                    self.rest = self.rest.split_once('>')?.1;
                } else if self.rest.starts_with('?') {
                    return None;
                }
                self.choice(write)?;
                return self.eat(")").then_some(());
            }
            '[' => self.class()?,
            '.' => self.of("abcdefghij"),
            '\\' => match self.next()? {
                'd' => self.of("0123456789"),
                'w' => self.of("abcdefghijklmnop"),
                's' => ' ',
                'D' | 'S' => self.of("abcdefghij"),
                'W' => '-',
                'b' | 'B' | 'A' | 'z' | 'Z' => return Some(()),
                't' => '\t',
                'n' => '\n',
                'p' | 'P' | 'u' | 'x' | 'k' | '1'..='9' => return None,
                literal => literal,
            },
            '*' | '+' | '?' => return None,
            literal => literal,
        };
        if write {
            self.out.push(letter);
        }
        Some(())
    }

    fn of(&mut self, letters: &str) -> char {
        let at = self.random.next_number() % letters.len().max(1) as u64;
        letters.chars().nth(usize::try_from(at).unwrap_or(0)).unwrap_or('a')
    }

    /// Parses a set of characters and chooses one of them.
    fn class(&mut self) -> Option<char> {
        let negated = self.eat("^");
        let mut ranges: Vec<(char, char)> = Vec::new();
        loop {
            let low = match self.next()? {
                ']' if !ranges.is_empty() => break,
                '\\' => match self.next()? {
                    'd' => {
                        ranges.push(('0', '9'));
                        continue;
                    }
                    'w' => {
                        ranges.extend([('a', 'z'), ('A', 'Z'), ('0', '9'), ('_', '_')]);
                        continue;
                    }
                    's' => {
                        ranges.push((' ', ' '));
                        continue;
                    }
                    literal => literal,
                },
                literal => literal,
            };
            let high = if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                match self.next()? {
                    '\\' => self.next()?,
                    literal => literal,
                }
            } else {
                low
            };
            ranges.push((low, high));
        }
        if negated {
            let free = |c: &char| !ranges.iter().any(|(low, high)| (*low..=*high).contains(c));
            return "abcxyz0189ABC-_ ".chars().find(free);
        }
        let at = self.random.next_number() % ranges.len().max(1) as u64;
        let (low, high) = *ranges.get(usize::try_from(at).unwrap_or(0))?;
        let width = u64::from(u32::from(high).saturating_sub(u32::from(low))) + 1;
        let step = u32::try_from(self.random.next_number() % width).unwrap_or(0);
        char::from_u32(u32::from(low) + step).or(Some(low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_expressions_get_a_fitting_text() {
        let text =
            |pattern, least| example(pattern, least, &mut SeededRandom::new(1)).unwrap_or_default();
        let date = text(r"^\d{4}-\d{2}-\d{2}$", 0);
        assert_eq!(date.len(), 10);
        assert!(date.chars().all(|c| c.is_ascii_digit() || c == '-'));
        let code = text("^[A-Z]{3}[0-9]+$", 8);
        let (letters, digits) = code.split_at(3);
        assert!(code.len() >= 8 && letters.chars().all(|c| c.is_ascii_uppercase()), "{code}");
        assert!(digits.chars().all(|c| c.is_ascii_digit()), "{code}");
        assert_eq!(text("^(red|green)$", 0), "red");
        assert_eq!(text("a?b*c", 0), "c");
        assert_eq!(text(r"^(?:ab){2}\.x$", 0), "abab.x");
        assert!(!text("[^a-z]", 0).contains(char::is_lowercase));
    }

    #[test]
    fn what_is_not_understood_is_not_guessed() {
        for pattern in ["(?=x)y", r"\p{L}", "(", "[", "a{", "*", "(((x{999}){999}){999})"] {
            assert_eq!(example(pattern, 0, &mut SeededRandom::new(1)), None, "{pattern}");
        }
    }
}
