//! Lanes of gates: a server whose client writes anything into the shared memory, and a client whose
//! server does.

use std::os::fd::{AsFd, OwnedFd};

use arbitrary::{Arbitrary, Unstructured};
use kumihimo_gate::lane::{
    CHAIN, CellNo, Chain, ClientEnd, Geometry, Incoming, LEVELS, REGIONS, ReplyHeader,
    RequestHeader, ServerEnd,
};
use kumihimo_gate::{Error, ErrorKind};

const CELLS: u32 = 4;
const INLINE: u32 = 256;
/// Where the parts of such a lane begin: see `Geometry`.
const REQUESTS: u64 = 4096;
const REPLIES: u64 = 4096 + 128;
const HEADS: u64 = 8192;
const HEAD: u64 = 256;
const LAP: u32 = 1 << 31;
const CANCEL: u32 = 1 << 30;

/// A word in the shared memory.
#[derive(Arbitrary, Debug)]
enum Place {
    Any(u16),
    Request(u8),
    Reply(u8),
    /// A word of the head of a cell.
    Head(u8, u8),
}

impl Place {
    fn offset(&self) -> u64 {
        match self {
            Place::Any(word) => u64::from(*word) % (16384 / 4) * 4,
            Place::Request(at) => REQUESTS + u64::from(*at) % 16 * 4,
            Place::Reply(at) => REPLIES + u64::from(*at) % 4 * 4,
            Place::Head(cell, word) => {
                HEADS + u64::from(*cell) % 4 * HEAD + u64::from(*word) % 64 * 4
            }
        }
    }
}

/// What is written there.
#[derive(Arbitrary, Debug)]
enum Word {
    Any(u32),
    /// An entry of a ring: cell, serial, whether it cancels, and the bit of the lap.
    Entry(u8, u8, bool, bool),
    Small(u8),
    /// Kind, flags, priority, depth.
    Shape([u8; 4]),
}

impl Word {
    fn value(&self) -> u32 {
        match *self {
            Word::Any(value) => value,
            Word::Entry(cell, serial, cancels, lap) => {
                u32::from(cell % 6)
                    | u32::from(serial) << 16
                    | if cancels { CANCEL } else { 0 }
                    | if lap { LAP } else { 0 }
            }
            Word::Small(value) => value.into(),
            Word::Shape(shape) => u32::from_le_bytes(shape),
        }
    }
}

/// A step of either side.
#[derive(Arbitrary, Debug)]
enum Step {
    /// The peer writes a word.
    Poke(Place, Word),
    /// The client sends: length of the payload, priority, depth of the chain.
    Send(u16, u8, u8),
    /// The client cancels its request in a cell.
    Cancel(u8),
    /// The server takes requests.
    Serve(u8),
    /// The server answers the request in a cell.
    Answer(u8, u16),
    /// The client takes replies.
    Take(u8),
    /// The client gives a cell back.
    GiveBack(u8),
}

struct Lane {
    server: ServerEnd,
    client: ClientEnd,
    memory: OwnedFd,
    /// Cells by number, as each end has passed them on.
    seen: Vec<CellNo>,
    /// Which cells hold a request that the server has not answered.
    served: [bool; CELLS as usize],
    /// Which cells the client has lent, or taken.
    lent: [bool; CELLS as usize],
    taken: Vec<CellNo>,
}

impl Lane {
    fn new() -> Lane {
        let geometry = Geometry::checked(CELLS, INLINE).expect("a possible size");
        let (server, memory) = ServerEnd::create("fuzzed", geometry).expect("a lane");
        let client = ClientEnd::open(memory.as_fd(), geometry).expect("the lane");
        Lane {
            server,
            client,
            memory,
            seen: Vec::new(),
            served: [false; CELLS as usize],
            lent: [false; CELLS as usize],
            taken: Vec::new(),
        }
    }

    fn poke(&self, place: &Place, word: &Word) {
        let bytes = word.value().to_ne_bytes();
        rustix::io::pwrite(&self.memory, &bytes, place.offset()).expect("memory is writable");
    }

    fn cell(&self, index: u8) -> Option<CellNo> {
        self.seen.iter().copied().find(|cell| cell.index() == usize::from(index % CELLS as u8))
    }

    fn send(&mut self, length: u16, priority: u8, depth: u8) {
        let Some(cell) = self.client.take_cell() else { return };
        if !self.seen.contains(&cell) {
            self.seen.push(cell);
        }
        let words: Vec<u32> = (0..u32::from(depth) % (CHAIN as u32 + 1)).collect();
        let header = RequestHeader {
            priority: priority % LEVELS,
            tag: u64::from(length),
            chain: Chain::of(&words).expect("not too deep"),
            ..RequestHeader::default()
        };
        let payload = vec![7; usize::from(length) % (INLINE as usize + 2)];
        match self.client.write(cell, &header, &payload) {
            Ok(()) => {
                self.client.push_request(cell).expect("the cell is taken");
                self.lent[cell.index()] = true;
            }
            Err(error) => {
                assert!(payload.len() > INLINE as usize, "{error}");
                self.client.give_back(cell).expect("the cell is taken");
            }
        }
    }

