//! Tells cargo that a new migration is a reason to build again: `migrate!` alone does not.

fn main() {
    println!("cargo:rerun-if-changed=migrations");
}
