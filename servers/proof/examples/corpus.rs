//! Writes the corpus, `corpus`: the seeds, and one damaged image for
//! each kind of damage that is worth keeping.

use kumihimo_proof::{clock, fuzz, hostile};
use kumihimo_tests::Random;

fn main() -> std::io::Result<()> {
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    std::fs::create_dir_all(&corpus)?;
    clock::reset();
    for (number, image) in fuzz::seeds().into_iter().enumerate() {
        let short = hostile::compress(&image);
        println!("seed-{number}: {} bytes of {}", short.len(), image.len());
        std::fs::write(corpus.join(format!("seed-{number}")), short)?;
        let layout = hostile::Layout::of(&image);
        let mut damaged = image.clone();
        println!(
            "damaged-{number}: {}",
            hostile::damage(&mut damaged, &layout, &mut Random(number as u64))
        );
        std::fs::write(corpus.join(format!("damaged-{number}")), hostile::compress(&damaged))?;
    }
    Ok(())
}
