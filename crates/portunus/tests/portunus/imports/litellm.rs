//! `portunus import litellm` from a PostgreSQL with the tables of a LiteLLM proxy.

use aws_lc_rs::digest;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::*;

/// Tables as Prisma makes them of <https://github.com/BerriAI/litellm/blob/main/schema.prisma>, without the
/// logs.
const TABLES: &str = r#"
CREATE TABLE "LiteLLM_BudgetTable" (budget_id TEXT PRIMARY KEY, max_budget DOUBLE PRECISION,
 soft_budget DOUBLE PRECISION, max_parallel_requests INTEGER, tpm_limit BIGINT, rpm_limit BIGINT, model_max_budget JSONB,
 budget_duration TEXT, budget_reset_at TIMESTAMP(3), created_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
 created_by TEXT NOT NULL DEFAULT '', updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
 updated_by TEXT NOT NULL DEFAULT '', tpd_limit BIGINT);
CREATE TABLE "LiteLLM_OrganizationTable" (organization_id TEXT PRIMARY KEY, organization_alias TEXT NOT NULL,
 budget_id TEXT NOT NULL, metadata JSONB NOT NULL DEFAULT '{}', models TEXT[], spend DOUBLE PRECISION NOT NULL DEFAULT 0.0);
CREATE TABLE "LiteLLM_OrganizationMembership" (user_id TEXT NOT NULL, organization_id TEXT NOT NULL, user_role TEXT,
 spend DOUBLE PRECISION DEFAULT 0.0, budget_id TEXT, PRIMARY KEY (user_id, organization_id));
CREATE TABLE "LiteLLM_TeamTable" (team_id TEXT PRIMARY KEY, team_alias TEXT, organization_id TEXT, admins TEXT[],
 members TEXT[], members_with_roles JSONB NOT NULL DEFAULT '{}', metadata JSONB NOT NULL DEFAULT '{}',
 max_budget DOUBLE PRECISION, spend DOUBLE PRECISION NOT NULL DEFAULT 0.0, models TEXT[], max_parallel_requests INTEGER,
 tpm_limit BIGINT, rpm_limit BIGINT, budget_duration TEXT, budget_reset_at TIMESTAMP(3),
 blocked BOOLEAN NOT NULL DEFAULT false, model_id INTEGER);
CREATE TABLE "LiteLLM_TeamMembership" (user_id TEXT NOT NULL, team_id TEXT NOT NULL,
 spend DOUBLE PRECISION NOT NULL DEFAULT 0.0, budget_id TEXT, PRIMARY KEY (user_id, team_id));
CREATE TABLE "LiteLLM_UserTable" (user_id TEXT PRIMARY KEY, user_alias TEXT, team_id TEXT, sso_user_id TEXT,
 organization_id TEXT, password TEXT, teams TEXT[] DEFAULT ARRAY[]::TEXT[], user_role TEXT, max_budget DOUBLE PRECISION,
 spend DOUBLE PRECISION NOT NULL DEFAULT 0.0, user_email TEXT, models TEXT[], metadata JSONB NOT NULL DEFAULT '{}',
 max_parallel_requests INTEGER, tpm_limit BIGINT, rpm_limit BIGINT, budget_duration TEXT, budget_reset_at TIMESTAMP(3));
CREATE TABLE "LiteLLM_VerificationToken" (token TEXT PRIMARY KEY, key_name TEXT, key_alias TEXT,
 soft_budget_cooldown BOOLEAN NOT NULL DEFAULT false, spend DOUBLE PRECISION NOT NULL DEFAULT 0.0, expires TIMESTAMP(3),
 models TEXT[], aliases JSONB NOT NULL DEFAULT '{}', config JSONB NOT NULL DEFAULT '{}', user_id TEXT, team_id TEXT,
 permissions JSONB NOT NULL DEFAULT '{}', max_parallel_requests INTEGER, metadata JSONB NOT NULL DEFAULT '{}',
 blocked BOOLEAN, tpm_limit BIGINT, rpm_limit BIGINT, max_budget DOUBLE PRECISION, budget_duration TEXT,
 budget_reset_at TIMESTAMP(3), allowed_cache_controls TEXT[] DEFAULT ARRAY[]::TEXT[],
 allowed_routes TEXT[] DEFAULT ARRAY[]::TEXT[], model_spend JSONB NOT NULL DEFAULT '{}',
 model_max_budget JSONB NOT NULL DEFAULT '{}', budget_id TEXT, organization_id TEXT,
 created_at TIMESTAMP(3) DEFAULT CURRENT_TIMESTAMP, budget_limits JSONB, tpd_limit BIGINT, moon_phase_limit BIGINT);
