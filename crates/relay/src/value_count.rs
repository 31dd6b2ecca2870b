//! Limits of the values of a JSON body.

use access::limits::Admission;
use canon::{ApiError, ErrorKind};
use dialects::{MAX_REQUEST_VALUES, count_values};
use store::is_large;

use crate::engine::Engine;

/// Values of one answer or event of a provider. The most come with logprobs: 16,000 tokens with 20
/// alternatives each, and their bytes, have 2.7 million.
const MAX_REPLY_VALUES: usize = 3_000_000;
/// Memory of a value with its key, while a request is translated.
const VALUE_BYTES: u64 = 256;

/// Reserves memory for the values of a large body. Those of a small one fit into what it has.
pub(crate) async fn reserve_values(
    engine: &Engine,
    body: &[u8],
    admission: &Admission,
) -> Result<(), ApiError> {
    if !is_large(body.len()) {
        return Ok(());
    }
    let values = engine
        .heavy_work
        .permit(body.len())
        .await
        .run(|| count_values(body, MAX_REQUEST_VALUES))
        .await;
    if values > MAX_REQUEST_VALUES {
        let message = format!("the body has more than {MAX_REQUEST_VALUES} values, the limit here");
        return Err(ApiError::new(ErrorKind::BodyTooLarge, message));
    }
    match &admission.buffer {
        Some(permit) => permit.grow((values as u64).saturating_mul(VALUE_BYTES)),
        None => Ok(()),
    }
}

/// Refuses an answer or an event of a provider with too many values. The next lane may do better.
pub(crate) fn check_reply_values(text: &[u8]) -> Result<(), ApiError> {
    if !is_large(text.len()) || count_values(text, MAX_REPLY_VALUES) <= MAX_REPLY_VALUES {
        return Ok(());
    }
    let message = format!("the provider's answer has more than {MAX_REPLY_VALUES} values");
    Err(ApiError::new(ErrorKind::Unavailable, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_with_too_many_values_are_the_providers_fault() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 2)).into_bytes();
        assert!(check_reply_values(&list(MAX_REPLY_VALUES)).is_ok());
        let error = check_reply_values(&list(MAX_REPLY_VALUES + 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.is_retryable());
    }
}
