//! The processes that the journeys need.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use super::cdp::Browser;
use super::hostile;
use super::mailbox::Mailbox;
use crate::gateway::{Binary, Server, free_address};
use crate::process::TempFolder;
use crate::suite::node;
use crate::tools;
use crate::workspace;

/// Everything the journeys need.
pub(super) struct BrowserStage {
    pub(super) browser: Browser,
    pub(super) mailbox: Mailbox,
    pub(super) binary: Binary,
    pub(super) data: PathBuf,
    /// The gateway's address.
    pub(super) url: String,
    /// Folder of the screenshots.
    pub(super) shots: PathBuf,
    /// Accessibility checker (<https://github.com/dequelabs/axe-core>).
    pub(super) axe: String,
    /// The set-up link that the gateway prints at its first start.
    pub(super) setup: String,
    _gateway: Server,
    _provider: Server,
    _scratch: TempFolder,
}

impl BrowserStage {
    pub(super) fn start() -> Result<Self> {
        let source = workspace::root().join("tests/browser");
        let python = tools::python("browser", &source.join("requirements.txt"))?;
        let node = node::install("browser", &source)?;
        let axe = fs::read_to_string(node.folder.join("node_modules/axe-core/axe.min.js"))?;
        let scratch = TempFolder::new("browser")?;
        let folder = scratch.path();

        let (gateway, provider, mail) = (free_address()?, free_address()?, free_address()?);
        let url = format!("http://localhost:{}", gateway.port());
        let mut command = node.command();
        command.arg("provider.mjs").arg(provider.port().to_string()).arg(&url);
        command.current_dir(&node.folder);
        let log = folder.join("provider.log");
        let path = "/.well-known/openid-configuration";
        let provided = Server::start("oidc-provider", &mut command, provider, path, &log)?;
        let mailbox = Mailbox::start(&python, mail, folder)?;

        let config = folder.join("gateway.toml");
        fs::write(&config, settings(&url, mail.port(), provider.port()))?;
        let binary = Binary::build()?;
        let data = folder.join("data");
        let log = folder.join("gateway.log");
        let mut serve = binary.serve(gateway, &data, Some(&config));
        let served = Server::start("portunus serve", &mut serve, gateway, "/readyz", &log)?;
        let greeting = fs::read_to_string(&log)?;
        let setup = greeting.split_whitespace().find(|word| word.contains("/console/setup/"));
        let setup = setup.context("the greeting has no set-up link")?.to_owned();
        Ok(Self {
            browser: Browser::start(folder)?,
            mailbox,
            binary,
            data,
            url,
            shots: workspace::target().join("shots"),
            axe,
            setup,
            _gateway: served,
            _provider: provided,
            _scratch: scratch,
        })
    }
}

fn settings(url: &str, mail: u16, provider: u16) -> String {
    format!(
        r#"
[server]
public_url = "{url}"
[mail]
url = "smtp://127.0.0.1:{mail}"
from = "Portunus <no-reply@example.com>"
[outbound]
allow = ["127.0.0.0/8"]
[identity.corp]
issuer = "http://localhost:{provider}"
client_id = "portunus"
client_secret = {{ text = "a secret of the browser tests" }}
admits = "member"
[models.{odd}]
lanes = ["demo/demo-chat"]
price = {{ input = "1.00", output = "2.00" }}
"#,
        // A JSON string is also a TOML string.
        odd = serde_json::json!(hostile::MODEL)
    )
}
