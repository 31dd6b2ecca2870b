//! The usual environment variables alone activate a provider with all its directory models.

use catalog::{AuthScheme, ModelDirectory, ProviderEntry};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use crate::providers::service_account::Account;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("portunus-on-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The models `portunus models` lists with these variables, and what it warns of.
fn models(folder: &Folder, variables: &[(String, String)]) -> (BTreeSet<String>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_portunus"))
        .current_dir(&folder.0)
        .env_clear()
        .env("PORTUNUS_SERVER_DEMO", "false")
        .envs(variables.iter().cloned())
        .args(["models", "--json"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let ids = String::from_utf8(output.stdout).unwrap();
    let ids = ids.lines().map(|line| {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        record["id"].as_str().unwrap().to_owned()
    });
    (ids.collect(), said)
}

fn variables(provider: &ProviderEntry, account: &str) -> Vec<(String, String)> {
    let mut variables: Vec<(String, String)> = provider
        .placeholder_env
        .iter()
        .map(|(blank, names)| {
            let value = if blank == "endpoint" { "https://our.example/" } else { "eu-west-1" };
            (names[0].clone(), value.to_owned())
        })
        .collect();
    let key = match provider.auth {
        AuthScheme::Google => account.to_owned(),
        AuthScheme::SigV4(_) => {
            variables.push(("AWS_SECRET_ACCESS_KEY".to_owned(), "hush-hush".to_owned()));
            "AKIDEXAMPLE".to_owned()
        }
        AuthScheme::Bearer | AuthScheme::Header(_) | AuthScheme::None => "hush-hush".to_owned(),
    };
    variables.push((provider.key_env[0].clone(), key));
    variables
}

#[test]
fn every_providers_variables_alone_list_exactly_its_models() {
    let folder = Folder::new("all");
    let file = folder.0.join("account.json");
    std::fs::write(&file, Account::new().json("https://oauth2.googleapis.com/token")).unwrap();
    assert!(models(&folder, &[]).0.is_empty());
    let mut seen = 0;
    for provider in
        ModelDirectory::embedded().providers().filter(|provider| !provider.key_env.is_empty())
    {
        let variables = variables(provider, file.to_str().unwrap());
        let (listed, said) = models(&folder, &variables);
        let offered: BTreeSet<String> = ModelDirectory::embedded()
            .models()
            .filter(|entry| entry.served_by(|id| id == provider.id).is_some())
            .map(|entry| entry.id.clone())
            .collect();
        assert_eq!(listed, offered, "{}: {said}", provider.id);
        // Their models are named by the operator, or are open weights that others serve.
        let nameless = ["bedrock-runtime", "nvidia"].contains(&provider.id.as_str());
        assert_eq!(offered.is_empty(), nameless, "{}", provider.id);
        assert!(!said.contains("hush-hush") && !said.contains("stays off"), "{said}");
        seen += 1;
        // Without values for its placeholders it has no address and stays off.
        if !provider.placeholder_env.is_empty() {
            let alone: Vec<_> = variables.into_iter().rev().take(1).collect();
            assert!(models(&folder, &alone).0.is_empty(), "{}", provider.id);
        }
    }
    assert!(seen > 20, "{seen}");
}
