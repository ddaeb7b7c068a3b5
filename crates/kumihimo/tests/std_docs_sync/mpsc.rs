//! `std::sync::mpsc`.

#[test]
fn simple_usage() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;

    // Create a simple streaming channel
    let (tx, rx) = channel();
    thread::spawn(move || {
        tx.send(10).unwrap();
    });
    assert_eq!(rx.recv().unwrap(), 10);
}

#[test]
fn shared_usage() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;

    // Create a shared channel that can be sent along from many threads
    // where tx is the sending half (tx for transmission), and rx is the receiving
    // half (rx for receiving).
    let (tx, rx) = channel();
    for i in 0..10 {
        let tx = tx.clone();
        thread::spawn(move || {
            tx.send(i).unwrap();
        });
    }

    for _ in 0..10 {
        let j = rx.recv().unwrap();
        assert!(0 <= j && j < 10);
    }
}

#[test]
fn propagating_panics() {
    use kumihimo::sync::mpsc::channel;

    // The call to recv() will return an error because the channel has already
    // hung up (or been deallocated)
    let (tx, rx) = channel::<i32>();
    drop(tx);
    assert!(rx.recv().is_err());
}

#[test]
fn synchronous_channels() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    let (tx, rx) = sync_channel::<i32>(0);
    thread::spawn(move || {
        // This will wait for the parent thread to start receiving
        tx.send(53).unwrap();
    });
    rx.recv().unwrap();
}

#[test]
fn unbounded_receive_loop() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    let (tx, rx) = sync_channel(3);

    for _ in 0..3 {
        // It would be the same without thread and clone here
        // since there will still be one `tx` left.
        let tx = tx.clone();
        // cloned tx dropped within thread
        thread::spawn(move || tx.send("ok").unwrap());
    }

    // Drop the last sender to stop `rx` waiting for message.
    // The program will not complete if we comment this out.
    // **All** `tx` needs to be dropped for `rx` to have `Err`.
    drop(tx);

    // Unbounded receiver waiting for all senders to complete.
    while let Ok(msg) = rx.recv() {
        println!("{msg}");
    }

    println!("completed");
}

#[test]
fn channel() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;

    let (sender, receiver) = channel();

    // Spawn off an expensive computation
    thread::spawn(move || {
        fn expensive_computation() {}
        sender.send(expensive_computation()).unwrap();
    });

    // Do some useful work for a while

    // Let's see what that answer was
    println!("{:?}", receiver.recv().unwrap());
}

#[test]
fn sync_channel() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    let (sender, receiver) = sync_channel(1);

    // this returns immediately
    sender.send(1).unwrap();

    thread::spawn(move || {
        // this will block until the previous message has been received
        sender.send(2).unwrap();
    });

    assert_eq!(receiver.recv().unwrap(), 1);
    assert_eq!(receiver.recv().unwrap(), 2);
}

#[test]
fn sender_send() {
    use kumihimo::sync::mpsc::channel;

    let (tx, rx) = channel();

    // This send is always successful
    tx.send(1).unwrap();

    // This send will fail because the receiver is gone
    drop(rx);
    assert_eq!(tx.send(1).unwrap_err().0, 1);
}

#[test]
fn sync_sender_send() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    // Create a rendezvous sync_channel with buffer size 0
    let (sync_sender, receiver) = sync_channel(0);

    thread::spawn(move || {
        println!("sending message...");
        sync_sender.send(1).unwrap();
        // Thread is now blocked until the message is received

        println!("...message received!");
    });

    let msg = receiver.recv().unwrap();
    assert_eq!(1, msg);
}

#[test]
fn sync_sender_clones() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    // Create a sync_channel with buffer size 2
    let (sync_sender, receiver) = sync_channel(2);
    let sync_sender2 = sync_sender.clone();

    // First thread owns sync_sender
    thread::spawn(move || {
        sync_sender.send(1).unwrap();
        sync_sender.send(2).unwrap();
    });

    // Second thread owns sync_sender2
    thread::spawn(move || {
        sync_sender2.send(3).unwrap();
        // thread will now block since the buffer is full
        println!("Thread unblocked!");
    });

    let mut msg;

    msg = receiver.recv().unwrap();
    println!("message {msg} received");

    // "Thread unblocked!" will be printed now

    msg = receiver.recv().unwrap();
    println!("message {msg} received");

    msg = receiver.recv().unwrap();

    println!("message {msg} received");
}

