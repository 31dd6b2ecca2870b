//! Mail leaves through the operator's SMTP server.

use lettre::message::{Mailbox, MultiPart};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};

/// A mail to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailMessage {
    /// Whom it is for: one plain address.
    pub to: String,
    /// What it is about.
    pub subject: String,
    /// What it says.
    pub text: String,
    /// The same as HTML.
    pub html: String,
}

/// Where mail goes, and from whom.
#[derive(Clone)]
pub struct Mailer {
    pub smtp: AsyncSmtpTransport<Tokio1Executor>,
    pub from: Mailbox,
}

/// The way may know a password.
impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Post").field("from", &self.from.to_string()).finish_non_exhaustive()
    }
}

impl Mailer {
    /// Sends a mail, as text and as HTML. The error is for the log.
    pub async fn send(&self, mail: MailMessage) -> Result<(), String> {
        let MailMessage { to, subject, text, html } = mail;
        // Only the address itself: what stands in it can be no second one and no header.
        let to = to.parse().map_err(|_| "the recipient is no address".to_owned())?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(subject)
            .message_id(None)
            .multipart(MultiPart::alternative_plain_html(text, html))
            .map_err(|error| error.to_string())?;
        self.smtp.send(message).await.map(|_| ()).map_err(|error| error.to_string())
    }
}
