//! Parts of an agent's sign-in: the program that asks, its codes, and the counters that bound both.

use aws_lc_rs::rand;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::Micros;
use serde::{Deserialize, Serialize};
use store::{AttemptCounter, StoreError};

use crate::account_admin::AccountAdmin;
use crate::error::AdminError;
use crate::random;

/// Time between two polls of an agent.
pub const POLL_INTERVAL: Micros = Micros::from_secs(5);
/// Polls may come this much early, because networks and timers are not exact.
const POLL_TOLERANCE: Micros = Micros::from_secs(1);
/// Sign-ins that one network may begin in a window.
const MAX_BEGUN: i64 = 60;
/// Window in which the sign-ins of a network are counted.
const BEGIN_WINDOW: Micros = Micros::from_secs(600);
/// Letters of a user code: no vowels, so that no words appear (RFC 8628, section 6.1).
const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
const USER_CODE_LENGTH: usize = 8;
/// Longest name of a program in pages and records.
const MAX_SURFACE_CHARS: usize = 40;

/// The program that asks for a sign-in, as the person sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AskingAgent {
    /// Identifier of the program, such as `claude_code`.
    pub surface: String,
    /// Its user agent.
    pub agent: String,
    /// Address that it asks from.
    pub address: String,
}

impl AskingAgent {
    /// Returns a program with the parts that are safe to show.
    pub fn new(surface: &str, agent: &str, address: &str) -> Self {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-. ".contains(c);
        let shown = |text: &str, length: usize| -> String {
            text.chars().filter(|c| !c.is_control()).take(length).collect()
        };
        let surface: String =
            surface.chars().filter(|c| plain(*c)).take(MAX_SURFACE_CHARS).collect();
        let surface = match surface.trim() {
            "" => "agent".to_owned(),
            named => named.to_owned(),
        };
        Self { surface, agent: shown(agent, 120), address: shown(address, 64) }
    }

    /// Name of the program for people.
    pub fn label(&self) -> &str {
        match self.surface.as_str() {
            "claude_code" => "Claude Code",
            "claude_desktop" => "Claude Desktop",
            "codex" => "Codex",
            "agent" => "A program",
            other => other,
        }
    }

    /// Name of its key, if the person chooses none.
    pub fn key_name(&self) -> String {
        match self.address.as_str() {
            "" => self.label().to_owned(),
            address => format!("{} on {address}", self.label()),
        }
    }
}

impl AccountAdmin {
    /// Counts the beginning of a sign-in by its network.
    pub(crate) async fn count_begin(&self, network: &str) -> Result<Result<(), u64>, AdminError> {
        let now = self.now();
        let hash = [random::digest(&format!("agent sign-in from {network}"))];
        let counted =
            self.store.change_attempts(&hash, now, |counters: &mut [AttemptCounter]| {
                for counter in counters {
                    // `closed_until` is the end of the window.
                    if counter.closed_until <= now {
                        (counter.tries, counter.closed_until) = (0, now + BEGIN_WINDOW);
                    }
                    if counter.tries >= MAX_BEGUN {
                        return Err(AttemptRefusal::Wait(counter.closed_until - now));
                    }
                    counter.tries += 1;
                    counter.last = now;
                }
                Ok(())
            });
        counted_result(counted.await)
    }

    /// Counts a poll. The error is the time to wait.
    pub(crate) async fn count_poll(&self, device: &[u8]) -> Result<Result<(), u64>, AdminError> {
        let now = self.now();
        let hash = [random::digest(&format!("poll {}", random::hex(device)))];
        let counted =
            self.store.change_attempts(&hash, now, |counters: &mut [AttemptCounter]| {
                for counter in counters {
                    if counter.closed_until > now {
                        return Err(AttemptRefusal::Wait(counter.closed_until - now));
                    }
                    counter.last = now;
                    counter.closed_until = now + POLL_INTERVAL - POLL_TOLERANCE;
                }
                Ok(())
            });
        counted_result(counted.await)
    }
}

/// Outcome of a counter: a wait, or a failure of the store.
enum AttemptRefusal {
    Wait(Micros),
    Store(StoreError),
}

impl From<StoreError> for AttemptRefusal {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// Separates the seconds to wait from failures.
fn counted_result(counted: Result<(), AttemptRefusal>) -> Result<Result<(), u64>, AdminError> {
    match counted {
        Ok(()) => Ok(Ok(())),
        Err(AttemptRefusal::Wait(wait)) => Ok(Err(u64::try_from(wait.as_secs() + 1).unwrap_or(1))),
        Err(AttemptRefusal::Store(error)) => Err(error.into()),
    }
}

/// Error of a machine without randomness.
pub(crate) fn no_randomness(_: aws_lc_rs::error::Unspecified) -> AdminError {
    AdminError::Internal("no random numbers are available".to_owned())
}

/// Returns the challenge of a PKCE verifier (RFC 7636, section 4.2, method `S256`).
pub(crate) fn pkce_challenge(verifier: &str) -> String {
    URL_SAFE_NO_PAD.encode(random::digest(verifier))
}

pub(crate) fn new_user_code() -> Result<String, AdminError> {
    let mut code = String::with_capacity(USER_CODE_LENGTH + 1);
    let mut letters = 0;
    while letters < USER_CODE_LENGTH {
        let mut byte = [0_u8; 1];
        rand::fill(&mut byte).map_err(no_randomness)?;
        let [byte] = byte;
        // Larger bytes are discarded, because `% 20` would favour the first letters.
        let letter = USER_CODE_LETTERS.get(usize::from(byte % 20)).filter(|_| byte < 240);
        let Some(letter) = letter else { continue };
        if letters == USER_CODE_LENGTH / 2 {
            code.push('-');
        }
        code.push(char::from(*letter));
        letters += 1;
    }
    Ok(code)
}

/// Digest of a user code. People may type it in small letters and without the hyphen.
pub(crate) fn user_code_hash(code: &str) -> Vec<u8> {
    let letters: String = code
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .take(USER_CODE_LENGTH + 1)
        .map(|c| c.to_ascii_uppercase())
        .collect();
    random::digest(&format!("user code {letters}"))
}

/// Reads hexadecimal digits; `None` if there is another character.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits?;
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| pair.iter().fold(0, |sum, digit| sum << 4 | digit))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_codes_have_letters_that_nobody_mistakes() {
        for _ in 0..50 {
            let code = new_user_code().unwrap();
            let (front, back) = code.split_once('-').unwrap();
            assert_eq!((front.len(), back.len()), (4, 4), "{code}");
            assert!(code.bytes().all(|byte| byte == b'-' || USER_CODE_LETTERS.contains(&byte)));
            let typed = code.to_lowercase().replace('-', " ");
            assert_eq!(user_code_hash(&code), user_code_hash(&typed));
        }
    }

    #[test]
    fn challenge_is_that_of_the_rfc() {
        // RFC 7636, appendix B.
        let challenge = pkce_challenge("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }

    #[test]
    fn names_of_programs_are_plain() {
        let asking = AskingAgent::new("<b>claude\u{202e}_code", "x\ny", "192.0.2.1");
        assert_eq!(asking.surface, "bclaude_code");
        assert_eq!(asking.agent, "xy");
        assert_eq!(AskingAgent::new("", "", "").label(), "A program");
    }

    #[test]
    fn hexadecimal_digits_are_read_back() {
        assert_eq!(from_hex(&random::hex(&[0, 1, 254, 255])), Some(vec![0, 1, 254, 255]));
        assert_eq!(from_hex("zz"), None);
    }
}