#[test]
fn try_send() {
    use kumihimo::sync::mpsc::sync_channel;
    use kumihimo::thread;

    // Create a sync_channel with buffer size 1
    let (sync_sender, receiver) = sync_channel(1);
    let sync_sender2 = sync_sender.clone();

    // First thread owns sync_sender
    thread::spawn(move || {
        sync_sender.send(1).unwrap();
        sync_sender.send(2).unwrap();
        // Thread blocked
    });

    // Second thread owns sync_sender2
    thread::spawn(move || {
        // This will return an error and send
        // no message if the buffer is full
        let _ = sync_sender2.try_send(3);
    });

    let mut msg;
    msg = receiver.recv().unwrap();
    println!("message {msg} received");

    msg = receiver.recv().unwrap();
    println!("message {msg} received");

    // Third message may have never been sent
    match receiver.try_recv() {
        Ok(msg) => println!("message {msg} received"),
        Err(_) => println!("the third message was never sent"),
    }
}

#[test]
fn try_recv() {
    use kumihimo::sync::mpsc::{Receiver, channel};

    let (_, receiver): (_, Receiver<i32>) = channel();

    assert!(receiver.try_recv().is_err());
}

#[test]
fn recv() {
    use kumihimo::sync::mpsc;
    use kumihimo::thread;

    let (send, recv) = mpsc::channel();
    let handle = thread::spawn(move || {
        send.send(1u8).unwrap();
    });

    handle.join().unwrap();

    assert_eq!(Ok(1), recv.recv());
}

#[test]
fn recv_buffering() {
    use kumihimo::sync::mpsc;
    use kumihimo::sync::mpsc::RecvError;
    use kumihimo::thread;

    let (send, recv) = mpsc::channel();
    let handle = thread::spawn(move || {
        send.send(1u8).unwrap();
        send.send(2).unwrap();
        send.send(3).unwrap();
        drop(send);
    });

    // wait for the thread to join so we ensure the sender is dropped
    handle.join().unwrap();

    assert_eq!(Ok(1), recv.recv());
    assert_eq!(Ok(2), recv.recv());
    assert_eq!(Ok(3), recv.recv());
    assert_eq!(Err(RecvError), recv.recv());
}

// Compiled only: it bets on the clock.
fn recv_timeout() {
    use kumihimo::sync::mpsc;
    use kumihimo::thread;
    use std::time::Duration;

    let (send, recv) = mpsc::channel();

    thread::spawn(move || {
        send.send('a').unwrap();
    });

    assert_eq!(recv.recv_timeout(Duration::from_millis(400)), Ok('a'));
}

// Compiled only: it bets on the clock.
fn recv_timeout_reached() {
    use kumihimo::sync::mpsc;
    use kumihimo::thread;
    use std::time::Duration;

    let (send, recv) = mpsc::channel();

    thread::spawn(move || {
        thread::sleep(Duration::from_millis(800));
        let _ = send.send('a');
    });

    assert_eq!(recv.recv_timeout(Duration::from_millis(400)), Err(mpsc::RecvTimeoutError::Timeout));
}

#[test]
fn iter() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;

    let (send, recv) = channel();

    thread::spawn(move || {
        send.send(1).unwrap();
        send.send(2).unwrap();
        send.send(3).unwrap();
    });

    let mut iter = recv.iter();
    assert_eq!(iter.next(), Some(1));
    assert_eq!(iter.next(), Some(2));
    assert_eq!(iter.next(), Some(3));
    assert_eq!(iter.next(), None);
}

#[test]
fn try_iter() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;
    use std::time::Duration;

    let (sender, receiver) = channel();

    // nothing is in the buffer yet
    assert!(receiver.try_iter().next().is_none());

    thread::spawn(move || {
        thread::sleep(Duration::from_millis(20));
        sender.send(1).unwrap();
        sender.send(2).unwrap();
        sender.send(3).unwrap();
    })
    .join()
    .unwrap();

    let mut iter = receiver.try_iter();
    assert_eq!(iter.next(), Some(1));
    assert_eq!(iter.next(), Some(2));
    assert_eq!(iter.next(), Some(3));
    assert_eq!(iter.next(), None);
}

#[test]
fn receiver_in_a_loop() {
    use kumihimo::sync::mpsc::channel;
    use kumihimo::thread;
    use std::time::Duration;

    let (send, recv) = channel();

    thread::spawn(move || {
        send.send("Hello world!").unwrap();
        thread::sleep(Duration::from_millis(20)); // block for a moment
        send.send("Delayed for 20 milliseconds").unwrap();
    });

    println!("{}", recv.recv().unwrap()); // Received immediately
    println!("Waiting...");
    println!("{}", recv.recv().unwrap()); // Received after a moment

    let (send, recv) = channel();
    thread::spawn(move || {
        send.send(1u8).unwrap();
        send.send(2u8).unwrap();
        send.send(3u8).unwrap();
    });

    for x in recv {
        println!("Got: {x}");
    }
}
