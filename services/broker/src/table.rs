//! Hash tables over the numbers of a slab's entries.

use hashbrown::HashTable;

/// Entries below which a table isn't worth shrinking.
const SMALL: usize = 256;

/// Removes `number`, and gives memory back when the table has become much too large.
pub fn remove(table: &mut HashTable<u32>, number: u32, hash: impl Fn(&u32) -> u64) {
    if let Ok(entry) = table.find_entry(hash(&number), |&n| n == number) {
        entry.remove();
    }
    if table.capacity() > SMALL && table.len() < table.capacity() / 8 {
        table.shrink_to(2 * table.len(), hash);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_shrinks_and_keeps_what_is_in_it() {
        let hash = |n: &u32| (*n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut table = HashTable::new();
        (0..10_000).for_each(|n| {
            table.insert_unique(hash(&n), n, hash);
        });
        (100..10_000).for_each(|n| remove(&mut table, n, hash));
        assert!(table.capacity() < 1000);
        assert!((0..100).all(|n| table.find(hash(&n), |&m| m == n).is_some()));
        remove(&mut table, 5000, hash);
        assert_eq!(table.len(), 100);
    }
}
