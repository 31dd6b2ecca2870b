//! Several nodes on one PostgreSQL, and results in a bucket of a real S3 server.

use serde_json::Value;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{ScriptedProvider, TestGateway};

use crate::tasks::harness::{
    GatewayProcess, PNG, PRICE, config, get, order, over, picture, send, silence, soon,
};
use crate::tasks::result_links::painted;

/// A database of one test's own on the server of `PORTUNUS_TEST_POSTGRES`.
struct Database {
    server: sqlx::postgres::PgConnectOptions,
    name: String,
}

impl Database {
    async fn make() -> Self {
        let url = std::env::var("PORTUNUS_TEST_POSTGRES")
            .expect("PORTUNUS_TEST_POSTGRES must name a PostgreSQL server to make databases on");
        let name = format!("portunus_tasks_{}", uuid::Uuid::now_v7().simple());
        let made = Self { server: url.parse().unwrap(), name };
        made.command(format!("CREATE DATABASE {}", made.name)).await;
        made
    }

    fn url(&self) -> String {
        self.server.clone().database(&self.name).to_url_lossy().to_string()
    }

    async fn command(&self, sql: String) {
        let mut db = self.server.connect().await.expect("the PostgreSQL server must answer");
        sqlx::query(AssertSqlSafe(sql)).execute(&mut db).await.unwrap();
        db.close().await.unwrap();
    }
}

/// A real S3 server.
struct Bucket {
    child: Child,
    url: String,
}

impl Bucket {
    /// Starts it and makes the bucket `pictures` there.
    async fn start() -> Self {
        let program = std::env::var("PORTUNUS_TEST_S3")
            .expect("PORTUNUS_TEST_S3 must name the program moto_server");
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let child = Command::new(program)
            .args(["-H", "127.0.0.1", "-p", &port.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let url = format!("http://127.0.0.1:{port}");
        let made = Self { child, url };
        let bucket = format!("{}/pictures", made.url);
        let ready = soon(Duration::from_secs(60), || async {
            send(http::Method::PUT, &bucket, "", &[], "").await.filter(|got| got.status == 200)
        });
        ready.await.expect("an S3 server that starts");
        made
    }

    fn config(&self) -> String {
        format!(
            "[files]\nurl = \"s3://pictures/kept/here\"\nendpoint = \"{}\"\nregion = \"us-east-1\"\n\
             access_key = {{ text = \"one\" }}\nsecret_key = {{ text = \"two\" }}\n",
            self.url
        )
    }

    /// Number of objects under the configured prefix.
    async fn count(&self) -> usize {
        let list = format!("{}/pictures?list-type=2&prefix=kept/here/", self.url);
        let got = get(&list, "").await.unwrap();
        String::from_utf8_lossy(&got.body).matches("<Key>").count()
    }
}

impl Drop for Bucket {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_node_takes_over_from_one_that_died() {
    let (database, bucket) = (Database::make().await, Bucket::start().await);
    let provider = ScriptedProvider::start(vec![silence(), picture()]).await;
    let shared = format!("[store]\nurl = \"{}\"\n{}", database.url(), bucket.config());
    let mut first = GatewayProcess::start(&config(&provider.url, &shared));
    // Large enough to be stored in the bucket until it runs.
    let mut large = order();
    large["prompt"] = "海".repeat(30_000).into();
    let id = first.submit(&large).await;
    let asked = soon(Duration::from_secs(30), || async { provider.requests().pop() });
    asked.await.expect("the provider was asked");
    let task = get(&format!("{}/v1/tasks/{id}", first.url), &first.key).await.unwrap().json();
    let lost = task["request_id"].as_str().unwrap().to_owned();
    assert_eq!(bucket.count().await, 1, "what was asked");

    let mut second = first.beside("second");
    first.kill();
    let task = over(&second.url, &second.key, &id).await;
    assert_eq!(task["status"], "completed", "{task}");
    assert_eq!(provider.requests().len(), 2);
    let [one, two] = [0, 1].map(|at| provider.requests()[at].json());
    assert_eq!(one, two, "the same was asked");
    let link = task["data"][0]["url"].as_str().unwrap();
    assert!(link.starts_with(&second.url), "{link}");
    assert_eq!(get(link, "").await.unwrap().body, PNG);

    // The killed node restarts: its lost run costs nothing, and nothing runs again.
    first.serve();
    let shown = get(&format!("{}/v1/tasks/{id}", first.url), &first.key).await.unwrap().json();
    assert_eq!(shown["status"], "completed");
    first.stop();
    second.stop();
    first.run(&["ledger", "verify"]);
    let lines = first.export();
    let cost = |id: &Value| {
        let line = lines.iter().find(|line| line["request_id"] == *id);
        line.map(|line| line["cost_usd"].clone())
    };
    assert_eq!(cost(&task["request_id"]), Some(PRICE.into()));
    assert_eq!(cost(&lost.into()), Some("0.000000000".into()));
    assert_eq!((lines.len(), provider.requests().len()), (2, 2));
    drop((first, second));
    database.command(format!("DROP DATABASE {} WITH (FORCE)", database.name)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn results_lie_in_a_bucket_and_are_swept_from_it() {
    let bucket = Bucket::start().await;
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let gateway = TestGateway::with_config(&config(&provider.url, &bucket.config())).await;
    let task = painted(&gateway).await;
    let link = task["data"][0]["url"].as_str().unwrap();
    let whole = get(link, "").await.unwrap();
    assert_eq!((whole.status, whole.body.as_slice()), (200, PNG));
    assert_eq!(whole.header("content-length"), PNG.len().to_string());
    let part = send(http::Method::GET, link, "", &[("range", "bytes=-4")], "").await.unwrap();
    assert_eq!((part.status, part.body.as_slice()), (206, &PNG[PNG.len() - 4..]));
    let head = send(http::Method::HEAD, link, "", &[], "").await.unwrap();
    assert_eq!((head.status, head.header("content-length").len()), (200, 2));
    assert_eq!(bucket.count().await, 1);

    // Expired results of another gateway are deleted, live ones stay.
    let short = bucket.config().replace("[files]\n", "[files]\nkeep = \"4s\"\n");
    let other = TestGateway::with_config(&config(&provider.url, &short)).await;
    let link = painted(&other).await["data"][0]["url"].as_str().unwrap().to_owned();
    let gone = soon(Duration::from_secs(60), || async {
        get(&link, "").await.filter(|got| got.status == 410)
    });
    gone.await.expect("a link that dies");
    assert!(bucket.count().await > 1);
    gateway.app.sweep().await;
    assert_eq!(bucket.count().await, 1, "whoever kept it, whoever sweeps");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_that_is_away_is_a_503_of_ours_and_costs_nothing() {
    let bucket = Bucket::start().await;
    let provider = ScriptedProvider::start(vec![picture()]).await;
    let once = format!("{}[tasks]\nruns = 1\n", bucket.config());
    let gateway = TestGateway::with_config(&config(&provider.url, &once)).await;
    drop(bucket);
    let got = gateway.post("/v1/images/generations", &order()).send().await;
    let task = over(&gateway.url, &gateway.key, got.json()["id"].as_str().unwrap()).await;
    assert_eq!(task["status"], "failed", "{task}");
    assert!(task["error"]["message"].as_str().unwrap().contains("cannot be kept"), "{task}");
    gateway.wait_until_settled().await;
    let spent = gateway.get("/v1/key").send().await.json();
    assert_eq!(spent["spent_usd"], "0.000000000", "{spent}");
}
