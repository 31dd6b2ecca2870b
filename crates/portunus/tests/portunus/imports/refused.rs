//! Tokens that the other gateway refuses are refused here too, and everything that is left out is told.

use super::one_api::{NEW_API, ONE_API, database, token};
use super::*;

/// Tokens of One API that it refuses although they look usable: its state counts before expiry and quota.
const REFUSED: &str = r#"
INSERT INTO tokens (id, user_id, key, status, name, expired_time, remain_quota, unlimited_quota, used_quota, models)
 VALUES
 (11, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC1', 1, 'good', -1, 1000, 0, 0, ''),
 (12, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC2', 3, 'marked as expired', -1, 1000, 0, 0, ''),
 (13, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC3', 3, 'extended', 4000000000, 1000, 0, 0, ''),
 (14, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC4', 1, 'at zero', 0, 1000, 0, 0, ''),
 (15, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC5', 4, 'exhausted', -1, 1000, 1, 500, ''),
 (16, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC6', 1, 'no models', -1, 1000, 0, 0, ','),
 (17, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC1', 1, 'twin', -1, 1000, 0, 0, ''),
 (18, 1, 'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC7', 1, 'beyond belief', -1, 0, 0, 9223372036854775807, '');
"#;

/// A token of New API with an empty list of models, which permits none there.
const NO_MODELS: &str = r#"
INSERT INTO tokens (id, user_id, key, name, remain_quota, unlimited_quota, model_limits_enabled, model_limits)
 VALUES (3, 1, 'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB3', 'no models', 0, 1, 1, '');
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_one_api_refuses_is_refused_here() {
    let gateway = GatewayProcess::start(&flat_config().await);
    let file = gateway.folder().join("one-api.db");
    database(&file, ONE_API).await;
    database(&file, REFUSED).await;
    let import = ["import", "one-api", "one-api.db"];
    let planned = lines(&gateway.run(&[&import[..], &["--dry-run"]].concat()));
    for word in [
        "key `marked as expired`: it is marked as expired",
        "key `extended`: it is marked as expired",
        "key `no models`: its list of models permits none",
        "key `twin`: another key has the same text",
        "key `beyond belief`: it has spent",
    ] {
        assert!(has_note(&planned, word), "{word}: {planned:#?}");
    }
    let made = lines(&gateway.run(&import));
    let results = |lines: &[Value], word: &str| -> Vec<String> {
        let found = lines.iter().filter(|line| line["result"] == word);
        found.map(|line| format!("{} {}", line["kind"], line["name"])).collect()
    };
    assert_eq!(results(&planned, "to be made"), results(&made, "made"));
    described(&gateway, &token('C', 1)).await;
    for (number, status) in [(1, 200), (2, 401), (3, 401), (4, 401), (5, 429), (6, 401), (7, 401)] {
        assert_eq!(call(&gateway, &token('C', number), "flat").await.0, status, "{number}");
    }
    gateway.run(&["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_list_of_models_does_not_become_all_models() {
    let gateway = GatewayProcess::start(&flat_config().await);
    let file = gateway.folder().join("new.db");
    database(&file, NEW_API).await;
    database(&file, NO_MODELS).await;
    let made = lines(&gateway.run(&["import", "new-api", "new.db"]));
    assert!(has_note(&made, "key `no models`: its list of models permits none"), "{made:#?}");
    described(&gateway, &token('B', 1)).await;
    assert_eq!(call(&gateway, &token('B', 3), "flat").await.0, 401);
}

/// A dry run leaves no trace, even where there is no database yet.
#[tokio::test]
async fn a_dry_run_makes_no_database() {
    let folder = std::env::temp_dir().join(format!("portunus-dry-run-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    database(&folder.join("one-api.db"), ONE_API).await;
    let run = |arguments: &[&str]| {
        std::process::Command::new(env!("CARGO_BIN_EXE_portunus"))
            .args(arguments)
            .current_dir(&folder)
            .env_clear()
            .output()
            .unwrap()
    };
    let output = run(&["import", "one-api", "one-api.db", "--dry-run", "--data", "data"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("key `limited`: to be made"), "{said}");
    assert!(!folder.join("data").exists());
    // An address that is none has a password too, which no error repeats.
    for source in ["mysql://root:hush@h/db", "root:hush@/db", "Postgresql+x://u:hush@h/db"] {
        for program in ["litellm", "one-api"] {
            let output = run(&["import", program, source, "--dry-run"]);
            let said = String::from_utf8(output.stderr).unwrap();
            assert!(!output.status.success() && !said.contains("hush"), "{said}");
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
