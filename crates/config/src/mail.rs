//! Mail through the SMTP server of the operator.

use lettre::message::{Mailbox, MultiPart};
use lettre::{AsyncSmtpTransport, AsyncTransport as _, Message, Tokio1Executor};
use std::time::Duration;

/// Time the mail server may take for one mail.
pub(crate) const SMTP_TIMEOUT: Duration = Duration::from_secs(20);

/// A mail to one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MailMessage {
    /// Address of the recipient, without a display name.
    pub to: String,
    /// Subject line.
    pub subject: String,
    /// Body as plain text.
    pub text: String,
    /// Body as HTML.
    pub html: String,
}

/// SMTP server and sender of all mail.
#[derive(Clone)]
pub struct Mailer {
    /// Connection to the SMTP server.
    pub smtp: AsyncSmtpTransport<Tokio1Executor>,
    /// Sender of every mail.
    pub from: Mailbox,
}

/// Omits the SMTP transport, which may hold a password.
impl std::fmt::Debug for Mailer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mailer").field("from", &self.from.to_string()).finish_non_exhaustive()
    }
}

/// Reason why a mail was not sent, for the log.
#[derive(Debug, thiserror::Error)]
pub enum MailError {
    /// The recipient is not a mail address.
    #[error("the recipient is not a mail address")]
    Recipient,
    /// The mail cannot be written.
    #[error(transparent)]
    Message(#[from] lettre::error::Error),
    /// The mail server failed.
    #[error(transparent)]
    Smtp(#[from] lettre::transport::smtp::Error),
    /// The mail server did not answer.
    #[error("the mail server did not answer within {} s", SMTP_TIMEOUT.as_secs())]
    Timeout,
}

impl Mailer {
    /// Sends a mail as text and HTML. The error is for the log.
    pub async fn send(&self, mail: MailMessage) -> Result<(), MailError> {
        let MailMessage { to, subject, text, html } = mail;
        // Parses the bare address, so that the text cannot add a recipient or a header.
        let to = to.parse().map_err(|_| MailError::Recipient)?;
        let message = Message::builder()
            .from(self.from.clone())
            .to(Mailbox::new(None, to))
            .subject(subject)
            .message_id(None)
            .multipart(MultiPart::alternative_plain_html(text, html))?;
        // The limit of the library is for the connection only.
        match tokio::time::timeout(SMTP_TIMEOUT, self.smtp.send(message)).await {
            Ok(sent) => Ok(sent.map(drop)?),
            Err(_) => Err(MailError::Timeout),
        }
    }
}