    fn serve(&mut self, most: u8) -> Result<(), Error> {
        let most = usize::from(most % 32);
        let mut came = Vec::new();
        let popped = self.server.pop_requests(most, |incoming| came.push(incoming));
        if let Ok(popped) = popped {
            assert!(popped <= most && came.len() <= popped);
        }
        for incoming in came {
            match incoming {
                Incoming::Request(request) => {
                    let index = request.cell.index();
                    assert!(index < CELLS as usize && request.len <= INLINE);
                    let twice = std::mem::replace(&mut self.served[index], true);
                    assert!(!twice, "a second request in a cell");
                    let header = request.header;
                    assert!(header.priority < LEVELS && header.chain.words().len() <= CHAIN);
                    let mut payload = Vec::new();
                    self.server.read_request(request.cell, &mut payload)?;
                    assert_eq!(payload.len(), request.len as usize);
                    assert_eq!(self.server.unanswered(request.cell), Some(request.serial));
                    if !self.seen.contains(&request.cell) {
                        self.seen.push(request.cell);
                    }
                }
                Incoming::Cancel { cell, serial } => {
                    assert!(self.served[cell.index()], "a cancel of no request");
                    assert_eq!(self.server.unanswered(cell), Some(serial));
                }
            }
        }
        assert_eq!(self.server.in_use(), self.served.iter().filter(|served| **served).count());
        popped.map(|_| ())
    }

    fn answer(&mut self, index: u8, length: u16) {
        let Some(cell) = self.cell(index) else { return };
        let header = ReplyHeader { status: 1, tag: 2, regions: [3; REGIONS] };
        let payload = vec![9; usize::from(length) % (INLINE as usize + 2)];
        match self.server.push_reply(cell, &header, &payload) {
            Ok(()) => assert!(std::mem::take(&mut self.served[cell.index()])),
            Err(error) if error.kind() == ErrorKind::TooLarge => {
                assert!(payload.len() > INLINE as usize);
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid);
                assert!(!self.served[cell.index()], "{error}");
            }
        }
    }

    fn take(&mut self, most: u8) -> Result<(), Error> {
        let most = usize::from(most % 8);
        let mut came = Vec::new();
        let popped = self.client.pop_replies(most, |reply| came.push(reply));
        if let Ok(popped) = popped {
            assert!(popped <= most && came.len() == popped);
        }
        for reply in came {
            assert!(reply.len <= INLINE);
            assert!(std::mem::take(&mut self.lent[reply.cell.index()]), "a reply to no request");
            let mut payload = Vec::new();
            self.client.read_reply(reply.cell, &mut payload)?;
            assert_eq!(payload.len(), reply.len as usize);
            self.taken.push(reply.cell);
        }
        let lent: Vec<_> = self.client.lent().map(CellNo::index).collect();
        let own: Vec<_> = (0..CELLS as usize).filter(|cell| self.lent[*cell]).collect();
        assert_eq!(lent, own);
        popped.map(|_| ())
    }

    fn give_back(&mut self, index: u8) {
        if self.taken.is_empty() {
            return;
        }
        let cell = self.taken.swap_remove(usize::from(index) % self.taken.len());
        self.client.give_back(cell).expect("the cell is answered");
    }

    /// Carries out steps until one side has found the other malformed. Returns which.
    fn run(&mut self, data: &[u8], hostile: bool) -> Result<(), Error> {
        let mut input = Unstructured::new(data);
        while !input.is_empty() {
            let Ok(step) = input.arbitrary() else { return Ok(()) };
            match step {
                Step::Poke(place, word) => {
                    if hostile {
                        self.poke(&place, &word);
                    }
                }
                Step::Send(length, priority, depth) => self.send(length, priority, depth),
                Step::Cancel(index) => {
                    if let Some(cell) = self.cell(index) {
                        let cancelled = self.client.push_cancel(cell);
                        assert!(!cancelled || self.lent[cell.index()]);
                    }
                }
                Step::Serve(most) => self.serve(most)?,
                Step::Answer(index, length) => self.answer(index, length),
                Step::Take(most) => self.take(most)?,
                Step::GiveBack(index) => self.give_back(index),
            }
        }
        Ok(())
    }
}

/// Steps of both sides, and words that the peer of either writes into the memory.
pub(crate) fn lane(data: &[u8]) {
    if let Err(error) = Lane::new().run(data, true) {
        assert_eq!(error.kind(), ErrorKind::Malformed, "{error}");
    }
    // Without a hostile peer, neither side finds anything wrong.
    Lane::new().run(data, false).expect("both sides keep to the protocol");
}
