//! Two gateways behind nginx, which probes nothing.

use std::process::{Child, Command};
use testkit::until;

use super::load::{Load, call_count};
use super::{Site, free_address, readiness};

/// The configuration of `docs/operate/reverse-proxy.md`, with the files of a test.
fn configuration(folder: &str, listen: &str, gateways: &[String]) -> String {
    let servers: String =
        gateways.iter().map(|one| format!("        server {one} max_fails=0;\n")).collect();
    format!(
        "daemon off;
pid {folder}/nginx.pid;
error_log {folder}/nginx.log;
worker_processes 1;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream portunus {{
{servers}        keepalive 32;
    }}
    server {{
        listen {listen};
        location / {{
            proxy_pass http://portunus;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_buffering off;
        }}
    }}
}}
"
    )
}

struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.0.id().to_string()).status();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_behind_nginx_fails_no_call() {
    let program =
        std::env::var("PORTUNUS_TEST_NGINX").expect("PORTUNUS_TEST_NGINX must name nginx");
    let site = Site::new("500ms", "").await;
    let key = site.key(&["--unlimited"]);
    let addresses = [free_address(), free_address()];
    let front = free_address();
    let folder = site.folder.display().to_string();
    std::fs::write(site.folder.join("nginx.conf"), configuration(&folder, &front, &addresses))
        .unwrap();
    let mut gateways =
        [0, 1].map(|number| Some(site.start(&number.to_string(), &addresses[number], &[])));
    let nginx = Command::new(program)
        .args(["-e", &format!("{folder}/nginx.log"), "-p", &folder, "-c"])
        .arg(site.folder.join("nginx.conf"))
        .spawn()
        .unwrap();
    let nginx = Nginx(nginx);
    until("nginx answers", async || readiness(&front).await == Some(200)).await;
    let load = Load::start(&[&front], &key, 1);
    let calls = call_count(2_000);
    load.reach(calls / 6).await;
    for round in 1..=4 {
        let number = round % 2;
        let old = gateways[number].take().unwrap();
        old.signal("-TERM");
        assert_eq!(old.ended().await, Some(0));
        let new = site.start(&number.to_string(), &addresses[number], &[]);
        until("it is ready", async || new.readiness().await == Some(200)).await;
        gateways[number] = Some(new);
        load.reach(calls * (round + 1) / 6).await;
    }
    load.reach(calls).await;
    let result = load.finish().await;
    drop(nginx);
    for gateway in gateways.into_iter().flatten() {
        gateway.signal("-INT");
        assert_eq!(gateway.ended().await, Some(0));
    }
    assert_eq!(site.receipts(), result.ids);
    site.run("0", &["ledger", "verify"]);
}
