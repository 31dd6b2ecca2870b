//! One small tokeniser for usage, limits and stream pieces.
//!
//! A token is up to four letters or digits with the space before them, or a short run of one other
//! character. Cutting a text after any token leaves the tokens before the cut unchanged, so a limit
//! can be met exactly.

const MAX_TOKEN_CHARS: usize = 4;

/// Returns the tokens of a text in order. Joined, they are the text.
pub(crate) const fn tokens(text: &str) -> Tokens<'_> {
    Tokens { rest: text }
}

/// Returns the number of tokens of a text.
pub fn count(text: &str) -> u64 {
    tokens(text).count() as u64
}

/// Returns the beginning of a text with at most that many tokens.
pub(crate) fn first(text: &str, most: u64) -> &str {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let length = tokens(text).take(most).map(str::len).sum();
    text.get(..length).unwrap_or(text)
}

/// Iterator over the tokens of a text.
pub(crate) struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut chars = self.rest.chars();
        let first = chars.next()?;
        let after = chars.as_str();
        let length = first.len_utf8();
        let length = if first.is_alphanumeric() {
            run(self.rest, MAX_TOKEN_CHARS, char::is_alphanumeric)
        } else if first == ' ' {
            length + run(after, MAX_TOKEN_CHARS, char::is_alphanumeric)
        } else {
            run(self.rest, MAX_TOKEN_CHARS, |other| other == first)
        };
        let (token, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(token)
    }
}

/// Returns the length in bytes of the longest matching prefix of at most `most` characters.
fn run(text: &str, most: usize, fits: impl Fn(char) -> bool) -> usize {
    text.chars().take(most).take_while(|one| fits(*one)).map(char::len_utf8).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_cut_every_four_letters_with_the_space_before_them() {
        let cut: Vec<&str> = tokens("Hello there,  world!!\n\n").collect();
        assert_eq!(cut, ["Hell", "o", " ther", "e", ",", " ", " worl", "d", "!!", "\n\n"]);
    }

    proptest! {
        #[test]
        fn tokens_together_are_the_text(text in any::<String>()) {
            prop_assert_eq!(tokens(&text).collect::<String>(), text);
        }

        #[test]
        fn a_text_cut_behind_a_token_has_exactly_that_many(text in "\\PC{0,60}", most in 0_u64..40) {
            let cut = first(&text, most);
            prop_assert_eq!(count(cut), most.min(count(&text)));
            prop_assert!(text.starts_with(cut));
        }

        #[test]
        fn no_text_has_more_tokens_than_bytes(text in any::<String>()) {
            prop_assert!(count(&text) <= text.len() as u64);
        }
    }
}