CREATE TABLE "LiteLLM_DeprecatedVerificationToken" (id TEXT PRIMARY KEY, token TEXT NOT NULL,
 active_token_id TEXT NOT NULL, revoke_at TIMESTAMP(3) NOT NULL);
CREATE TABLE "LiteLLM_ProxyModelTable" (model_id TEXT PRIMARY KEY, model_name TEXT NOT NULL, litellm_params JSONB NOT NULL);
INSERT INTO "LiteLLM_ProxyModelTable" VALUES ('1', 'house-model', '{"api_key": "encrypted-secret"}');
INSERT INTO "LiteLLM_BudgetTable" (budget_id, max_budget, rpm_limit, soft_budget) VALUES ('b1', 0.002, 60, 0.001),
 ('b2', 100, NULL, NULL);
INSERT INTO "LiteLLM_OrganizationTable" (organization_id, organization_alias, budget_id, models)
 VALUES ('o1', 'Acme', 'b2', ARRAY['flat']);
INSERT INTO "LiteLLM_UserTable" (user_id, user_email, user_role, max_budget, spend, models, password) VALUES
 ('default_user_id', NULL, 'proxy_admin', NULL, 3, ARRAY[]::TEXT[], NULL),
 ('u1', 'ada@example.com', 'internal_user', 0.01, 0.0055, ARRAY[]::TEXT[], 'password-secret'),
 ('u2', 'bob@example.com', 'proxy_admin', NULL, 0, ARRAY['no-default-models'], NULL);
INSERT INTO "LiteLLM_TeamTable" (team_id, team_alias, organization_id, members_with_roles, max_budget, spend, models,
 budget_duration, budget_reset_at, blocked) VALUES
 ('t1', 'Research', 'o1', '[{"role": "admin", "user_id": "u1"}, {"role": "user", "user_id": "ghost"}]', 10, 9.999,
 ARRAY[]::TEXT[], '30d', now() + interval '3 days', false),
 ('t2', 'Closed', NULL, '{}', NULL, 0, ARRAY[]::TEXT[], NULL, NULL, true),
 ('t3', 'Reset', NULL, '{}', 0.001, 7, ARRAY[]::TEXT[], '1d', now() - interval '1 hour', false);
INSERT INTO "LiteLLM_TeamMembership" VALUES ('u1', 't1', 0, 'b1');
"#;

