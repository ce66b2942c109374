//! A network card as smoltcp sees it: a board's, or that of the machine at the other end of its serial line.

use crate::slip::IP_BYTES_MAX;
use crate::{Nic, PACKET_BYTES_MAX};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

pub struct Card<N: Nic + ?Sized>(pub Box<N>);

impl<N: Nic + ?Sized> Device for Card<N> {
    type RxToken<'a>
        = Arrived
    where
        N: 'a;
    type TxToken<'a>
        = Leaving<'a, N>
    where
        N: 'a;

    fn receive(&mut self, _: Instant) -> Option<(Arrived, Leaving<'_, N>)> {
        let packet = self.0.receive()?;
        Some((Arrived(packet), Leaving(&mut *self.0)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Leaving<'_, N>> {
        self.0.has_room().then_some(Leaving(&mut *self.0))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        let is_ethernet = self.0.ethernet_address().is_some();
        capabilities.medium = if is_ethernet { Medium::Ethernet } else { Medium::Ip };
        capabilities.max_transmission_unit = if is_ethernet { PACKET_BYTES_MAX } else { IP_BYTES_MAX };
        capabilities
    }
}

/// A packet that has arrived.
pub struct Arrived(Vec<u8>);

impl RxToken for Arrived {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Room for a packet that leaves.
pub struct Leaving<'a, N: Nic + ?Sized>(&'a mut N);

impl<N: Nic + ?Sized> TxToken for Leaving<'_, N> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, bytes: usize, write: F) -> R {
        let mut packet = vec![0; bytes];
        let result = write(&mut packet);
        self.0.send(&packet);
        result
    }
}
