//! Moves corpora between their packed form and the folders of cargo-fuzz, whose names are those of
//! targets: `unpack FOLDER` writes all corpora and seeds there, `pack FOLDER` packs them.

use std::path::Path;

use kumihimo_fuzzed::{TARGETS, corpus, seeds};

/// The name of an input: FNV-1a of its bytes.
fn name(input: &[u8]) -> String {
    let hash = input.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x}")
}

fn main() -> std::io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["unpack", folder] => unpack(Path::new(folder)),
        ["pack", folder] => pack(Path::new(folder)),
        _ => Err(std::io::Error::other("expected unpack FOLDER or pack FOLDER")),
    }
}

fn unpack(folder: &Path) -> std::io::Result<()> {
    for target in &TARGETS {
        let folder = folder.join(target.name);
        std::fs::create_dir_all(&folder)?;
        let packed = corpus::of(target.name).or_else(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Ok(Vec::new()),
            _ => Err(e),
        })?;
        for input in packed.into_iter().chain(seeds::of(target.name)) {
            std::fs::write(folder.join(name(&input)), &input)?;
        }
    }
    Ok(())
}

/// A target whose folder is missing keeps its corpus.
fn pack(folder: &Path) -> std::io::Result<()> {
    for target in &TARGETS {
        let folder = folder.join(target.name);
        if !folder.is_dir() {
            continue;
        }
        let files = std::fs::read_dir(&folder)?.collect::<Result<Vec<_>, _>>()?;
        let inputs = files.iter().map(|file| std::fs::read(file.path()));
        let mut inputs: Vec<Vec<u8>> = inputs.collect::<Result<_, _>>()?;
        inputs.sort();
        inputs.dedup();
        let packed = corpus::pack(&inputs);
        std::fs::create_dir_all(corpus::path(target.name).parent().expect("a folder"))?;
        std::fs::write(corpus::path(target.name), &packed)?;
        println!("{}: {} inputs, {} bytes", target.name, inputs.len(), packed.len());
    }
    Ok(())
}
