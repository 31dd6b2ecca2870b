//! Mails the console sends, one file each, as text and as HTML.
//!
//! Callers send a mail in a separate task. Otherwise the response time of the mail server would
//! reveal whether a mail was sent.

mod account_changed;
mod account_exists;
mod alert;
mod confirm;
mod invite;
mod reset;
mod signup;

pub(crate) use account_changed::account_changed;
pub(crate) use account_exists::account_exists;
pub use alert::AlertMail;
pub(crate) use confirm::confirm;
pub(crate) use invite::invite;
pub(crate) use reset::reset;
pub(crate) use signup::signup;

use maud::{DOCTYPE, html};

use crate::state::ConsoleState;
use crate::{ConsoleHost, MailMessage};
use admin::names;

/// Content of a mail before rendering.
struct MailDraft<'a> {
    to: &'a str,
    subject: &'a str,
    paragraphs: &'a [String],
    /// URL and label of the button.
    button: Option<(&'a str, &'a str)>,
    footnote: &'a str,
}

impl MailDraft<'_> {
    fn render(&self) -> MailMessage {
        let Self { to, subject, paragraphs, button, footnote } = self;
        let mut text = paragraphs.join("\n\n");
        if let Some((url, _)) = button {
            text.push_str(&format!("\n\n{url}"));
        }
        text.push_str(&format!("\n\n{footnote}\n"));
        // Mail clients ignore stylesheets, so the styles are inline.
        let html = html! {
            (DOCTYPE)
            html lang="en" {
                head { meta charset="utf-8"; title { (subject) } }
                body style="margin:0;padding:24px;background:#f6f5f0;color:#1b2427;font:16px/1.55 system-ui,sans-serif" {
                    div style="max-width:30em;margin:0 auto;padding:28px;background:#ffffff;border:1px solid #dedbd1;border-radius:12px" {
                        h1 style="margin:0 0 16px;font-size:20px" { (subject) }
                        @for paragraph in *paragraphs { p style="margin:0 0 16px;white-space:pre-line" { (paragraph) } }
                        @if let Some((url, label)) = button {
                            p style="margin:0 0 16px" {
                                a href=(url) style="display:inline-block;padding:12px 20px;border-radius:8px;background:#0b5d66;color:#ffffff;font-weight:600;text-decoration:none" { (label) }
                            }
                            p style="margin:0 0 16px;font-size:13px;color:#566166;word-break:break-all" { (url) }
                        }
                        p style="margin:0;font-size:13px;color:#566166" { (footnote) }
                    }
                }
            }
        };
        MailMessage {
            to: (*to).to_owned(),
            subject: (*subject).to_owned(),
            text,
            html: html.into_string(),
        }
    }
}

/// Sends a mail signed with the gateway's name. A failure is only logged.
pub(crate) async fn send(state: &ConsoleState, mail: MailMessage) {
    let name = names::gateway_name(&state.store).await;
    send_through(state.host.as_ref(), &name, mail).await;
}

/// Sends a mail from a task that holds only the host.
pub(crate) async fn send_through(host: &dyn ConsoleHost, name: &str, mail: MailMessage) {
    let mail = signed(mail, name);
    let subject = mail.subject.clone();
    match host.send_mail(mail).await {
        Ok(()) => tracing::info!(subject, "sent a mail: {subject}"),
        Err(error) => tracing::error!(subject, "cannot send a mail: {error}"),
    }
}

/// Adds the name of the gateway to the end of a mail.
fn signed(mut mail: MailMessage, name: &str) -> MailMessage {
    mail.text.push_str(&format!("\n{name}\n"));
    let signature = html! {
        p style="max-width:30em;margin:16px auto 0;font-size:13px;color:#566166" { (name) }
    };
    mail.html = mail.html.replacen("</body>", &format!("{}</body>", signature.into_string()), 1);
    mail
}
