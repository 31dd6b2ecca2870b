//! `portunus models`: lists the models of this gateway.

use catalog::ModelListing;
use std::process::ExitCode;

use super::common::CommonArgs;
use super::output::print_line;

pub(super) fn list(common: &CommonArgs) -> anyhow::Result<ExitCode> {
    let config = common.load()?;
    if common.json {
        for model in config.catalog.iter() {
            print_line(&serde_json::to_string(&ModelListing::new(model, &config.public_url))?);
        }
        return Ok(ExitCode::SUCCESS);
    }
    let width = config.catalog.iter().map(|model| model.id.chars().count()).max().unwrap_or(5);
    print_line(&format!(
        "{:width$}  {:9}  {:>10}  {:>10}  lanes",
        "model", "kind", "in $/M", "out $/M"
    ));
    for model in config.catalog.iter() {
        let lanes: Vec<String> = model.lanes.iter().map(catalog::Lane::name).collect();
        print_line(&format!(
            "{:width$}  {:9}  {:>10}  {:>10}  {}",
            model.id,
            model.kind.as_str(),
            model.prices.input.to_per_million(),
            model.output_price().to_per_million(),
            lanes.join(", ")
        ));
    }
    Ok(ExitCode::SUCCESS)
}
