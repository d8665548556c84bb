//! A connection as frames. Whatever is to be sent while a send is under way goes out together in the next one, in one system call:
//! how many messages share a call matters more than what a message costs (docs/decisions/0077).
//!
//! Promises: frames arrive in the order in which they were queued, whole or not at all; memory for what is to be sent is bounded by
//! whoever queues it (`Outbox::room`), that for what comes by one frame. Absent by design: what frames mean, and trying again.

use crate::FrameKind;
use crate::frame::{self, HEADER_BYTES, Header};
use crate::tls::{self, Sent, Tls};
use base::ablated::{Ablation, is_on};
use base::{Error, Kind, Result};
use runtime::net::ConnectionId;
use runtime::{Buf, Event, Lock, Need, Runtime, Slice};
use std::sync::Arc;

/// Bytes that a connection receives at a time: several small frames, or a part of a large one.
const RECEIVED_BYTES: usize = 64 << 10;
/// Bytes that it receives at a time before its first frame: a peer that has not said who it is takes little memory.
const RECEIVED_BYTES_FIRST: usize = 4 << 10;
/// Bytes of a buffer for what is encrypted.
const ENCRYPTED_BYTES: usize = 256 << 10;
/// Bytes of headers and bodies that are laid into one buffer.
const LAID_BYTES: usize = 64 << 10;
/// Largest number of payloads of one send: with the headers between them they stay below what one system call takes.
const PAYLOADS_MAX: usize = 256;
/// Bytes, queued or being sent, from which on `Outbox::room` waits.
const QUEUED_BYTES_MAX: usize = 16 << 20;

/// Frames that wait to be sent.
#[derive(Default)]
struct Queued {
    /// Headers and bodies, one behind the other.
    bytes: Vec<u8>,
    /// Payloads, each with the position in `bytes` before which it is sent.
    payloads: Vec<(usize, Slice)>,
    payload_bytes: usize,
    /// Bytes that were taken to be sent, and are being sent.
    under_way: usize,
    is_closed: bool,
}

impl Queued {
    fn len(&self) -> usize {
        self.bytes.len() + self.payload_bytes
    }
}

/// The frames that wait for a connection. Any task on any core may add to them.
pub struct Outbox {
    queued: Lock<Queued>,
    came: Event,
    went: Event,
}

impl Default for Outbox {
    fn default() -> Outbox {
        Outbox { queued: Lock::new("outbox", Queued::default()), came: Event::new(), went: Event::new() }
    }
}

