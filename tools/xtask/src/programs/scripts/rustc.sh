#!/usr/bin/env bash
# rustc with its threads of code generation, and a program with 300 threads that it has built.
# shellcheck source-path=SCRIPTDIR
. "${FILES:?}/lib.sh"
cat >main.rs <<'R'
use std::collections::HashMap;
use std::sync::{Arc, Mutex, mpsc};
fn main() {
    let threads: Vec<_> = (0..300).map(|i| std::thread::spawn(move || i)).collect();
    println!("{}", threads.into_iter().map(|t| t.join().unwrap()).sum::<i32>());
    let (to, from) = mpsc::channel();
    let seen = Arc::new(Mutex::new(HashMap::new()));
    std::thread::scope(|scope| {
        for i in 0..16 {
            let (to, seen) = (to.clone(), seen.clone());
            scope.spawn(move || {
                for j in 0..1000 {
                    *seen.lock().unwrap().entry(j % 10).or_insert(0) += i;
                }
                to.send(i).unwrap();
            });
        }
    });
    drop(to);
    let mut all: Vec<_> = seen.lock().unwrap().iter().map(|(k, v)| (*k, *v)).collect();
    all.sort();
    println!("{} {all:?}", from.iter().sum::<i32>());
}
R
run rustc --edition 2021 -O -C codegen-units=8 main.rs -o main 2>&1 || die 'rustc'
run ./main
