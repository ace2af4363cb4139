//! What scripts/build makes.

use std::fs::File;

use mesh_bundles::elf;
use mesh_protocol::id::System;
use mesh_tests::parts::Binary;

#[test]
fn all_programs_are_static() {
    for binary in [Binary::Mesh, Binary::Host, Binary::Controller, Binary::FaultyController] {
        let file = File::open(binary.path()).unwrap();
        elf::check_static(file, System::of_this_program()).unwrap_or_else(|error| {
            panic!("{} is not what scripts/build should make: {error}", binary.path().display())
        });
    }
}