impl Outbox {
    /// Queues a frame: `put` appends its header and body.
    pub fn push(&self, payload: Option<Slice>, put: impl FnOnce(&mut Vec<u8>)) {
        let fits = self.push_within(usize::MAX, payload, put);
        assert!(fits, "there is no bound");
    }
    /// Queues a frame whose payload lies in these slices, at most `PAYLOADS_MAX`. False if `bytes_max` or more are queued or being
    /// sent: the frame is not queued then.
    pub fn push_within(
        &self,
        bytes_max: usize,
        payload: impl IntoIterator<Item = Slice>,
        put: impl FnOnce(&mut Vec<u8>),
    ) -> bool {
        let was_empty = {
            let mut queued = self.queued.lock();
            if queued.is_closed {
                return true;
            }
            if queued.len() + queued.under_way >= bytes_max {
                return false;
            }
            let was_empty = queued.len() == 0;
            put(&mut queued.bytes);
            let (at, before) = (queued.bytes.len(), queued.payloads.len());
            for payload in payload.into_iter().filter(|payload| !payload.is_empty()) {
                queued.payload_bytes += payload.len();
                queued.payloads.push((at, payload));
            }
            assert!(queued.payloads.len() - before <= PAYLOADS_MAX, "one send takes a frame");
            was_empty
        };
        if was_empty {
            self.came.notify();
        }
        true
    }
    /// Waits while more is queued or being sent than a peer that reads would leave there, or until the outbox is closed.
    pub async fn room(&self) {
        loop {
            let ticket = self.went.ticket();
            {
                let queued = self.queued.lock();
                if queued.len() + queued.under_way < QUEUED_BYTES_MAX || queued.is_closed {
                    return;
                }
            }
            self.went.after(ticket).await;
        }
    }
    /// True once this end has closed it.
    pub fn is_closed(&self) -> bool {
        self.queued.lock().is_closed
    }
    /// Drops what is queued; nothing is queued any more.
    pub fn close(&self) {
        let dropped = {
            let mut queued = self.queued.lock();
            std::mem::replace(&mut *queued, Queued { is_closed: true, ..Queued::default() })
        };
        drop(dropped);
        self.came.notify();
        self.went.notify();
    }
    /// Takes the first of what is queued; nothing while the two ends don't know each other. None once the outbox is closed.
    async fn take(&self, cipher: Option<&Cipher>) -> Option<Queued> {
        // Its sender comes back once it has sent what it took before.
        let sent = std::mem::take(&mut self.queued.lock().under_way);
        if sent > 0 {
            self.went.notify();
        }
        loop {
            let ticket = self.came.ticket();
            let is_ready = cipher.is_none_or(Cipher::is_established);
            {
                let mut queued = self.queued.lock();
                if queued.is_closed {
                    return None;
                }
                if is_ready && queued.len() > 0 {
                    let first = first_of(&mut queued);
                    queued.under_way = first.len();
                    return Some(first);
                }
            }
            if cipher.is_some_and(Cipher::wants_send) {
                return Some(Queued::default());
            }
            self.came.after(ticket).await;
        }
    }
    /// Sends what is queued, as it comes, until the outbox is closed or the connection breaks.
    async fn send_all(&self, runtime: &Runtime, connection: ConnectionId, cipher: Option<&Cipher>) -> Result<()> {
        while let Some(batch) = self.take(cipher).await {
            if is_on(Ablation::WritePerMessage) {
                for message in messages(batch) {
                    send(runtime, connection, cipher, message).await?;
                }
                continue;
            }
            send(runtime, connection, cipher, batch).await?;
        }
        Ok(())
    }
}

async fn send(runtime: &Runtime, connection: ConnectionId, cipher: Option<&Cipher>, batch: Queued) -> Result<()> {
    match cipher {
        Some(cipher) => cipher.send(runtime, connection, batch).await,
        None => runtime.net.send(connection, laid(runtime, batch).await?).await.1.map(drop),
    }
}

/// The encryption of a connection, which its reader and its sender share.
#[derive(Clone)]
pub struct Cipher(Arc<Lock<Tls>>);

impl Cipher {
    /// The cipher of a connection's end on which nothing was sent or received.
    pub fn new(tls: Tls) -> Cipher {
        Cipher(Arc::new(Lock::new("tls", tls)))
    }
    /// The peer's certificate, in DER; None of a stranger.
    pub fn peer(&self) -> Option<Box<[u8]>> {
        self.0.lock().peer().map(Box::from)
    }
    /// True if content goes in the clear, with tags, as both ends were told.
    pub fn is_clear(&self) -> bool {
        self.0.lock().is_clear()
    }
    fn is_established(&self) -> bool {
        self.0.lock().is_established()
    }
    fn wants_send(&self) -> bool {
        self.0.lock().wants_send()
    }
    /// Sends a batch, the handshake's part first. Each part goes as soon as it is encrypted: the peer decrypts it while the next one is.
    async fn send(&self, runtime: &Runtime, connection: ConnectionId, batch: Queued) -> Result<()> {
        let plain = pieces(&batch);
        let mut rest = &plain[..];
        let mut first = rest.first().copied();
        loop {
            let others = rest.get(1..).unwrap_or_default();
            let part: Vec<&[u8]> = first.into_iter().chain(others.iter().copied()).collect();
            let left: usize = part.iter().map(|piece| piece.len()).sum();
            let mut buffer = runtime.own_buffer(tls::encrypted_bytes(left).min(ENCRYPTED_BYTES)).await?;
            let Sent { mut taken, written } = self.0.lock().send(&part, &mut buffer)?;
            if written > 0 {
                let (_, sent) = runtime.net.send(connection, vec![buffer.share().slice(0..written)]).await;
                sent?;
            }
            while let Some(piece) = first.filter(|piece| piece.len() <= taken) {
                taken -= piece.len();
                rest = &rest[1..];
                first = rest.first().copied();
            }
            first = first.map(|piece| &piece[taken..]);
            if first.is_none() {
                return Ok(());
            }
        }
    }
    /// Decrypts what has come, and gives the plaintext to `each`. Returns how many bytes of it are used up.
    fn decrypt(&self, came: &mut [u8], each: impl FnMut(&[u8])) -> Result<usize> {
        self.0.lock().receive(came, each)
    }
}

