use super::*;

#[test]
fn compressed_image_expands() {
    let mut random = kumihimo_tests::Random(3);
    for _ in 0..200 {
        let mut image = Vec::new();
        for _ in 0..random.below(30) {
            let byte = u8::try_from(random.below(3)).expect("below 3");
            let length = if random.one_in(5) { random.below(100_000) } else { random.below(12) };
            image.resize(image.len() + usize::try_from(length).expect("small"), byte);
        }
        assert!(expand(&compress(&image)) == image);
    }
    assert!(expand(&[0xff, 0xff]).is_empty() && expand(&[3, 0, 1]) == [1]);
}
