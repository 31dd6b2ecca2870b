//! `portunus import`: the configuration of another gateway becomes one of this one.

use super::*;

const LITELLM: &str = r#"
model_list:
  - model_name: gpt-4o
    litellm_params: &azure
      model: azure/my-deployment
      api_base: https://one.openai.azure.com/
      api_key: os.environ/AZURE_ONE
      api_version: "2024-10-21"
      rpm: 6
  - model_name: gpt-4o
    litellm_params:
      <<: *azure
      api_base: https://two.openai.azure.com
      api_key: sk-literal-secret
      weight: 3
  - model_name: claude
    litellm_params: { model: anthropic/claude-sonnet-4-6, api_key: os.environ/CLAUDE_KEY }
    model_info: { input_cost_per_token: 3e-06, output_cost_per_token: 0.000015, max_output_tokens: 64000 }
  - model_name: house
    litellm_params: { model: openai/llama-3, api_base: http://10.0.0.6:8000/v1, temperature: 0.2 }
  - model_name: vectors
    litellm_params: { model: text-embedding-3-small }
    model_info: { mode: embedding }
  - model_name: "anthropic/*"
    litellm_params: { model: "anthropic/*" }
  - model_name: spoken
    litellm_params: { model: openai/whisper-1 }
    model_info: { mode: audio_transcription }
  - model_name: sage
    litellm_params: { model: sagemaker/x }
router_settings:
  model_group_alias: { gpt-4: gpt-4o, lost: nothing }
  fallbacks: [{ gpt-4o: [claude, gone] }]
  routing_strategy: simple-shuffle
general_settings: { master_key: sk-1234, database_url: "postgres://u:secret@h/db" }
"#;

#[test]
fn the_configuration_of_a_litellm_proxy_becomes_one_that_is_good() {
    let folder = Folder::new("import");
    std::fs::write(folder.0.join("config.yaml"), LITELLM).unwrap();
    let made = folder.run(&["import", "litellm", "config.yaml", "--out", "portunus.toml"]);
    assert!(made.status.success(), "{made:?}");
    let text = std::fs::read_to_string(folder.0.join("portunus.toml")).unwrap();
    let notes = String::from_utf8(made.stderr).unwrap();
    for secret in ["sk-literal-secret", "sk-1234", "u:secret"] {
        assert!(!text.contains(secret) && !notes.contains(secret), "{text}\n{notes}");
    }
    let read: toml::Table = text.parse().unwrap();
    let model = |name: &str| read["models"][name].clone();
    assert_eq!(model("gpt-4o")["lanes"][1]["weight"].as_integer(), Some(3));
    assert_eq!(model("gpt-4o")["aliases"][0].as_str(), Some("gpt-4"));
    assert_eq!(model("gpt-4o")["fallback"].as_array().unwrap().len(), 1);
    assert_eq!(model("claude")["price"]["output"].as_str(), Some("15"));
    assert_eq!(read["providers"]["compatible"]["base"].as_str(), Some("http://10.0.0.6:8000"));
    for told in [
        "[0]: litellm_params.rpm",
        "[1]: a secret stands in the file itself: put it into AZURE_OPENAI_API_KEY_2",
        "[3]: litellm_params.temperature",
        "[5]: left out",
        "[6]: left out",
        "[7]: left out: there is no counterpart of `sagemaker`",
        "model_group_alias.lost",
        "fallbacks.gpt-4o: there is no model `gone`",
        "router_settings.routing_strategy",
        "general_settings.master_key",
    ] {
        assert!(notes.contains(told), "{told}\n{notes}");
    }
    let variables = ["AZURE_ONE", "AZURE_OPENAI_API_KEY_2", "CLAUDE_KEY", "OPENAI_API_KEY"];
    let checked = program(&folder)
        .args(["check", "--offline", "--config", "portunus.toml", "--json"])
        .envs(variables.map(|name| (name, "x")))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{text}\n{}", String::from_utf8_lossy(&checked.stderr));
    let printed = folder.run(&["import", "litellm", "config.yaml"]);
    assert_eq!(String::from_utf8(printed.stdout).unwrap(), text);
    std::fs::write(folder.0.join("broken.yaml"), "a: 1\n  b: sk-secret: x").unwrap();
    let broken = folder.run(&["import", "litellm", "broken.yaml"]);
    fails(&broken, 1, "broken.yaml: line 2 is not YAML");
    assert!(!String::from_utf8_lossy(&broken.stderr).contains("sk-secret"));
}
