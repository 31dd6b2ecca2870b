//! Fields that the forms of alerts share: who hears of them, and when.

use admin::{AlertWebhook, QuietDraft, WebhookDraft};
use maud::{Markup, html};
use store::{QuietHours, WebhookForm};

use crate::form::{FieldErrors, FormFields, FormInput};
use crate::page_error::PageError;

const MAX_FIELD_BYTES: usize = 4_096;

/// Returns the values of the fields of quiet hours and of the webhook.
pub(crate) fn receiver_values(
    quiet: Option<&QuietHours>,
    webhook: Option<&AlertWebhook>,
) -> [(&'static str, String); 4] {
    let [from, to, zone] = quiet.map(QuietHours::parts).unwrap_or_default();
    [
        ("quiet_hours.from", from),
        ("quiet_hours.to", to),
        ("quiet_hours.time_zone", zone),
        ("webhook.form", webhook.map_or("", |webhook| webhook.form.word()).to_owned()),
    ]
}

/// The value of a tick box.
pub(crate) fn tick_value(is_on: bool) -> String {
    if is_on { "on" } else { "" }.to_owned()
}

/// Reads the quiet hours of a form.
pub(crate) fn read_quiet(fields: &FormFields) -> Result<Option<QuietDraft>, PageError> {
    let quiet = |name| fields.get_trimmed(name, MAX_FIELD_BYTES).map(str::to_owned);
    let (from, to) = (quiet("quiet_hours.from")?, quiet("quiet_hours.to")?);
    let zone = quiet("quiet_hours.time_zone")?;
    let is_quiet = !from.is_empty() || !to.is_empty();
    Ok(is_quiet.then_some(QuietDraft { from, to, zone }))
}

/// Reads the webhook of a form. Returns nothing and notes the error if its kind is not chosen.
pub(crate) fn read_webhook(
    fields: &FormFields,
    errors: &mut FieldErrors,
) -> Result<Option<Option<WebhookDraft>>, PageError> {
    let address = fields.get_trimmed("webhook.url", MAX_FIELD_BYTES)?;
    let word = fields.get("webhook.form");
    let form = WebhookForm::by_word(word);
    if form.is_none() && (!word.is_empty() || !address.is_empty()) {
        errors.add("webhook.form", "Choose the kind of messages for this address.");
        return Ok(None);
    }
    let address = (!address.is_empty()).then(|| address.to_owned());
    Ok(Some(form.map(|form| WebhookDraft { form, address })))
}

/// A tick box with its explanation.
pub(crate) fn tick_field(fields: &FormFields, name: &str, label: &str, help: &str) -> Markup {
    html! {
        label.tick {
            input type="checkbox" name=(name) value="on" checked[fields.get(name) == "on"];
            span { (label) span.help { (help) } }
        }
    }
}

/// Fields of quiet hours.
pub(crate) fn quiet_fields(fields: &FormFields, errors: &FieldErrors) -> Markup {
    let input = |name, label, kind, help| {
        let value = fields.get(name);
        FormInput {
            name,
            label,
            kind,
            value,
            help: Some(help),
            mark_optional: false,
            ..FormInput::default()
        }
        .render(errors)
    };
    html! {
        div.row {
            (input("quiet_hours.from", "No mail from", "time", "Empty for mail at all hours."))
            (input("quiet_hours.to", "No mail until", "time", "What came up meanwhile is one mail then."))
        }
        (input("quiet_hours.time_zone", "Time zone of these hours", "text", "Such as Europe/Berlin, or UTC."))
    }
}

/// Fields of the kind and the address of a webhook.
pub(crate) fn webhook_fields(
    present: Option<&AlertWebhook>,
    fields: &FormFields,
    errors: &FieldErrors,
) -> Markup {
    let chosen = fields.get("webhook.form");
    let wrong = errors.get("webhook.form");
    let help = match present.map(AlertWebhook::origin) {
        Some(origin) => format!("Now {origin} Empty keeps it."),
        None => "An address that is reached over https from the internet.".to_owned(),
    };
    html! {
        div.field.wrong[wrong.is_some()] {
            label for="webhook.form" { "Webhook" }
            select id="webhook.form" name="webhook.form" {
                option value="" selected[chosen.is_empty()] { "None" }
                option value=(WebhookForm::Slack.word()) selected[chosen == WebhookForm::Slack.word()] {
                    "Slack, Mattermost and alike"
                }
                option value=(WebhookForm::Signed.word()) selected[chosen == WebhookForm::Signed.word()] {
                    "JSON with a signature"
                }
            }
            (crate::form::field_notes("webhook.form", wrong, None))
        }
        (FormInput {
            name: "webhook.url",
            label: "Address of the webhook",
            value: fields.get("webhook.url"),
            input_mode: Some("url"),
            help: Some(&help),
            ..FormInput::default()
        }.render(errors))
    }
}
