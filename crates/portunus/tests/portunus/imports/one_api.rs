//! `portunus import one-api` and `new-api` from SQLite files as those programs make them.

use sqlx::{ConnectOptions as _, Connection as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::*;

/// Tables of One API 0.6.10, as GORM makes them.
pub(super) const ONE_API: &str = r#"
CREATE TABLE `users` (`id` integer PRIMARY KEY AUTOINCREMENT,`username` text,`password` text NOT NULL,
 `display_name` text,`role` int DEFAULT 1,`status` int DEFAULT 1,`email` text,`github_id` text,`wechat_id` text,
 `lark_id` text,`oidc_id` text,`access_token` char(32),`quota` bigint DEFAULT 0,`used_quota` bigint DEFAULT 0,
 `request_count` int DEFAULT 0,`group` varchar(32) DEFAULT "default",`aff_code` varchar(32),`inviter_id` int,
 CONSTRAINT `uni_users_username` UNIQUE (`username`));
CREATE TABLE `tokens` (`id` integer PRIMARY KEY AUTOINCREMENT,`user_id` integer,`key` char(48),
 `status` integer DEFAULT 1,`name` text,`created_time` bigint,`accessed_time` bigint,`expired_time` bigint DEFAULT -1,
 `remain_quota` bigint DEFAULT 0,`unlimited_quota` numeric DEFAULT false,`used_quota` bigint DEFAULT 0,
 `models` text,`subnet` text DEFAULT "");
CREATE TABLE `channels` (`id` integer PRIMARY KEY AUTOINCREMENT,`type` integer DEFAULT 0,`key` text,
 `status` integer DEFAULT 1,`name` text,`weight` integer DEFAULT 0,`created_time` bigint,`test_time` bigint,
 `response_time` integer,`base_url` text DEFAULT "",`other` text,`balance` real,`balance_updated_time` bigint,
 `models` text,`group` varchar(32) DEFAULT "default",`used_quota` bigint DEFAULT 0,
 `model_mapping` varchar(1024) DEFAULT "",`priority` bigint DEFAULT 0,`config` text,`system_prompt` text);
CREATE TABLE `abilities` (`group` varchar(32),`model` text,`channel_id` integer,`enabled` numeric,
 `priority` bigint DEFAULT 0,PRIMARY KEY (`group`,`model`,`channel_id`));
CREATE TABLE `options` (`key` text,`value` text,PRIMARY KEY (`key`));
INSERT INTO users (id, username, password, role, status, email, quota, used_quota, `group`, access_token) VALUES
 (1, 'root', '$2a$10$secrethash', 100, 1, '', 5000000, 0, 'default', 'management-secret'),
 (2, 'lee', '$2a$10$secrethash', 1, 1, 'lee@example.com', 1500, 3000, 'vip', ''),
 (3, 'banned', '$2a$10$secrethash', 1, 2, 'not an address', 1000, 0, 'default', NULL);
INSERT INTO tokens (id, user_id, key, status, name, expired_time, remain_quota, unlimited_quota, used_quota, models, subnet)
 VALUES
 (1, 2, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA1', 1, 'limited', -1, 1000, 0, 500, '', ''),
 (2, 2, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA2', 1, 'unlimited', -1, 0, 1, 0, 'flat,gpt-4', ''),
 (3, 2, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA3', 2, 'disabled', -1, 1000, 0, 0, NULL, ''),
 (4, 2, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA4', 3, 'expired', 1700000000, 1000, 0, 0, '', ''),
 (5, 3, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA5', 1, 'of a banned user', -1, 1000, 0, 0, '', ''),
 (6, 2, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA6', 1, 'elsewhere', -1, 1000, 0, 0, '', '10.9.0.0/16'),
 (7, 9, 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA7', 1, 'of nobody', -1, 1000, 0, 0, '', '');
INSERT INTO channels (id, type, key, status, name, weight, base_url, models, `group`, model_mapping, priority) VALUES
 (1, 1, 'sk-upstream-secret-1', 1, 'Main OpenAI', 0, '', 'gpt-4o,house-model', 'default,vip', '{"house-model":"gpt-4o-mini"}', 5),
 (2, 14, 'sk-upstream-secret-2', 1, 'Claude', 0, NULL, 'claude-sonnet-4-6', 'default', NULL, 0),
 (3, 8, 'sk-upstream-secret-3', 1, 'Backup', 3, 'https://proxy.example.com', 'gpt-4o', 'default', '', 0),
 (4, 15, 'sk-upstream-secret-4', 1, 'Baidu', 0, '', 'ernie', 'default', '', 0),
 (5, 1, 'sk-upstream-secret-5', 3, 'Off', 0, '', 'gpt-4o', 'default', '', 0);
INSERT INTO options VALUES ('GroupRatio', '{"default":1,"vip":0.5}'), ('SMTPToken', 'mail-secret'),
 ('ModelRatio', '{"house-model":0.075}'), ('CompletionRatio', '{"house-model":4}');
"#;

/// Tables of New API with the columns that One API does not have.
pub(super) const NEW_API: &str = r#"
CREATE TABLE `users` (`id` integer PRIMARY KEY AUTOINCREMENT,`username` text,`password` text NOT NULL,
 `display_name` text,`role` int DEFAULT 1,`status` int DEFAULT 1,`email` text,`quota` int DEFAULT 0,
 `used_quota` int DEFAULT 0,`group` varchar(64) DEFAULT "default",`aff_quota` int DEFAULT 0,`deleted_at` datetime,
 `setting` text);
CREATE TABLE `tokens` (`id` integer PRIMARY KEY AUTOINCREMENT,`user_id` integer,`key` char(48),`status` integer DEFAULT 1,
 `name` text,`created_time` bigint,`accessed_time` bigint,`expired_time` bigint DEFAULT -1,`remain_quota` integer DEFAULT 0,
 `unlimited_quota` numeric,`model_limits_enabled` numeric,`model_limits` text,`allow_ips` text DEFAULT "",
 `used_quota` integer DEFAULT 0,`group` text DEFAULT "",`deleted_at` datetime);
CREATE TABLE `channels` (`id` integer PRIMARY KEY AUTOINCREMENT,`type` integer DEFAULT 0,`key` text NOT NULL,
 `status` integer DEFAULT 1,`name` text,`weight` integer DEFAULT 0,`base_url` text DEFAULT "",`models` text,
 `group` varchar(64) DEFAULT "default",`model_mapping` text,`priority` bigint DEFAULT 0,`channel_info` json);
CREATE TABLE `options` (`key` text,`value` text,PRIMARY KEY (`key`));
INSERT INTO options VALUES ('QuotaPerUnit', '1000000');
INSERT INTO users (id, username, password, email, quota, used_quota, aff_quota, deleted_at) VALUES
 (1, 'kim', 'x', 'kim@example.com', 3000, 2000, 1000000, NULL), (2, 'gone_del', 'x', '', 0, 0, 0, '2026-01-01 00:00:00');
INSERT INTO tokens (id, user_id, key, name, remain_quota, unlimited_quota, model_limits_enabled, model_limits, allow_ips, used_quota, deleted_at)
 VALUES
 (1, 1, 'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB1', 'flat only', 0, 1, 1, 'flat', '127.0.0.0/8', 2000, NULL),
 (2, 1, 'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB2', 'deleted', 0, 1, 0, '', '', 0, '2026-01-01 00:00:00');
INSERT INTO channels (id, type, key, name, models, channel_info) VALUES
 (1, 43, 'sk-many-1
sk-many-2', 'Deep', 'deepseek-v4-flash', CAST('{"is_multi_key":true,"multi_key_size":2}' AS BLOB));
"#;

pub(super) async fn database(path: &Path, sql: &'static str) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true);
    let mut db = options.connect().await.unwrap();
    sqlx::raw_sql(sql).execute(&mut db).await.unwrap();
    db.close().await.unwrap();
}

pub(super) fn token(letter: char, number: u8) -> String {
    format!("sk-{}{number}", letter.to_string().repeat(47))
}

/// No output has a secret of the database.
fn has_no_secret(text: &str) {
    for secret in ["AAAA", "BBBB", "sk-upstream", "sk-many", "secret"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_one_api_go_on_with_what_was_left_of_their_quota() {
    let gateway = GatewayProcess::start(&flat_config().await);
    let file = gateway.folder().join("one-api.db");
    database(&file, ONE_API).await;
    let import = ["import", "one-api", "one-api.db"];
    let before = audit_lines(&gateway);
    let planned = gateway.run(&[&import[..], &["--dry-run"]].concat());
    has_no_secret(&planned);
    assert_eq!(audit_lines(&gateway), before, "a dry run makes nothing");
    let planned = lines(&planned);
    assert_eq!(result(&planned, "key", "limited")["result"], "to be made");
    for word in
        ["group `vip` with the ratio 0.5", "`disabled`", "passwords", "3 channels", "e-mail"]
    {
        assert!(has_note(&planned, word), "{word}: {planned:#?}");
    }
    let made = gateway.run(&import);
    has_no_secret(&made);
    let made = lines(&made);
    assert_eq!(result(&made, "account", "root")["detail"]["role"], "admin");
    let limited = &result(&made, "key", "limited")["detail"];
    assert_eq!(limited["cap"], "0.003000000 USD");
    assert_eq!(limited["spent"], "0.001000000 USD");
    assert_eq!(result(&made, "account", "lee")["detail"]["cap"], "0.009000000 USD");

    // The spending to date counts: 0.003 less 0.001 is two calls.
    let key = token('A', 1);
    let told = described(&gateway, &key).await;
    assert_eq!(told["name"], "limited");
    assert_eq!(
        (&told["cap_usd"], &told["spent_usd"]),
        (&json!("0.003000000"), &json!("0.001000000"))
    );
    assert_eq!(call(&gateway, &key, "flat").await.0, 200);
    assert_eq!(call(&gateway, &key, "flat").await.0, 200);
    assert_eq!(call(&gateway, &key, "flat").await, (429, "insufficient_quota".to_owned()));
    spends(&gateway, &key, "0.003000000").await;
    // The quota of the user is that of all of its tokens: 0.003 of 0.009 USD were left, and two calls of them are made.
    let unlimited = token('A', 2);
    assert_eq!(call(&gateway, &unlimited, "flat").await.0, 200);
    assert_eq!(call(&gateway, &unlimited, "flat").await, (429, "insufficient_quota".to_owned()));
    // Limits of a token.
    assert_eq!(call(&gateway, &unlimited, "other").await.0, 403);
    for (number, status) in [(3, 401), (4, 401), (5, 401), (7, 401), (8, 401)] {
        assert_eq!(call(&gateway, &token('A', number), "flat").await.0, status, "{number}");
    }
    assert_eq!(call(&gateway, &token('A', 6), "flat").await.0, 403);
    // The text without `sk-` is good there too.
    assert_eq!(described(&gateway, key.strip_prefix("sk-").unwrap()).await["name"], "limited");

    // A second run changes nothing.
    let before = audit_lines(&gateway);
    let again = lines(&gateway.run(&import));
    assert_eq!(audit_lines(&gateway), before);
    assert!(again.iter().all(|line| line["result"] != "made"), "{again:#?}");
    assert_eq!(result(&again, "key", "limited")["result"], "here already");
    gateway.run(&["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn channels_become_a_configuration_with_secrets_in_files() {
    let gateway = GatewayProcess::start(&flat_config().await);
    let folder = gateway.folder();
    database(&folder.join("one-api.db"), ONE_API).await;
    let out = ["--out", "channels.toml", "--secrets", "secrets"];
    let import = [&["import", "one-api", "one-api.db"][..], &out].concat();
    let planned = gateway.run(&[&import[..], &["--dry-run"]].concat());
    has_no_secret(&planned.replace("secrets", ""));
    assert!(!folder.join("channels.toml").exists() && !folder.join("secrets").exists());
    // Files that are there, as of an import by hand: one that others may read, and a link.
    std::fs::create_dir(folder.join("secrets")).unwrap();
    for (name, at) in [("old", "secrets/main-openai"), ("precious", "elsewhere")] {
        std::fs::write(folder.join(at), name).unwrap();
        let readable = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(folder.join(at), readable).unwrap();
    }
    std::os::unix::fs::symlink(folder.join("elsewhere"), folder.join("secrets/claude")).unwrap();
    let made = gateway.run(&import);
    has_no_secret(&made.replace("secrets", ""));
    let made = lines(&made);
    for word in ["`Baidu`", "`Off`", "`Main OpenAI`: its groups", "main-openai, claude, backup"] {
        assert!(has_note(&made, word), "{word}: {made:#?}");
    }
    let text = std::fs::read_to_string(folder.join("channels.toml")).unwrap();
    assert!(!text.contains("sk-upstream"), "{text}");
    let read: toml::Table = text.parse().unwrap();
    assert_eq!(read["models"]["gpt-4o"]["lanes"][0].as_str(), Some("main-openai/gpt-4o"));
    assert_eq!(read["models"]["gpt-4o"]["lanes"][1].as_str(), Some("backup/gpt-4o"));
    assert_eq!(read["models"]["house-model"]["lanes"][0].as_str(), Some("main-openai/gpt-4o-mini"));
    assert_eq!(read["models"]["house-model"]["price"]["input"].as_str(), Some("0.15"));
    assert_eq!(read["models"]["house-model"]["price"]["output"].as_str(), Some("0.6"));
    let secret = folder.join("secrets/main-openai");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "sk-upstream-secret-1");
    assert_eq!(std::fs::read_to_string(folder.join("elsewhere")).unwrap(), "precious");
    for secret in std::fs::read_dir(folder.join("secrets")).unwrap() {
        let rights = secret.unwrap().path().symlink_metadata().unwrap();
        assert!(rights.is_file() && rights.permissions().mode() & 0o777 == 0o600, "{rights:?}");
    }
    let check = std::process::Command::new(env!("CARGO_BIN_EXE_portunus"))
        .args(["check", "--config", "channels.toml"])
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap();
    assert!(check.status.success(), "{check:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_of_new_api_keep_their_lists_and_its_own_unit() {
    let gateway = GatewayProcess::start(&flat_config().await);
    database(&gateway.folder().join("new.db"), NEW_API).await;
    let import = ["import", "new-api", "new.db", "--out", "new.toml", "--secrets", "secrets"];
    let made = gateway.run(&import);
    has_no_secret(&made.replace("secrets", ""));
    let made = lines(&made);
    assert_eq!(result(&made, "account", "kim")["detail"]["cap"], "0.005000000 USD");
    assert!(has_note(&made, "2 deleted") && has_note(&made, "1.000000000 USD for invitations"));
    let key = token('B', 1);
    assert_eq!(described(&gateway, &key).await["spent_usd"], "0.002000000");
    assert_eq!(call(&gateway, &key, "other").await.0, 403);
    for expected in [200, 200, 200, 429] {
        assert_eq!(call(&gateway, &key, "flat").await.0, expected);
    }
    assert_eq!(call(&gateway, &token('B', 2), "flat").await.0, 401);
    let text = std::fs::read_to_string(gateway.folder().join("new.toml")).unwrap();
    let read: toml::Table = text.parse().unwrap();
    assert_eq!(read["providers"]["deep-2"]["like"].as_str(), Some("deepseek"));
    assert_eq!(read["models"]["deepseek-v4-flash"]["lanes"].as_array().unwrap().len(), 2);
    gateway.run(&["ledger", "verify"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_cannot_be_imported_is_told_in_one_line() {
    let gateway = GatewayProcess::start(&flat_config().await);
    let folder = gateway.folder();
    database(&folder.join("empty.db"), "CREATE TABLE users (id integer)").await;
    std::fs::write(folder.join("text.db"), "this is no database").unwrap();
    for (source, cause) in [
        ("none.db", "is no file"),
        ("empty.db", "needs the tables users and tokens"),
        ("text.db", "not a database"),
        ("mysql://root:topsecret@db/oneapi", "mysql2sqlite"),
        ("root:topsecret@tcp(127.0.0.1:3306)/oneapi", "mysql2sqlite"),
        ("postgres://root:topsecret@127.0.0.1:1/oneapi", "cannot be reached"),
        ("postgres://root:topsecret@:bad/oneapi", "not the address"),
        ("env:PORTUNUS_NO_SUCH_VARIABLE", "export PORTUNUS_NO_SUCH_VARIABLE"),
    ] {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_portunus"))
            .args(["import", "one-api", source])
            .current_dir(folder)
            .env_clear()
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{source}: {said}");
        assert!(said.contains(cause) && !said.contains("topsecret"), "{source}: {said}");
        assert_eq!(said.trim().lines().count(), 1, "{said}");
    }
}
