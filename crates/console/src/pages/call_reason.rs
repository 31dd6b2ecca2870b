//! The reason in one sentence for which a call has no complete answer.

use ledger::{CallError, CallOutcome, EndedBy, LedgerEntry};
use maud::{Markup, html};

/// Returns the sentence; `None` if the call was answered to its end.
pub(super) fn call_reason(call: &LedgerEntry) -> Option<String> {
    let sentence = match call.outcome {
        CallOutcome::Done => return None,
        CallOutcome::CallerLeft => {
            "The caller closed the connection before the end of the answer.".to_owned()
        }
        CallOutcome::Recovered => {
            "The gateway died during the call, which was settled from its journal.".to_owned()
        }
        CallOutcome::BrokeOff => broken_answer(call.ended_by).to_owned(),
        CallOutcome::Failed => failure(call),
    };
    Some(sentence)
}

fn broken_answer(ended_by: EndedBy) -> &'static str {
    match ended_by {
        EndedBy::Provider => "The answer of the provider ended too early.",
        EndedBy::Caller => "The caller ended the answer.",
        EndedBy::Limit => "The answer reached a limit of the request or of the gateway.",
        EndedBy::Cap => "The money of the key was used up during the answer.",
        EndedBy::Deadline => "A timeout ended the answer.",
        EndedBy::Operator => "The key was revoked during the answer, or the gateway was stopped.",
    }
}

/// Returns the code and the message of the error, with the field that is at fault.
pub(super) fn call_error(call: &LedgerEntry) -> Option<Markup> {
    let CallError { code, field, message } = call.error.as_deref()?;
    Some(html! {
        code { (code) } " "
        @if !field.is_empty() { "at " code { bdi { (field) } } ": " }
        bdi { (message) }
    })
}

fn failure(call: &LedgerEntry) -> String {
    let status = call.status;
    let cause = match status {
        400 | 422 => "The request is not valid",
        401 | 403 => "The request is not permitted",
        404 => "The request names something that does not exist",
        413 => "The request is too large",
        429 => "A limit was reached",
        499 => "The caller closed the connection before the answer began",
        503 => "No lane could answer",
        504 => "No lane answered in time",
        500.. => "The gateway failed",
        _ => "The call failed",
    };
    let answered = match (call.lane.is_empty(), call.failed.last()) {
        (false, _) => format!(" {} said so.", call.lane),
        (true, Some(last)) => match last.status {
            Some(status) => format!(" The last lane, {}, answered {status}.", last.lane),
            None => format!(" The last lane, {}, failed: {}.", last.lane, last.outcome),
        },
        (true, None) if call.attempts == 0 => {
            " The gateway said so before it tried a lane.".to_owned()
        }
        (true, None) => String::new(),
    };
    format!("{cause} ({status}).{answered}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::FailedAttempt;

    #[test]
    fn every_end_but_a_complete_answer_has_a_sentence() {
        for outcome in CallOutcome::ALL {
            for ended_by in EndedBy::ALL {
                let call = LedgerEntry { outcome, ended_by, status: 503, ..LedgerEntry::default() };
                assert_eq!(call_reason(&call).is_none(), outcome == CallOutcome::Done);
            }
        }
    }

    #[test]
    fn a_failure_names_its_lane() {
        let call = LedgerEntry { status: 400, lane: "a/x".into(), ..LedgerEntry::default() };
        assert_eq!(call_reason(&call).unwrap(), "The request is not valid (400). a/x said so.");
        let last = FailedAttempt {
            lane: "b/x".to_owned(),
            outcome: "unavailable".to_owned(),
            status: Some(529),
            ms: 3,
        };
        let mut call = LedgerEntry { status: 503, failed: vec![last], ..LedgerEntry::default() };
        assert_eq!(
            call_reason(&call).unwrap(),
            "No lane could answer (503). The last lane, b/x, answered 529."
        );
        call.failed.clear();
        let told = call_reason(&call).unwrap();
        assert!(told.ends_with("before it tried a lane."), "{told}");
    }
}
