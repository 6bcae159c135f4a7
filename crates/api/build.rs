//! Compiles `proto/` without protoc: protox parses the files, and prost generates from what it found.

use std::path::{Path, PathBuf};
use std::{env, error::Error, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../../proto");
    println!("cargo::rerun-if-changed={}", root.display());

    let mut files: Vec<PathBuf> = Vec::new();
    for entry in fs::read_dir(root.join("loadline/v1"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    // The order of a folder is the file system's; the generated code must not depend on it.
    files.sort();

    // The compiler keeps the comments, which prost turns into the docs of the generated types.
    let mut compiler = protox::Compiler::new([&root])?;
    compiler.include_imports(true).include_source_info(true).open_files(&files)?;
    let descriptors = compiler.file_descriptor_set();
    let out = PathBuf::from(env::var("OUT_DIR")?);
    // Written by protox itself, so that options prost does not know survive into reflection.
    fs::write(out.join("loadline.v1.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure()
        // Entries and snapshot chunks are passed on as they came: no copy per hop.
        .bytes(".")
        // Options are shown in one order, not in another one every time.
        .btree_map(".")
        .compile_fds(descriptors)?;
    Ok(())
}
