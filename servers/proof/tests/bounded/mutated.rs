//! Randomly damaged images. The seeds are fixed, so that a failure can be repeated.

use kumihimo_ext2::Ext2;
use kumihimo_proof::disks::Memory;
use kumihimo_proof::ext2::Heard;
use kumihimo_proof::hostile::{self, Layout};
use kumihimo_proof::watch::Watchdog;
use kumihimo_proof::{clock, fuzz, images};
use kumihimo_tests::Random;

use crate::meter::{CACHE, Metered, memory};

#[test]
fn operations_on_damaged_images_are_bounded_by_their_size() {
    let name = "operations_on_damaged_images_are_bounded_by_their_size";
    if !images::programs(name) {
        return;
    }
    let most = std::env::var("KUMI_BOUNDED")
        .map_or(100, |text| text.parse().expect("KUMI_BOUNDED must be a whole number"));
    let watchdog = Watchdog::new(name);
    let seeds: Vec<(Vec<u8>, Layout)> = fuzz::seeds()
        .into_iter()
        .map(|image| {
            let layout = Layout::of(&image);
            (image, layout)
        })
        .collect();
    let (mut opened, mut damaged) = (0, 0);
    for seed in 1..=most {
        let mut random = Random(seed);
        let (good, layout) =
            &seeds[usize::try_from(random.below(seeds.len() as u64)).expect("small")];
        let mut image = good.clone();
        let damage = hostile::damage(&mut image, layout, &mut random);
        watchdog.step(format!("seed {seed}: {damage}"));
        println!("seed {seed}: {damage}");
        clock::reset();
        let size = image.len();
        let disk = Memory::new(image);
        let heard = Heard::default();
        let (store, room) = memory(|| Ext2::open(Box::new(disk.clone()), heard.settings(CACHE)));
        assert!(room <= 16 * size + (1 << 20), "open took {room} bytes, for an image of {size}");
        let Ok(store) = store else { continue };
        opened += 1;
        let outcome = hostile::exercise(&Metered::new(store, size as u64), true);
        damaged += u64::from(outcome.damaged > 0);
    }
    println!("{most} images, {opened} opened, {damaged} with EIO");
    assert!(opened > most / 4 && damaged > most / 20, "{opened} opened, {damaged} with EIO");
}
