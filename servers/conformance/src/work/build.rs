//! A C project: builds by make(1), which depend on modification times; and a program that maps a
//! file.

use std::path::Path;

use super::{can, sh};

const MAKEFILE: &str = "\
OBJECTS = one.o two.o three.o
program: main.o libnumbers.a
\tcc -o $@ main.o -L. -lnumbers
libnumbers.a: $(OBJECTS)
\tar rc $@ $(OBJECTS)
%.o: %.c numbers.h
\tcc -c -o $@ $<
.PHONY: clean
clean:
\trm -f *.o *.a program
";

/// Builds a program from a library and five sources; builds it again, which does nothing; touches
/// one source, which rebuilds only that; and cleans up.
///
/// # Panics
/// If make(1) runs other commands than expected.
pub fn builds(place: &Path) {
    if !can("make", &["make", "cc", "ar"]) {
        return;
    }
    let write = |name: &str, text: &str| std::fs::write(place.join(name), text).expect(name);
    write("Makefile", MAKEFILE);
    write("numbers.h", "int one(void); int two(void); int three(void);\n");
    for (name, number) in [("one", 1), ("two", 2), ("three", 3)] {
        write(
            &format!("{name}.c"),
            &format!("#include \"numbers.h\"\nint {name}(void) {{ return {number}; }}\n"),
        );
    }
    write(
        "main.c",
        "#include <stdio.h>\n#include \"numbers.h\"\nint main(void) { printf(\"%d\\n\", one() + two() + three()); return 0; }\n",
    );
    let made = sh(place, "make", &["-j2"]);
    assert_eq!(made.lines().filter(|line| line.starts_with("cc -c")).count(), 4, "{made}");
    let program = place.join("program");
    assert_eq!(sh(place, program.to_str().expect("UTF-8"), &[""; 0]), "6\n");
    let again = sh(place, "make", &[""; 0]);
    assert!(again.contains("'program' is up to date"), "{again}");
    // The source's time must be later than the object's, whatever the granularity of timestamps is.
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    let two = std::fs::File::options().append(true).open(place.join("two.c")).expect("it is there");
    two.set_modified(later).expect("utimens");
    drop(two);
    let touched = sh(place, "make", &["-W", "two.c", "-n"]);
    assert_eq!(touched.lines().filter(|line| line.starts_with("cc -c")).count(), 1, "{touched}");
    let third = sh(place, "make", &[""; 0]);
    let compiled: Vec<_> = third.lines().filter(|line| line.starts_with("cc -c")).collect();
    assert_eq!(compiled, ["cc -c -o two.o two.c"], "{third}");
    sh(place, "make", &["clean"]);
    assert!(!program.exists() && place.join("two.c").exists());
}

const MAPPER: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LENGTH 40000
#define CHECK(it) if (!(it)) { perror(#it); return 1; }

int main(int count, char **arguments) {
    char read_back[LENGTH];
    int file = open(arguments[1], O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);
    CHECK(ftruncate(file, LENGTH) == 0);
    char *map = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(map != MAP_FAILED);
    for (int n = 0; n < LENGTH; n++) { CHECK(map[n] == 0); map[n] = n % 251; }
    /* What is written through the one is seen through the other. */
    CHECK(pread(file, read_back, LENGTH, 0) == LENGTH && memcmp(map, read_back, LENGTH) == 0);
    CHECK(msync(map, LENGTH, MS_SYNC) == 0);
    CHECK(pwrite(file, "written", 7, 5000) == 7 && memcmp(map + 5000, "written", 7) == 0);
    char *own = mmap(0, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
    CHECK(own != MAP_FAILED);
    own[0] = 'x';
    CHECK(map[0] == 0);
    CHECK(munmap(map, LENGTH) == 0 && munmap(own, LENGTH) == 0 && close(file) == 0);
    file = open(arguments[1], O_RDONLY);
    CHECK(read(file, read_back, LENGTH) == LENGTH);
    for (int n = 0; n < LENGTH; n++)
        if (n < 5000 || n >= 5007) CHECK(read_back[n] == (char)(n % 251));
    puts("mapped");
    return 0;
}
"#;

/// Runs a program on the file system. It maps a file of the file system, writes through the
/// mapping, and reads the file.
///
/// If the program reads other contents.
/// If it finds something else.
pub fn maps(place: &Path) {
    if !can("mmap", &["cc"]) {
        return;
    }
    std::fs::write(place.join("mapper.c"), MAPPER).expect("a file");
    sh(place, "cc", &["-o", "mapper", "mapper.c"]);
    let mapper = place.join("mapper");
    assert_eq!(sh(place, mapper.to_str().expect("UTF-8"), &["mapped"]), "mapped\n");
}