fn sha256(text: &str) -> String {
    let digest = digest::digest(&digest::SHA256, text.as_bytes());
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A database of one test's own on the server of `PORTUNUS_TEST_POSTGRES`.
struct ProxyDatabase {
    server: sqlx::postgres::PgConnectOptions,
    name: String,
}

impl ProxyDatabase {
    async fn make() -> Self {
        let url = std::env::var("PORTUNUS_TEST_POSTGRES")
            .expect("PORTUNUS_TEST_POSTGRES must name a PostgreSQL server to make databases on");
        let name = format!("portunus_import_{}", uuid::Uuid::now_v7().simple());
        let made = Self { server: url.parse().unwrap(), name };
        let mut db = made.server.connect().await.expect("the PostgreSQL server must answer");
        let sql = AssertSqlSafe(format!("CREATE DATABASE {}", made.name));
        sqlx::query(sql).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
        made.execute(TABLES.to_owned()).await;
        made
    }

    fn url(&self) -> String {
        let url = self.server.clone().database(&self.name).to_url_lossy().to_string();
        // LiteLLM has the parameters of its own driver there.
        let mark = if url.contains('?') { '&' } else { '?' };
        format!("{url}{mark}schema=public&connection_limit=10")
    }

    async fn execute(&self, sql: String) {
        let mut db = self.server.clone().database(&self.name).connect().await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }

    /// Adds a key. `more` are further columns and their values.
    async fn add_key(&self, text: &str, alias: &str, columns: &str, values: &str) {
        let token = sha256(text);
        self.execute(format!(
            "INSERT INTO \"LiteLLM_VerificationToken\" (token, key_name, key_alias, {columns}) \
             VALUES ('{token}', 'sk-...{}', '{alias}', {values})",
            &text[text.len() - 4..]
        ))
        .await;
    }

    async fn drop(self) {
        let mut db = self.server.connect().await.unwrap();
        let sql = AssertSqlSafe(format!("DROP DATABASE {} WITH (FORCE)", self.name));
        sqlx::query(sql).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }
}

/// First bytes of the stored hash of a key.
async fn stored_form(gateway: &GatewayProcess, name: &str) -> u8 {
    let path = gateway.folder().join("data/portunus.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).read_only(true);
    let mut db = options.connect().await.unwrap();
    let hash: Vec<u8> = sqlx::query_scalar("SELECT hash FROM keys WHERE name = $1")
        .bind(name)
        .fetch_one(&mut db)
        .await
        .unwrap();
    db.close().await.unwrap();
    assert_eq!(hash.len(), 33);
    hash[0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_litellm_go_on_with_what_was_left_of_their_budgets() {
    let database = ProxyDatabase::make().await;
    let add = async |text: &str, alias: &str, columns: &str, values: &str| {
        database.add_key(text, alias, columns, values).await;
    };
    add(
        "sk-personal-0001",
        "personal",
        "user_id, max_budget, spend, aliases",
        "'u1', 0.0035, 0.001, '{\"a\": \"b\"}'",
    )
    .await;
    add("sk-budgeted-0002", "budgeted", "user_id, budget_id, spend", "'u1', 'b1', 0.0005").await;
    add(
        "sk-team-0003",
        "of the team",
        "user_id, team_id, spend, models",
        "'u1', 't1', 4, ARRAY['all-team-models']",
    )
    .await;
    add("sk-blocked-0004", "blocked", "user_id, blocked", "'u1', true").await;
    add("sk-expired-0005", "expired", "user_id, expires", "'u1', now() - interval '1 minute'")
        .await;
    add("sk-closed-0006", "of a closed team", "team_id", "'t2'").await;
    add("sk-nobody-0007", "of nobody", "spend", "0.25").await;
    add("sk-reset-0008", "reset", "team_id, spend", "'t3', 1").await;
    add("sk-session-0009", "session", "team_id", "'litellm-dashboard'").await;
    add("sk-acme-0010", "of the organisation", "organization_id", "'o1'").await;
    add("sk-master-0011", "admin only", "allowed_routes", "ARRAY['management_routes']").await;
    add("sk-overspent-0012", "overspent", "user_id, max_budget, spend", "'u2', 1, 1.5").await;
    // Values that cannot be read must not become no limit.
    add("sk-endless-0014", "endless", "user_id, max_budget, spend", "'u1', 1, 'Infinity'").await;
    add("sk-past-0015", "long past", "user_id, expires", "'u1', '-infinity'").await;
    add("sk-null-0016", "null model", "models", "ARRAY[NULL]::TEXT[]").await;
    add(
        "sk-windows-0017",
        "windows",
        "budget_limits, tpd_limit, moon_phase_limit",
        "'[{\"max_budget\": 1}]', 7, 3",
    )
    .await;
    let new = sha256("sk-budgeted-0002");
    let old = sha256("sk-rotated-0013");
    database
        .execute(format!(
            "INSERT INTO \"LiteLLM_DeprecatedVerificationToken\" VALUES \
        ('1', '{old}', '{new}', now() + interval '1 hour')"
        ))
        .await;

    let mut gateway = GatewayProcess::start(&flat_config().await);
    let url = database.url();
    let import = ["import", "litellm", url.as_str()];
    let before = audit_lines(&gateway);
    let planned = gateway.run(&[&import[..], &["--dry-run"]].concat());
    assert_eq!(audit_lines(&gateway), before, "a dry run makes nothing");
    for secret in [&new, &old, "encrypted-secret", "password-secret"] {
        assert!(!planned.contains(secret), "{planned}");
    }
    let planned = lines(&planned);
    for word in [
        "key `personal`: aliases",
        "soft_budget",
        "`blocked`: it is blocked",
        "member `ghost`",
        "house-model",
        "organisation `Acme`",
        "sessions",
        "`admin only`",
        "`of nobody`",
        "u1 in t1",
        "passwords",
        "key `endless`: `spend` is no amount",
        "key `long past`: `expires` is no time",
        "key `windows`: budget_limits is not carried",
        "key `windows`: tpd_limit is not carried",
        "the column `moon_phase_limit` is not known here and not carried; 1 rows have it",
        "team `Research`: the budget of the organisation `Acme`, 100.000000000 USD, does not limit it",
    ] {
        assert!(has_note(&planned, word), "{word}: {planned:#?}");
    }
    let made = lines(&gateway.run(&import));
    assert_eq!(result(&made, "team", "Research")["detail"]["budget"], "10.000000000 USD per month");
    assert_eq!(result(&made, "team", "Research")["detail"]["models"], "flat");
    assert_eq!(result(&made, "account", "ada-example.com")["detail"]["cap"], "0.010000000 USD");
    assert_eq!(result(&made, "account", "bob-example.com")["detail"]["role"], "admin");

    // The client goes on with its key, and 0.0035 less 0.001 is two calls.
    let told = described(&gateway, "sk-personal-0001").await;
    assert_eq!((&told["name"], &told["spent_usd"]), (&json!("personal"), &json!("0.001000000")));
    assert_eq!(call(&gateway, "sk-personal-0001", "flat").await.0, 200);
    assert_eq!(call(&gateway, "sk-personal-0001", "flat").await.0, 200);
    assert_eq!(
        call(&gateway, "sk-personal-0001", "flat").await,
        (429, "insufficient_quota".to_owned())
    );
    // Its text is known now, and the plain hash is replaced.
    let form = soon(Duration::from_secs(60), || async {
        (stored_form(&gateway, "personal").await == 2).then_some(())
    });
    form.await.expect("a keyed hash");
    assert_eq!(stored_form(&gateway, "of nobody").await, 1);
    // A budget by its id, with its limits, and the text from before a rotation.
    let told = described(&gateway, "sk-rotated-0013").await;
    assert_eq!((&told["cap_usd"], &told["limits"]["rpm"]), (&json!("0.002000000"), &json!(60)));
    assert_eq!(call(&gateway, "sk-rotated-0013", "flat").await.0, 200);
    assert_eq!(call(&gateway, "sk-budgeted-0002", "flat").await.0, 429);
    // The budget of the team: 10 less 9.999 is one call, and its list of models is that of the organisation.
    assert_eq!(call(&gateway, "sk-team-0003", "other").await.0, 403);
    assert_eq!(call(&gateway, "sk-team-0003", "flat").await.0, 200);
    assert_eq!(call(&gateway, "sk-team-0003", "flat").await.0, 429);
    // A budget whose time is over begins anew.
    assert_eq!(call(&gateway, "sk-reset-0008", "flat").await.0, 200);
    assert_eq!(call(&gateway, "sk-reset-0008", "flat").await.0, 429);
    for (key, status) in [
        ("sk-blocked-0004", 401),
        ("sk-expired-0005", 401),
        ("sk-closed-0006", 401),
        ("sk-session-0009", 401),
        ("sk-master-0011", 401),
        ("sk-none-0099", 401),
        ("sk-nobody-0007", 200),
        ("sk-acme-0010", 200),
        ("sk-overspent-0012", 403),
        ("sk-endless-0014", 401),
        ("sk-past-0015", 401),
        ("sk-null-0016", 403),
        ("sk-windows-0017", 200),
    ] {
        assert_eq!(call(&gateway, key, "flat").await.0, status, "{key}");
    }
    assert_eq!(described(&gateway, "sk-nobody-0007").await["cap_usd"], Value::Null);
    let overspent = described(&gateway, "sk-overspent-0012").await;
    assert_eq!(overspent["remaining_usd"], "0.000000000");

    // A second run changes nothing, and a new key of the source is added.
    let before = audit_lines(&gateway);
    let again = lines(&gateway.run(&import));
    assert!(again.iter().all(|line| line["result"] != "made"), "{again:#?}");
    assert_eq!(audit_lines(&gateway), before);
    add("sk-later-0014", "later", "user_id, spend", "'u2', 0.5").await;
    let more = lines(&gateway.run(&import));
    assert_eq!(result(&more, "key", "later")["result"], "made");
    assert_eq!(audit_lines(&gateway), before + 1);
    assert_eq!(described(&gateway, "sk-later-0014").await["spent_usd"], "0.500000000");
    gateway.run(&["ledger", "verify"]);

    // Imported keys survive a restart, in both forms.
    gateway.kill();
    gateway.serve();
    assert_eq!(described(&gateway, "sk-personal-0001").await["spent_usd"], "0.003000000");
    described(&gateway, "sk-acme-0010").await;
    // A rotation replaces the text by one of this gateway's own.
    let id = described(&gateway, "sk-nobody-0007").await["id"].as_str().unwrap().to_owned();
    let rotated: Value = serde_json::from_str(&gateway.run(&["keys", "rotate", &id])).unwrap();
    described(&gateway, rotated["key"].as_str().unwrap()).await;
    assert_eq!(call(&gateway, "sk-nobody-0007", "flat").await.0, 200, "the old text works on");
    gateway.run(&["ledger", "verify"]);
    drop(gateway);
    database.drop().await;
}
