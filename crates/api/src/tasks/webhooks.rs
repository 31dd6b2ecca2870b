//! Webhooks: whoever asked to hear of a task's end is told until they have heard.
//!
//! Signed as Standard Webhooks have it. Told at least once; `webhook-id` is the same every time, so
//! that whoever hears twice can tell. The address is the caller's and is guarded like any other.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use store::{DeliveryState, Task};
use tokio::sync::Semaphore;
use upstream::FetchError;

use super::view::task_json;
use crate::state::ApiState;

/// How long to wait after each try that was not heard; after the last of them nobody tries again.
const RETRY_DELAYS_S: [u64; 9] = [5, 30, 120, 600, 1_800, 3_600, 7_200, 14_400, 28_800];
/// How long a try may take before another node may make it.
const CLAIM_US: i64 = 60_000_000;
/// How many are told at once.
const MAX_CONCURRENT_WEBHOOKS: usize = 8;

impl ApiState {
    /// Tells of ends, until the order to stop. What is not told then is told by another process.
    pub async fn deliver_webhooks(self: Arc<Self>) {
        let seats = Arc::new(Semaphore::new(MAX_CONCURRENT_WEBHOOKS));
        while !self.stop.is_cancelled() {
            let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { return };
            match self.store.claim_notification(CLAIM_US).await {
                Ok(Some(task)) => {
                    let state = Arc::clone(&self);
                    self.engine.tasks.spawn(async move {
                        state.deliver_webhook(task).await;
                        drop(seat);
                    });
                    continue;
                }
                Ok(None) => {}
                Err(e) => tracing::warn!("who is to be told of tasks could not be read: {e}"),
            }
            tokio::select! {
                () = self.image_tasks.new_ends.notified() => {}
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn deliver_webhook(&self, task: Task) {
        let Some(hook) = task.webhook.clone() else { return };
        let (told, status, why) = match self.post_webhook(&task, &hook.url).await {
            Ok(status @ 200..=299) => (DeliveryState::Delivered, Some(status), String::new()),
            // They want to hear nothing more.
            Ok(410) => (DeliveryState::Failed, Some(410), "it answered 410".to_owned()),
            Ok(status) => (DeliveryState::Pending, Some(status), format!("it answered {status}")),
            Err(FetchError::NotPublic) => {
                (DeliveryState::Failed, None, "its address may not be dialled".to_owned())
            }
            Err(e @ (FetchError::Busy | FetchError::Failed(_))) => {
                (DeliveryState::Pending, None, e.to_string())
            }
        };
        let place = usize::try_from(hook.tries.saturating_sub(1)).unwrap_or(usize::MAX);
        let (told, wait) = match (told, RETRY_DELAYS_S.get(place)) {
            (DeliveryState::Pending, Some(seconds)) => (DeliveryState::Pending, *seconds),
            (DeliveryState::Pending, None) | (DeliveryState::Failed, _) => {
                (DeliveryState::Failed, 0)
            }
            (DeliveryState::Delivered, _) => (DeliveryState::Delivered, 0),
        };
        let id = &task.id;
        match told {
            DeliveryState::Delivered => {
                tracing::debug!(task.id = id, "the webhook of {id} was heard")
            }
            DeliveryState::Pending => tracing::debug!(
                task.id = id,
                tries = hook.tries,
                "the webhook of {id} was not heard and is tried again in {wait} s: {why}"
            ),
            DeliveryState::Failed => tracing::warn!(
                task.id = id,
                tries = hook.tries,
                "the webhook of {id} was not heard and is given up after {} tries: {why}",
                hook.tries
            ),
        }
        let wait = i64::try_from(wait).unwrap_or(i64::MAX).saturating_mul(1_000_000);
        let noted = self.store.record_notification(id, hook.tries, told, status, wait).await;
        if let Err(e) = noted {
            // It is tried again when its time is over: heard twice is better than never.
            tracing::warn!(task.id = id, "whether {id} was heard could not be noted: {e}");
        }
    }

    /// One try.
    async fn post_webhook(&self, task: &Task, url: &str) -> Result<u16, FetchError> {
        let broken = |e: &dyn std::fmt::Display| FetchError::Failed(e.to_string());
        let now = self.clock().now();
        let body = json!({
            "type": format!("image.generation.{}", task.state.word()),
            "timestamp": jiff::Timestamp::from_microsecond(now).unwrap_or_default().to_string(),
            "data": task_json(self, task),
        });
        let (body, seconds) = (body.to_string(), now / 1_000_000);
        let id = format!("msg_{}", task.id.trim_start_matches("task_"));
        let key = self.image_tasks.webhook_key(&task.account_id);
        let signature = sign(&key, &id, seconds, &body);
        let mut headers = HeaderMap::new();
        let fields = [
            ("webhook-id", id),
            ("webhook-timestamp", seconds.to_string()),
            ("webhook-signature", signature),
        ];
        for (name, value) in fields {
            headers.insert(name, HeaderValue::from_str(&value).map_err(|e| broken(&e))?);
        }
        self.config().media.fetcher.post(url, headers, Bytes::from(body)).await
    }
}

/// What proves a message: `v1,` and a MAC over its id, its time and its body.
fn sign(key: &[u8], id: &str, seconds: i64, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let signed = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
    format!("v1,{}", STANDARD.encode(signed))
}

/// A secret as receivers are given it.
pub(super) fn secret_text(key: &[u8]) -> String {
    format!("whsec_{}", STANDARD.encode(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification's own libraries.
    #[test]
    fn a_message_is_signed_as_others_sign_it() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let body = r#"{"test": 2432232314}"#;
        let signed = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(secret_text(&key), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    }
}
