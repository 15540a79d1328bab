//! The operations of one thread, by number.

use std::sync::Arc;

use crate::io::driver::OpId;
use crate::io::in_flight::InFlight;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RowState {
    /// In the queue of those for whom there is no room.
    Queued,
    /// With the driver, which was asked to end it or not.
    InDriver { asked: bool },
}

/// A place for one operation. Copied around as little as possible: it is filled
/// and emptied for each.
pub(super) struct TableRow {
    /// None if the place is free.
    in_flight: Option<Arc<dyn InFlight>>,
    /// It takes one of the places that there are. What waits for another side
    /// does not: many that wait would keep all others from the system, and with
    /// them perhaps what they wait for.
    counted: bool,
    generation: u32,
    at: RowState,
}

/// What is under way, by number.
#[derive(Default)]
pub(super) struct Table {
    rows: Vec<TableRow>,
    free: Vec<u32>,
    pub(super) len: usize,
}

impl Table {
    pub(super) fn insert(
        &mut self,
        n: usize,
        at: RowState,
        counted: bool,
        in_flight: Arc<dyn InFlight>,
    ) -> OpId {
        self.len += 1;
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.rows.push(TableRow {
                    in_flight: None,
                    counted,
                    generation: 0,
                    at,
                });
                u32::try_from(self.rows.len() - 1).expect("fewer than four billion operations")
            }
        };
        let row = &mut self.rows[index as usize];
        let id = OpId {
            index,
            generation: row.generation,
        };
        let id_cell = in_flight.id_cell();
        id_cell.set_thread(n);
        id_cell.set_id(id);
        row.at = at;
        row.counted = counted;
        row.in_flight = Some(in_flight);
        id
    }

    /// Where the operation is, if it is under way.
    pub(super) fn get_mut(&mut self, id: OpId) -> Option<&mut RowState> {
        self.rows
            .get_mut(id.index as usize)
            .filter(|row| row.generation == id.generation && row.in_flight.is_some())
            .map(|row| &mut row.at)
    }

    pub(super) fn in_flight(&self, id: OpId) -> Option<&Arc<dyn InFlight>> {
        (self.rows.get(id.index as usize))
            .filter(|row| row.generation == id.generation)
            .and_then(|row| row.in_flight.as_ref())
    }

    /// And whether it has taken a place.
    pub(super) fn remove(&mut self, id: OpId) -> Option<(Arc<dyn InFlight>, bool)> {
        let row = self
            .rows
            .get_mut(id.index as usize)
            .filter(|row| row.generation == id.generation)?;
        let in_flight = row.in_flight.take()?;
        // A bit less than it could hold: drivers need one.
        row.generation = row.generation.wrapping_add(1) & (u32::MAX >> 1);
        self.free.push(id.index);
        self.len -= 1;
        Some((in_flight, row.counted))
    }

    pub(super) fn ids(&self) -> Vec<OpId> {
        let living = self.rows.iter().enumerate();
        living
            .filter(|(_, row)| row.in_flight.is_some())
            .map(|(index, row)| OpId {
                index: index as u32,
                generation: row.generation,
            })
            .collect()
    }
}
