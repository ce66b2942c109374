//! The units of a function that exist now, in slots that are used again.

use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;
use unit::UnitStatus;

#[derive(Default)]
pub struct Roster(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    units: Vec<Option<UnitStatus>>,
    free: Vec<usize>,
    /// Those that serve a call.
    busy: u32,
}

/// A unit's place in the roster, given back when the unit is dropped.
pub struct RosterEntry {
    roster: Arc<Roster>,
    slot: usize,
}

impl Roster {
    pub fn enter(roster: &Arc<Self>, unit: u64, request_id: Arc<str>) -> RosterEntry {
        let status = UnitStatus { unit, request_id: Some(request_id), since: Instant::now(), calls: 0 };
        let mut slots = roster.0.lock();
        let slot = match slots.free.pop() {
            Some(slot) => slot,
            None => {
                slots.units.push(None);
                slots.units.len() - 1
            }
        };
        slots.units[slot] = Some(status);
        slots.busy += 1;
        RosterEntry { roster: roster.clone(), slot }
    }

    pub fn units(&self) -> Vec<UnitStatus> {
        self.0.lock().units.iter().flatten().cloned().collect()
    }

    /// How many serve a call.
    pub fn busy(&self) -> u32 {
        self.0.lock().busy
    }
}

impl RosterEntry {
    /// Says which call it serves; none while it waits for its next one.
    pub fn serves(&self, request_id: Option<Arc<str>>) {
        let slots = &mut *self.roster.0.lock();
        if let Some(status) = &mut slots.units[self.slot] {
            slots.busy -= u32::from(status.request_id.is_some());
            slots.busy += u32::from(request_id.is_some());
            status.calls += u64::from(request_id.is_none());
            status.request_id = request_id;
        }
    }
}

impl Drop for RosterEntry {
    fn drop(&mut self) {
        let mut slots = self.roster.0.lock();
        let left = slots.units[self.slot].take();
        slots.busy -= u32::from(left.is_some_and(|status| status.request_id.is_some()));
        slots.free.push(self.slot);
    }
}
