//! The page that shows a new key with examples.

use catalog::ModelKind;
use maud::{Markup, html};
use store::{KeyGrants, KeyRecord, KeyScope};

use super::{TabPanel, copy_block, tabs};
use crate::call_example::{CallExample, ExampleKey};
use crate::snippet::{self, ApiFormat};
use crate::state::ConsoleState;

/// Renders the page that shows a key's text, once.
pub(super) fn render_new_key(
    state: &ConsoleState,
    record: &KeyRecord,
    text: &str,
    title: &str,
    home: &str,
) -> Markup {
    let (url, formats) = (state.base_url(), state.formats());
    let model = state.with_catalog(|catalog| {
        let allowed = |id: &str| {
            let models = &record.models;
            models.is_empty() || models.iter().any(|listed| canon::covers_model(listed, id))
        };
        let mut chats = catalog.iter().filter(|model| model.kind == ModelKind::Chat);
        chats.find(|model| allowed(&model.id)).cloned()
    });
    let mut shown = Vec::new();
    // The examples are for keys that make calls.
    let calls = record.scope == KeyScope::Call && record.grants == KeyGrants::All;
    let model = model.filter(|_| calls);
    if let Some(model) = &model {
        let format = formats.iter().find(|format| format.supports(ModelKind::Chat));
        if let Some(format) = format {
            let example = CallExample::new(*format, model, &url, ExampleKey::Text(text));
            shown.push(("curl", "curl", example.curl()));
            shown.push(("python", "Python", example.python()));
            shown.push(("javascript", "JavaScript", example.javascript()));
        }
        let model = model.id.as_str();
        if formats.contains(&ApiFormat::Messages) {
            shown.push(("claude", "Claude Code", snippet::claude_code(&url, model, text)));
        }
        if formats.contains(&ApiFormat::Responses) {
            shown.push(("codex", "Codex", snippet::codex(&url, model, text)));
        }
        if formats.contains(&ApiFormat::Native) {
            shown.push(("gemini", "Gemini CLI", snippet::gemini_cli(&url, model, text)));
        }
    }
    let environment = snippet::environment(&url, text, &formats);
    if !calls {
        // Every key may ask what it is.
        let whole = record.scope == KeyScope::Admin && record.grants == KeyGrants::All;
        let path = if whole { "/api/admin/keys" } else { "/v1/key" };
        let curl = format!("curl {url}{path} -H \"Authorization: Bearer {text}\"");
        shown.push(("curl", "curl", curl));
    } else if !environment.is_empty() {
        shown.push(("env", "Environment", environment));
    }
    let shown: Vec<TabPanel> = shown
        .into_iter()
        .map(|(id, title, text)| TabPanel {
            id: id.to_owned(),
            title,
            body: copy_block(id, title, &text),
        })
        .collect();
    html! {
        section.card.broad {
            p.crumbs { a href=(home) { "Console" } " / Keys" }
            h1 { (title) }
            p { "Copy " strong { bdi { (record.name) } } " now. "
                "It is shown this once: the gateway keeps no copy it could show again." }
            div.secret {
                code id="key" { (text) }
                button.copy type="button" hidden data-copy="key" { "Copy" }
            }
            p.help {
                "Keep it in an environment variable on your server; never in a repository, a web "
                "page or a screenshot."
            }
            @if !shown.is_empty() {
                h2 { "Use it" }
                (tabs("use", &shown))
            }
            p.actions { a.button href=(home) { "I have copied it" } }
        }
    }
}
