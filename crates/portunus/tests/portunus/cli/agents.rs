//! `portunus agents`: settings of coding agents, as they are printed.

use super::*;

const WORDS: [&str; 7] =
    ["claude-code", "codex", "gemini-cli", "opencode", "qwen-code", "aider", "llm"];

#[test]
fn the_settings_of_every_agent_are_printed() {
    let folder = Folder::new("agents");
    let config = "[server]\npublic_url = \"https://gateway.example.com\"\n";
    std::fs::write(folder.0.join("portunus.toml"), config).unwrap();
    let print = |more: &[&str]| {
        let output = folder.run(&[&["agents", "--config", "portunus.toml"], more].concat());
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = print(&[]);
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!("agents", all));
    let of_each: Vec<String> = WORDS.iter().map(|word| print(&[word])).collect();
    assert_eq!(of_each.concat(), all, "the agents one by one");
    let json = print(&["--json", "--key", "sk-pt-of-mine"]);
    let lines: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let words: Vec<&str> = lines.iter().map(|line| line["agent"].as_str().unwrap()).collect();
    assert_eq!(words, WORDS);
    for line in &lines {
        assert!(line["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{line}");
        assert!(line.to_string().contains("sk-pt-of-mine"), "{line}");
    }
    let output = folder.run(&["agents", "--config", "portunus.toml", "nobody"]);
    fails(&output, 1, "there is no agent `nobody`");
}
