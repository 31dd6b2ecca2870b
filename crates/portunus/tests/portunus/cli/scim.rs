//! `portunus scim`: tokens of identity providers.

use super::*;

fn token<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["scim", "token", "--config", "portunus.toml"], more].concat()
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let folder = Folder::new("scim");
    let config = "[server]\npublic_url = \"https://gateway.example.com\"\n[identity.corp]\n\
                  issuer = \"https://id.example.com\"\nclient_id = \"p\"\nclient_secret = { text = \"x\" }\n";
    std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
    let made = folder.json(&token(&["create", "--identity", "corp", "--expires", "30d", "--json"]));
    assert!(made["token"].as_str().unwrap().starts_with("scim-pt-"), "{made}");
    assert_eq!(made["base_url"], "https://gateway.example.com/scim/v2");
    let second = folder.run(&token(&["create", "--identity", "corp"]));
    let second = String::from_utf8(second.stdout).unwrap();
    assert!(second.contains("scim-pt-") && second.contains("shown once"), "{second}");
    fails(&folder.run(&token(&["create", "--identity", "corp"])), 1, "has 2 tokens already");
    fails(&folder.run(&token(&["create", "--identity", "nobody"])), 1, "[identity.nobody]");
    let listed = folder.run(&token(&["list"]));
    let listed = String::from_utf8(listed.stdout).unwrap();
    let id = made["id"].as_str().unwrap();
    assert_eq!(listed.lines().count(), 3, "{listed}");
    assert!(
        listed.contains(id) && listed.contains("never") && !listed.contains("scim-pt-"),
        "{listed}"
    );
    assert_eq!(folder.json(&token(&["revoke", id, "--json"]))["revoked"], true);
    fails(&folder.run(&token(&["revoke", id])), 1, "there is no such token");
}
