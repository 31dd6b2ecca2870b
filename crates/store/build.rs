//! Rebuilds the crate when a migration is added, which `migrate!` alone does not.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