/// The plaintext of a batch in order.
fn pieces(batch: &Queued) -> Vec<&[u8]> {
    let mut pieces = Vec::with_capacity(2 * batch.payloads.len() + 1);
    let mut at = 0;
    for (end, payload) in &batch.payloads {
        pieces.push(&batch.bytes[at..*end]);
        pieces.push(payload);
        at = *end;
    }
    pieces.push(&batch.bytes[at..]);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Everything that is queued, or as much of it as one send takes.
fn first_of(queued: &mut Queued) -> Queued {
    let Some((next, _)) = queued.payloads.get(PAYLOADS_MAX) else { return std::mem::take(queued) };
    // The slices of one frame stay together.
    let count = queued.payloads[..PAYLOADS_MAX].partition_point(|(at, _)| at < next);
    let rest = queued.payloads.split_off(count);
    let end = queued.payloads[count - 1].0;
    let bytes = queued.bytes.split_off(end);
    let mut first = std::mem::take(queued);
    queued.payload_bytes = rest.iter().map(|(_, payload)| payload.len()).sum();
    first.payload_bytes -= queued.payload_bytes;
    queued.payloads = rest.into_iter().map(|(at, payload)| (at - end, payload)).collect();
    queued.bytes = bytes;
    first
}

/// The messages of a batch, each by itself: for an older design.
fn messages(batch: Queued) -> Vec<Queued> {
    // What an encrypted connection sends before its first message.
    if batch.bytes.is_empty() {
        return vec![batch];
    }
    let (mut messages, mut payloads) = (Vec::new(), batch.payloads.into_iter());
    let mut rest = &batch.bytes[..];
    while let Some(first) = rest.first_chunk() {
        let header = Header::peek(first).expect("frames were laid there");
        let (bytes, others) = rest.split_at(HEADER_BYTES + header.body_bytes as usize);
        let mut message = Queued { bytes: bytes.to_vec(), ..Queued::default() };
        while message.payload_bytes < header.payload_bytes as usize {
            let (_, payload) = payloads.next().expect("frames are queued whole");
            message.payload_bytes += payload.len();
            message.payloads.push((bytes.len(), payload));
        }
        messages.push(message);
        rest = others;
    }
    assert!(rest.is_empty() && payloads.next().is_none(), "frames are queued whole");
    messages
}

/// The slices of a send: headers and bodies are copied into buffers, payloads are not.
async fn laid(runtime: &Runtime, batch: Queued) -> Result<Vec<Slice>> {
    let mut buffers = Vec::with_capacity(batch.bytes.len().div_ceil(LAID_BYTES));
    for bytes in batch.bytes.chunks(LAID_BYTES) {
        let mut buffer = runtime.own_buffer(bytes.len()).await?;
        buffer.copy_from_slice(bytes);
        buffers.push(buffer.share());
    }
    let mut slices = Vec::with_capacity(buffers.len() + 2 * batch.payloads.len());
    let mut at = 0;
    let mut lay = |slices: &mut Vec<Slice>, end: usize| {
        while at < end {
            let (buffer, from) = (&buffers[at / LAID_BYTES], at % LAID_BYTES);
            let to = buffer.len().min(from + end - at);
            slices.push(buffer.slice(from..to));
            at += to - from;
        }
    };
    for (end, payload) in batch.payloads {
        lay(&mut slices, end);
        slices.push(payload);
    }
    lay(&mut slices, batch.bytes.len());
    Ok(slices)
}

/// A frame that has come; its header and body lie in the reader (`Reader::body`).
pub struct Came {
    /// The header.
    pub header: Header,
    /// The payload; None if there is none.
    pub payload: Option<Buf>,
}

/// The receiving end of a connection.
pub struct Reader {
    runtime: Runtime,
    lane: Arc<Lane>,
    buffer: Option<Buf>,
    /// Bytes of the buffers that are taken from now on.
    buffer_bytes: usize,
    /// The bytes that have come and were not looked at: of the buffer or, of an encrypted connection, of `plain`.
    at: usize,
    end: usize,
    plain: Vec<u8>,
    /// The first part of a record, of an encrypted connection.
    begun: Vec<u8>,
    /// Header and body of the last frame.
    frame: Vec<u8>,
}

impl Reader {
    /// The reader of a lane from which nothing was received.
    pub fn new(runtime: &Runtime, lane: &Arc<Lane>) -> Reader {
        let (runtime, lane) = (runtime.clone(), lane.clone());
        let (plain, begun, frame) = (Vec::new(), Vec::new(), Vec::new());
        Reader { runtime, lane, buffer: None, buffer_bytes: RECEIVED_BYTES_FIRST, at: 0, end: 0, plain, begun, frame }
    }
    /// The next frame; None if the peer has ended the connection between two frames. Errors: `Corrupt` for what is no frame;
    /// `Interrupted` if the connection broke; `Host` if memory is short for half a minute.
    pub async fn next(&mut self) -> Result<Option<Came>> {
        self.frame.clear();
        if !self.read(HEADER_BYTES).await? {
            if self.frame.is_empty() {
                return Ok(None);
            }
            return Err(cut_off());
        }
        let header = Header::peek(self.frame.first_chunk().expect("a header was read"))?;
        if !self.read(header.body_bytes as usize).await? {
            return Err(cut_off());
        }
        // Before memory is taken for a payload that was never sent.
        frame::check(&self.frame)?;
        let payload = match header.payload_bytes as usize {
            0 => None,
            length => Some(self.read_payload(length).await?),
        };
        self.buffer_bytes = RECEIVED_BYTES;
        Ok(Some(Came { header, payload }))
    }
    /// The body of the last frame.
    pub fn body(&self) -> &[u8] {
        &self.frame[HEADER_BYTES..]
    }
    /// Appends so many bytes to `frame`; false if the stream ends before.
    async fn read(&mut self, length: usize) -> Result<bool> {
        let wanted = self.frame.len() + length;
        while self.frame.len() < wanted {
            if self.at == self.end && self.receive(&mut []).await?.is_none() {
                return Ok(false);
            }
            let count = (wanted - self.frame.len()).min(self.end - self.at);
            let Reader { buffer, plain, frame, at, lane, .. } = self;
            frame.extend_from_slice(&received(lane, buffer.as_ref(), plain)[*at..*at + count]);
            self.at += count;
        }
        Ok(true)
    }
    async fn read_payload(&mut self, length: usize) -> Result<Buf> {
        let mut payload = self.runtime.client_buffer(length, Need::Starting, None).await?;
        let mut filled = 0;
        while filled < length {
            if self.at == self.end {
                filled += self.receive(&mut payload[filled..]).await?.ok_or_else(cut_off)?;
            }
            let count = (length - filled).min(self.end - self.at);
            let came = received(&self.lane, self.buffer.as_ref(), &self.plain);
            payload[filled..filled + count].copy_from_slice(&came[self.at..self.at + count]);
            (self.at, filled) = (self.at + count, filled + count);
        }
        Ok(payload)
    }
    /// Receives more, once all that has come was looked at. What is decrypted goes to `direct` first, as far as it has room: returns how
    /// many bytes did. None at the end of the stream.
    async fn receive(&mut self, direct: &mut [u8]) -> Result<Option<usize>> {
        let cipher = self.lane.cipher.clone();
        loop {
            let buffer = match self.buffer.take().filter(|buffer| buffer.len() == self.buffer_bytes) {
                Some(buffer) => buffer,
                None => self.runtime.own_buffer(self.buffer_bytes).await?,
            };
            let (mut buffer, received) = self.runtime.net.receive(self.lane.connection, buffer, 1).await;
            let received = received?;
            // A stream that was cut short ends as one that was ended: frames are whole, or they are not.
            if received == 0 {
                return Ok(None);
            }
            let Some(cipher) = &cipher else {
                self.buffer = Some(buffer);
                (self.at, self.end) = (0, received);
                return Ok(Some(0));
            };
            let filled = self.decrypt(cipher, &mut buffer[..received], direct)?;
            self.buffer = Some(buffer);
            // The handshake may have something to say, or what waits may go out now.
            self.lane.outbox.came.notify();
            if filled + self.plain.len() > 0 {
                (self.at, self.end) = (0, self.plain.len());
                return Ok(Some(filled));
            }
        }
    }
    /// Decrypts what has come where it lies, but for a record that comes in several parts. Returns the number of bytes for which
    /// `direct` had room.
    fn decrypt(&mut self, cipher: &Cipher, came: &mut [u8], direct: &mut [u8]) -> Result<usize> {
        let Reader { plain, begun, .. } = self;
        plain.clear();
        let mut filled = 0;
        let mut each = |piece: &[u8]| {
            let count = piece.len().min(direct.len() - filled);
            direct[filled..filled + count].copy_from_slice(&piece[..count]);
            filled += count;
            plain.extend_from_slice(&piece[count..]);
        };
        let mut at = 0;
        if !begun.is_empty() {
            while let missing @ 1.. = tls::missing_bytes(begun) {
                let more = missing.min(came.len() - at);
                begun.extend_from_slice(&came[at..at + more]);
                at += more;
                if more < missing {
                    return Ok(0);
                }
            }
            let used = cipher.decrypt(begun, &mut each)?;
            begun.drain(..used);
        }
        if begun.is_empty() {
            at += cipher.decrypt(&mut came[at..], &mut each)?;
        }
        begun.extend_from_slice(&came[at..]);
        Ok(filled)
    }
}

/// The bytes that have come.
fn received<'a>(lane: &Lane, buffer: Option<&'a Buf>, plain: &'a [u8]) -> &'a [u8] {
    match lane.cipher {
        Some(_) => plain,
        None => buffer.expect("what was received lies there"),
    }
}

fn cut_off() -> Error {
    Error::new(Kind::Interrupted, "the connection ended within a message")
}

/// A connection that is used by many: frames are queued on any core.
pub struct Lane {
    /// The connection.
    pub connection: ConnectionId,
    /// Its encryption; None on one machine.
    pub cipher: Option<Cipher>,
    /// The frames that wait to be sent.
    pub outbox: Outbox,
}

impl Lane {
    /// A lane, and the task that sends what is queued. The ends of an encrypted one come to know each other as soon as both have a
    /// reader.
    pub fn start(runtime: &Runtime, connection: ConnectionId, tls: Option<Tls>) -> Arc<Lane> {
        let lane = Arc::new(Lane { connection, cipher: tls.map(Cipher::new), outbox: Outbox::default() });
        let (sender, world) = (lane.clone(), runtime.clone());
        let send = move || -> runtime::tasks::Local {
            Box::pin(async move {
                // The reader of the connection learns of what went wrong.
                drop(sender.outbox.send_all(&world, sender.connection, sender.cipher.as_ref()).await);
                world.net.close(sender.connection);
            })
        };
        runtime.tasks.spawn(runtime.tasks.core(), Box::new(send));
        lane
    }
    /// Queues a frame without a payload that has no body.
    pub fn bare(&self, kind: FrameKind, header: Header) {
        self.outbox.push(None, |out| frame::put(out, Header { kind, ..header }, 0, |_| ()));
    }
    /// Ends the connection.
    pub fn close(&self, runtime: &Runtime) {
        self.outbox.close();
        runtime.net.close(self.connection);
    }
}
