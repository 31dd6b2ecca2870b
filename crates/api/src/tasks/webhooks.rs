//! Webhooks: notifications about the end of a task, retried until delivered.
//!
//! Messages are signed as in Standard Webhooks:
//! <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>.
//! Delivery is at least once. `webhook-id` is the same in every attempt, so that receivers can drop
//! duplicates. The URL comes from the caller, so requests to it pass the SSRF guard.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canon::Micros;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::{DeliveryState, ObjectOwner, Task};
use tokio::sync::Semaphore;
use upstream::FetchError;

use super::view::task_json;
use crate::state::ApiState;

/// Delay after each failed attempt. After the last one the webhook is given up.
const RETRY_DELAYS_S: [u64; 9] = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800];
/// Lifetime of a claim. Another node may retry after it.
const CLAIM_TIME: Micros = Micros::from_secs(60);
/// Maximum number of concurrent deliveries.
const MAX_CONCURRENT_WEBHOOKS: usize = 8;

impl ApiState {
    /// Delivers webhooks until shutdown. Another process delivers the rest.
    pub async fn deliver_webhooks(self: Arc<Self>) {
        let slots = Arc::new(Semaphore::new(MAX_CONCURRENT_WEBHOOKS));
        while !self.stop.is_cancelled() {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
            match self.store.claim_notification(CLAIM_TIME).await {
                Ok(Some(task)) => {
                    let state = Arc::clone(&self);
                    self.engine.tasks.spawn(async move {
                        state.deliver_webhook(task).await;
                        drop(slot);
                    });
                    continue;
                }
                Ok(None) => {}
                Err(e) => tracing::warn!("webhooks cannot be claimed at the moment: {e}"),
            }
            tokio::select! {
                () = self.image_tasks.new_ends.notified() => {}
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn deliver_webhook(&self, task: Task) {
        let Some(webhook) = task.webhook.clone() else { return };
        let (delivery, status, why) = match self.post_webhook(&task, &webhook.url).await {
            Ok(status @ 200..=299) => (DeliveryState::Delivered, Some(status), String::new()),
            // 410 Gone means that the receiver wants no more messages.
            Ok(410) => (DeliveryState::Failed, Some(410), "it answered 410".to_owned()),
            Ok(status) => (DeliveryState::Pending, Some(status), format!("it answered {status}")),
            Err(FetchError::NotPublic) => {
                (DeliveryState::Failed, None, "its address is not public".to_owned())
            }
            Err(e @ (FetchError::Busy | FetchError::Failed(_))) => {
                (DeliveryState::Pending, None, e.to_string())
            }
        };
        let attempt_index = usize::try_from(webhook.tries.saturating_sub(1)).unwrap_or(usize::MAX);
        let (delivery, wait) = match (delivery, RETRY_DELAYS_S.get(attempt_index)) {
            (DeliveryState::Pending, Some(seconds)) => (DeliveryState::Pending, *seconds),
            (DeliveryState::Pending, None) | (DeliveryState::Failed, _) => {
                (DeliveryState::Failed, 0)
            }
            (DeliveryState::Delivered, _) => (DeliveryState::Delivered, 0),
        };
        let id = &task.id;
        match delivery {
            DeliveryState::Delivered => {
                tracing::debug!(task.id = id, "the webhook of {id} was delivered")
            }
            DeliveryState::Pending => tracing::debug!(
                task.id = id,
                tries = webhook.tries,
                "the webhook of {id} failed and is retried in {wait} s: {why}"
            ),
            DeliveryState::Failed => tracing::warn!(
                task.id = id,
                tries = webhook.tries,
                "the webhook of {id} is given up after {} failed attempts: {why}",
                webhook.tries
            ),
        }
        let wait = Micros::from_secs(i64::try_from(wait).unwrap_or(i64::MAX));
        let stored =
            self.store.record_notification(id, webhook.tries, delivery, status, wait).await;
        if let Err(e) = stored {
            // The attempt is repeated after its claim expires. A duplicate is better than a lost
            // message.
            tracing::warn!(task.id = id, "the delivery state of {id} could not be stored: {e}");
        }
    }

    /// Sends one attempt and returns the status of the answer.
    async fn post_webhook(&self, task: &Task, url: &str) -> Result<u16, FetchError> {
        if url.is_empty() {
            return Err(FetchError::Failed("its URL cannot be decrypted".to_owned()));
        }
        let now = self.clock().now();
        let body = json!({
            "type": format!("image.generation.{}", task.state.word()),
            "timestamp": jiff::Timestamp::from_microsecond(now.get()).unwrap_or_default().to_string(),
            "data": task_json(self, task),
        });
        let id = format!("msg_{}", task.id.trim_start_matches("task_"));
        // A message has several signatures, and a receiver accepts it for any of them. That of the
        // account is for accounts that share, and for receivers set up before keys had a secret.
        let owners = [
            ObjectOwner::key(&task.account_id, &task.key_id),
            ObjectOwner::account(&task.account_id),
        ];
        self.post_signed(url, &id, &owners, body.to_string()).await
    }

    /// Sends a message with a signature of each owner and returns the status of the answer.
    pub(crate) async fn post_signed(
        &self,
        url: &str,
        id: &str,
        owners: &[ObjectOwner],
        body: String,
    ) -> Result<u16, FetchError> {
        let seconds = self.clock().now().as_secs();
        let signature = |owner| sign(&self.image_tasks.webhook_key(owner), id, seconds, &body);
        let signatures: Vec<String> = owners.iter().map(signature).collect();
        let mut headers = HeaderMap::new();
        let fields = [
            ("webhook-id", id.to_owned()),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signatures.join(" ")),
        ];
        for (name, value) in fields {
            let value = HeaderValue::from_str(&value);
            headers.insert(name, value.map_err(|e| FetchError::Failed(e.to_string()))?);
        }
        self.config().media.fetcher.post(url, headers, Bytes::from(body)).await
    }
}

/// Returns the signature of a message: `v1,` and an HMAC over its id, its time and its body.
fn sign(key: &[u8], id: &str, seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signed = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(signed))
}

/// Encodes a secret as receivers expect it.
pub(super) fn secret_text(key: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector of the Standard Webhooks libraries.
    #[test]
    fn signature_matches_standard_webhooks() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret_text(&key), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    }
}
