//! Mail about alerts.

use super::{MailDraft, signed};
use crate::MailMessage;

/// Returns a mail with a sentence for each alert, of which `more` are left out.
pub fn alert_mail(
    gateway: &str,
    to: &str,
    subject: &str,
    sentences: &[String],
    more: usize,
    page: &str,
) -> MailMessage {
    let mut paragraphs = sentences.to_vec();
    if more > 0 {
        paragraphs.push(format!("{more} more alerts are on the page."));
    }
    let draft = MailDraft {
        to,
        subject,
        paragraphs: &paragraphs,
        button: Some((page, "Show alerts")),
        footnote: "The page of alerts is also where these mails are turned off.",
    };
    signed(draft.render(), gateway)
}
