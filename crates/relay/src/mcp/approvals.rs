//! Requests for approval. A caller may keep them itself and send them back, so the id of one proves that the
//! gateway made it: it has a code over the account, the server, the tool and the arguments.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use canon::ApiError;
use dialects::{MAC_BYTES, envelope_mac};
use serde_json::{Value, json};
use std::collections::HashMap;

use super::turn_format::text;

const PREFIX: &str = "mcpr_";
const PERIOD_BYTES: usize = 2;
/// Letters of the code: the period and the MAC in base64, so that an id is no longer than providers take.
const CODE_LETTERS: usize = (PERIOD_BYTES + MAC_BYTES) / 3 * 4;

/// Call that a caller is asked to approve.
#[derive(Clone, Copy)]
pub(super) struct AskedCall<'c> {
    pub(super) account: &'c str,
    /// Unique place of the call among all answers.
    pub(super) place: &'c str,
    pub(super) label: &'c str,
    pub(super) tool: &'c str,
    pub(super) arguments: &'c str,
}

impl AskedCall<'_> {
    fn message(&self) -> Vec<u8> {
        let Self { account, place, label, tool, arguments } = self;
        json!(["mcp_approval", account, place, label, tool, arguments]).to_string().into_bytes()
    }

    /// Returns the id of the request for approval.
    pub(super) fn id(&self) -> String {
        let (period, code) = envelope_mac().sign(&self.message());
        let bytes = [&period.to_be_bytes()[..], &code[..]].concat();
        format!("{PREFIX}{}{}", self.place, URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// Returns true if the gateway made a request for approval with exactly these arguments for the account.
fn is_made_here(account: &str, item: &Value) -> bool {
    let made = || {
        let rest = text(item, "id").strip_prefix(PREFIX)?;
        let (place, code) = rest.split_at_checked(rest.len().checked_sub(CODE_LETTERS)?)?;
        let bytes = URL_SAFE_NO_PAD.decode(code).ok()?;
        let (period, code) = bytes.split_first_chunk::<PERIOD_BYTES>()?;
        let code: &[u8; MAC_BYTES] = code.try_into().ok()?;
        let (label, tool) = (text(item, "server_label"), text(item, "name"));
        let call = AskedCall { account, place, label, tool, arguments: text(item, "arguments") };
        let period = u16::from_be_bytes(*period);
        envelope_mac().verify(period, &call.message(), code).then_some(())
    };
    made().is_some()
}

/// Requests for approval of an input, by their ids. Of two with the same id the first counts: stored items
/// precede those of the request.
pub(super) struct ApprovalRequests(HashMap<String, Value>);

impl ApprovalRequests {
    /// Collects the requests. Refuses a response to one that the gateway did not make, or that was changed.
    pub(super) fn read(account: &str, input: &[Value]) -> Result<Self, ApiError> {
        let mut requests = HashMap::new();
        for item in input.iter().filter(|item| text(item, "type") == "mcp_approval_request") {
            requests.entry(text(item, "id").to_owned()).or_insert_with(|| item.clone());
        }
        let answers = input.iter().enumerate();
        for (at, item) in answers.filter(|(_, item)| text(item, "type") == "mcp_approval_response")
        {
            let path = format!("input[{at}].approval_request_id");
            let why = match requests.get(text(item, "approval_request_id")) {
                None => "answers no `mcp_approval_request` of the input",
                Some(asked) if !is_made_here(account, asked) => {
                    "answers an `mcp_approval_request` that is not as it was made here"
                }
                Some(_) => continue,
            };
            return Err(ApiError::invalid(&path, format!("`{path}` {why}")));
        }
        Ok(Self(requests))
    }

    /// Returns the request with this id.
    pub(super) fn get(&self, id: &str) -> Option<&Value> {
        self.0.get(id)
    }
}
