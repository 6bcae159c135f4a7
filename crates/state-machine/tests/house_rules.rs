//! Rules about the source itself that no lint can check.

use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for file in fs::read_dir(folder).expect("the sources are there") {
        let path = file.expect("a file has a name").path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn only_one_module_names_bincode() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut naming = Vec::new();
    for path in sources(&root) {
        #[allow(clippy::disallowed_methods)] // The test may read files; the state machine may not.
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        if code.into_iter().any(|line| line.contains("bincode")) {
            naming.push(path.strip_prefix(&root).unwrap().to_string_lossy().into_owned());
        }
    }
    assert_eq!(naming, ["encoding.rs"], "bincode is unmaintained and must be replaceable in one place");
}
