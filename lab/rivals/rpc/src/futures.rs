//! Asynchronous callers as Tokio tasks, with as many workers as cores; only the calling kernel
//! thread if there is one core.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use kumihimo_bench_kit::rpc::{Answer, Caller, Plan, Slice, fail, told, until_told};
use tokio::runtime::{Builder, Runtime};

use crate::while_;

/// A caller.
pub trait Call: Clone + Send + 'static {
    fn call(&mut self, payload: &[u8]) -> impl Future<Output = Result<Answer, String>> + Send;
}

pub fn runtime(plan: &Plan) -> Result<Runtime, String> {
    let mut builder = match plan.cores {
        1 => Builder::new_current_thread(),
        cores => {
            let mut builder = Builder::new_multi_thread();
            builder.worker_threads(cores);
            builder
        }
    };
    builder.enable_all().build().map_err(while_("Tokio"))
}

/// Like `rpc::by_threads`, for callers that `connect` creates.
pub fn by_futures<C: Call>(
    plan: &Plan,
    connect: impl AsyncFnOnce() -> Result<C, String>,
) -> Result<(), String> {
    let runtime = runtime(plan)?;
    let connection = runtime.block_on(connect())?;
    let mut callers: Vec<_> = (0..plan.callers).map(|n| Caller::new(plan, n)).collect();
    println!("ready");
    while let Some(length) = told()? {
        let (over, begun) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let one = |mut caller: Caller| {
            let (over, mut connection) = (over.clone(), connection.clone());
            runtime.spawn(async move {
                while !over.load(Relaxed) {
                    let answer = connection.call(caller.stamped()).await;
                    if let Err(why) = answer.and_then(|answer| caller.answered(answer)) {
                        fail(&why);
                    }
                }
                caller.pause();
                caller
            })
        };
        let handles: Vec<_> = callers.drain(..).map(one).collect();
        runtime.block_on(async {
            tokio::time::sleep(length).await;
            over.store(true, Relaxed);
            for handle in handles {
                callers.push(handle.await.expect("no panic"));
            }
        });
        let mut slice = Slice::since(begun);
        callers.iter_mut().for_each(|caller| caller.collect(&mut slice));
        slice.say();
    }
    Ok(())
}

/// Runs `server`, which prints that it is ready, until the standard input ends.
pub fn until_told_by<S: Future<Output = Result<(), String>> + 'static>(
    plan: &Plan,
    server: impl FnOnce(Plan) -> S + Send + 'static,
) -> Result<(), String> {
    let (runtime, plan) = (runtime(plan)?, plan.clone());
    std::thread::spawn(move || {
        if let Err(why) = runtime.block_on(server(plan)) {
            fail(&why);
        }
    });
    until_told();
    Ok(())
}
