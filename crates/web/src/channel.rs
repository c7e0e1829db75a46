//! Messages with file descriptors between the processes and threads of the server.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};

/// Limit for a message. The encoded options take a few hundred bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Limit for a message in a mailbox, which is one letter.
const LETTER_BYTES_MAX: usize = 16;
/// Maximum number of descriptors in one message, a kernel limit.
// Source: unix(7), SCM_RIGHTS
pub(crate) const DESCRIPTORS_MAX: usize = 253;

/// A message with further descriptors of the previous one.
const REST: &[u8] = b"rest";

const RIGHTS_BYTES: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX));

/// One end of a socket pair that preserves message boundaries. The other end may be in another
/// process, and several senders may share an end.
#[derive(Debug)]
pub(crate) struct Channel {
    fd: OwnedFd,
}

/// A received message.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// Result of a receive attempt.
#[derive(Debug)]
pub(crate) enum Received {
    Message(Message),
    /// No message is available.
    Empty,
    /// All senders have closed their ends.
    Closed,
}

impl Channel {
    pub(crate) fn pair() -> io::Result<(Channel, Channel)> {
        let (one, other) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        Ok((Channel { fd: one }, Channel { fd: other }))
    }

    pub(crate) fn from_fd(fd: OwnedFd) -> Channel {
        Channel { fd }
    }

    /// Duplicates the descriptor of this end.
    pub(crate) fn try_clone(&self) -> io::Result<Channel> {
        Ok(Channel { fd: self.fd.try_clone()? })
    }

    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Sends without blocking: `Errno::AGAIN` if the receiver's buffer is full.
    pub(crate) fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> Result<(), Errno> {
        assert!(!bytes.is_empty(), "an empty message would be taken for the end");
        assert!(bytes.len() <= MESSAGE_BYTES_MAX);
        assert!(descriptors.len() <= DESCRIPTORS_MAX);
        let mut space = [MaybeUninit::uninit(); RIGHTS_BYTES];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            let fits = control.push(SendAncillaryMessage::ScmRights(descriptors));
            assert!(fits, "the buffer has space for DESCRIPTORS_MAX");
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        loop {
            match rustix::net::sendmsg(&self.fd, &[IoSlice::new(bytes)], &mut control, flags) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends more descriptors than one message can carry; the others follow in separate messages.
    pub(crate) fn send_all(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), Errno> {
        let (first, rest) = descriptors.split_at(descriptors.len().min(DESCRIPTORS_MAX));
        self.send(bytes, first)?;
        rest.chunks(DESCRIPTORS_MAX).try_for_each(|more| self.send(REST, more))
    }

    /// Waits until `count` descriptors have arrived, including those in the message itself.
    pub(crate) fn wait_for_rest(
        &self,
        descriptors: &mut Vec<OwnedFd>,
        count: usize,
    ) -> io::Result<()> {
        while descriptors.len() < count {
            match self.wait()? {
                Received::Message(message) if message.bytes == REST => {
                    descriptors.extend(message.descriptors);
                }
                Received::Empty => {}
                Received::Message(_) | Received::Closed => {
                    return Err(io::Error::other("missing descriptors"));
                }
            }
        }
        Ok(())
    }

    /// Receives a message without blocking.
    pub(crate) fn receive(&self) -> io::Result<Received> {
        self.receive_with(RecvFlags::DONTWAIT, MESSAGE_BYTES_MAX)
    }

    /// Receives a mailbox message without blocking, and without a large buffer: this runs for each
    /// forwarded connection.
    pub(crate) fn receive_letter(&self) -> io::Result<Received> {
        self.receive_with(RecvFlags::DONTWAIT, LETTER_BYTES_MAX)
    }

    /// Waits for a message.
    pub(crate) fn wait(&self) -> io::Result<Received> {
        self.receive_with(RecvFlags::empty(), MESSAGE_BYTES_MAX)
    }

    fn receive_with(&self, flags: RecvFlags, bytes_max: usize) -> io::Result<Received> {
        let mut bytes = vec![0; bytes_max];
        let mut space = [MaybeUninit::uninit(); RIGHTS_BYTES];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = flags | RecvFlags::CMSG_CLOEXEC;
        let received = loop {
            let mut parts = [IoSliceMut::new(&mut bytes)];
            match rustix::net::recvmsg(&self.fd, &mut parts, &mut control, flags) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Received::Empty),
                Err(Errno::CONNRESET) => return Ok(Received::Closed),
                other => break other?,
            }
        };
        let mut descriptors = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        if received.bytes == 0 {
            return Ok(Received::Closed);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            // The most likely cause is that this process has no free descriptors.
            return Err(io::Error::other("truncated message"));
        }
        bytes.truncate(received.bytes);
        Ok(Received::Message(Message { bytes, descriptors }))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_bounds_and_carry_descriptors() {
        let (one, other) = Channel::pair().unwrap();
        let (far, near) = Channel::pair().unwrap();
        one.send(b"first", &[]).unwrap();
        one.send(b"second", &[far.as_fd(), far.as_fd()]).unwrap();
        let Received::Message(first) = other.receive().unwrap() else { panic!() };
        assert_eq!((first.bytes.as_slice(), first.descriptors.len()), (&b"first"[..], 0));
        let Received::Message(mut second) = other.wait().unwrap() else { panic!() };
        assert_eq!((second.bytes.as_slice(), second.descriptors.len()), (&b"second"[..], 2));
        Channel::from_fd(second.descriptors.remove(0)).send(b"through", &[]).unwrap();
        assert!(matches!(near.receive().unwrap(), Received::Message(m) if m.bytes == b"through"));
        assert!(matches!(other.receive().unwrap(), Received::Empty));
        one.send(b"c", &[far.as_fd()]).unwrap();
        let Received::Message(letter) = other.receive_letter().unwrap() else { panic!() };
        assert_eq!((letter.bytes.as_slice(), letter.descriptors.len()), (&b"c"[..], 1));
        one.send(&[b'c'; LETTER_BYTES_MAX + 1], &[]).unwrap();
        assert!(other.receive_letter().is_err(), "too long for a mailbox");
        drop(one);
        assert!(matches!(other.receive().unwrap(), Received::Closed));
    }

    #[test]
    fn more_descriptors_than_a_message_carries_follow_it() {
        let (one, other) = Channel::pair().unwrap();
        let (far, _near) = Channel::pair().unwrap();
        for count in [0, DESCRIPTORS_MAX, 2 * DESCRIPTORS_MAX + 1] {
            one.send_all(b"first", &vec![far.as_fd(); count]).unwrap();
            let Received::Message(mut first) = other.wait().unwrap() else { panic!() };
            other.wait_for_rest(&mut first.descriptors, count).unwrap();
            assert_eq!(first.descriptors.len(), count);
        }
        one.send(b"other", &[]).unwrap();
        assert!(other.wait_for_rest(&mut Vec::new(), 1).is_err());
    }

    #[test]
    fn a_sleeping_reader_does_not_block_the_sender() {
        let (one, _other) = Channel::pair().unwrap();
        let sent = (0..100_000).take_while(|_| one.send(b"x", &[]).is_ok()).count();
        assert!((10..100_000).contains(&sent), "{sent}");
        assert_eq!(one.send(b"x", &[]), Err(Errno::AGAIN));
    }
}
