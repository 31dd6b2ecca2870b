//! Alerts as messages to the webhooks of their accounts.

use admin::AlertView;
use bytes::Bytes;
use http::HeaderMap;
use serde_json::json;
use store::{ObjectOwner, WebhookForm};
use upstream::FetchError;

use crate::state::ApiState;

impl ApiState {
    /// Sends an alert to a webhook and returns the status of the answer.
    pub async fn post_alert(
        &self,
        alert: &AlertView,
        form: WebhookForm,
        url: &str,
    ) -> Result<u16, FetchError> {
        match form {
            WebhookForm::Signed => {
                let owner = ObjectOwner::account(&alert.alert.account_id);
                let id = format!("msg_{}", alert.alert.id);
                let data = alert.to_json();
                let kind = format!("alert.{}", alert.kind_word());
                let body = json!({ "type": kind, "timestamp": data.get("at"), "data": data });
                self.post_signed(url, &id, &[owner], body.to_string()).await
            }
            WebhookForm::Slack => {
                let page = format!("{}/console/alerts", self.config().public_url);
                let text = format!("{} <{page}|Show alerts>", slack_text(&alert.chat_sentence()));
                let body = Bytes::from(json!({ "text": text }).to_string());
                self.config().media.fetcher.post(url, HeaderMap::new(), body).await
            }
        }
    }

    /// Returns the secret that signs the alerts of an account, in the notation of Standard Webhooks.
    pub fn alert_secret(&self, account_id: &str) -> String {
        self.image_tasks.webhook_secret(&ObjectOwner::account(account_id))
    }
}

/// Escapes a text, in which names could be commands
/// (<https://docs.slack.dev/messaging/formatting-message-text#escaping>).
fn slack_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_no_commands() {
        assert_eq!(super::slack_text("a <!channel> & b"), "a &lt;!channel&gt; &amp; b");
    }
}
