//! The Helm chart, read by Helm itself.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::deployment::known_variables;
use super::{documented, succeed};
use crate::tools::{self, find, go_tool};
use crate::workspace;

/// Helm: package and version. Its build takes some minutes, once.
const HELM: (&str, &str) = ("helm.sh/helm/v3/cmd/helm", "v3.22.0");
/// Version of Kubernetes that the chart is rendered for.
const KUBERNETES: &str = "--kube-version=1.31.0";
/// Values of three nodes that scale, with everything switched on.
const SEVERAL_NODES: [&str; 14] = [
    "autoscaling.enabled=true",
    "store.urlSecret.name=database",
    "store.urlSecret.key=url",
    "shared.urlSecret.name=valkey",
    "shared.urlSecret.key=url",
    "secretRef.name=hash",
    "secretRef.key=text",
    "vaultRef.name=vault",
    "vaultRef.key=keys",
    "metrics.enabled=true",
    "metrics.serviceMonitor.enabled=true",
    "ingress.enabled=true",
    "ingress.host=models.example.com",
    "envFromSecrets={providers}",
];

/// Runs the step, with Helm built if it is missing.
pub(in crate::suite) fn run() -> Result<()> {
    let (package, version) = HELM;
    let helm = match found_helm() {
        Some(helm) => helm,
        None => go_tool("helm", package, version)?,
    };
    check(&helm)
}

/// Returns a Helm that is on the search path or was built before.
pub(super) fn found_helm() -> Option<PathBuf> {
    find("helm").or_else(|| tools::built_go_tool("helm", HELM.1))
}

/// Checks the chart.
pub(super) fn check(helm: &Path) -> Result<()> {
    let chart = workspace::root().join("deploy/helm/portunus");
    succeed(Command::new(helm).args(["lint", "--strict", KUBERNETES]).arg(&chart))?;
    documented::run_chart(helm, KUBERNETES)?;
    let output = |values: &[&str]| -> Result<Output> {
        let mut command = Command::new(helm);
        command.args(["template", "gate", KUBERNETES]).arg(&chart);
        for value in values {
            command.args(["--set", value]);
        }
        Ok(command.output()?)
    };
    let render = |values: &[&str]| -> Result<Vec<Value>> {
        let output = output(values)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "helm template: {said}");
        objects(&String::from_utf8(output.stdout)?)
    };
    let refused = |values: &[&str], word: &str| -> Result<()> {
        let output = output(values)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && said.contains(word), "{values:?}: {said}");
        Ok(())
    };

    let one = render(&[])?;
    ensure!(kinds(&one) == ["ConfigMap", "Service", "Service", "ServiceAccount", "StatefulSet"]);
    let several = render(&SEVERAL_NODES)?;
    let expected = [
        "ConfigMap",
        "HorizontalPodAutoscaler",
        "Ingress",
        "PodDisruptionBudget",
        "Service",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
        "StatefulSet",
    ];
    ensure!(kinds(&several) == expected, "{:?}", kinds(&several));
    for objects in [&one, &several] {
        check_pod(objects)?;
    }
    refused(&["replicaCount=3"], "store.urlSecret")?;
    refused(&["replicaCount=0"], "replicaCount")?;
    refused(&["store.url=postgres://user:password@host/db"], "store")?;
    refused(&["ingress.enabled=true"], "ingress.host")?;
    refused(&["image.digest=latest"], "digest")
}

/// Checks probes, times and rights of the nodes.
fn check_pod(objects: &[Value]) -> Result<()> {
    let is_nodes = |object: &&Value| object.get("kind") == Some(&Value::from("StatefulSet"));
    let nodes = objects.iter().find(is_nodes).context("there are no nodes")?;
    let pod = nodes.pointer("/spec/template/spec").context("there is no pod")?;
    let container = pod.pointer("/containers/0").context("there is no container")?;
    let number = |value: &Value, pointer: &str| value.pointer(pointer).and_then(Value::as_u64);
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    ensure!(text(container, "/livenessProbe/httpGet/path") == "/healthz");
    ensure!(text(container, "/readinessProbe/httpGet/path") == "/readyz");
    let lame_duck = number(container, "/lifecycle/preStop/sleep/seconds").unwrap_or_default();
    let grace = number(pod, "/terminationGracePeriodSeconds").unwrap_or_default();
    ensure!(lame_duck == 5 && grace >= 2 * lame_duck + 600, "{lame_duck} s, {grace} s");
    ensure!(
        container.pointer("/securityContext/readOnlyRootFilesystem") == Some(&Value::from(true))
    );
    ensure!(pod.pointer("/securityContext/runAsNonRoot") == Some(&Value::from(true)));
    // Secrets are references, never values.
    let variables = container.pointer("/env").and_then(Value::as_array).context("no variables")?;
    let names = variables.iter().filter_map(|one| one.get("name").and_then(Value::as_str));
    known_variables(names)?;
    for variable in variables {
        let name = text(variable, "/name");
        let is_secret = [
            "PORTUNUS_STORE_URL",
            "PORTUNUS_SHARED_VALKEY",
            "PORTUNUS_SERVER_SECRET",
            "PORTUNUS_SERVER_VAULT",
        ]
        .contains(&name.as_str());
        ensure!(!is_secret || variable.pointer("/valueFrom/secretKeyRef/name").is_some(), "{name}");
    }
    Ok(())
}

/// Reads the documents of a rendered chart.
fn objects(text: &str) -> Result<Vec<Value>> {
    let documents = text.split("\n---").map(|part| part.trim_start_matches("---"));
    let mut objects = Vec::new();
    for document in documents {
        let is_empty =
            document.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#'));
        if !is_empty {
            objects.push(serde_saphyr::from_str(document).context("a document of the chart")?);
        }
    }
    Ok(objects)
}

fn kinds(objects: &[Value]) -> Vec<String> {
    let kind = |object: &Value| object.get("kind").and_then(Value::as_str).map(str::to_owned);
    let mut kinds: Vec<String> = objects.iter().filter_map(kind).collect();
    kinds.sort();
    kinds
}
