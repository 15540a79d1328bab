//! Steps with operations on pipes, whose buffers act; where the host has no i/o, each is
//! refused and gives its buffer back.

use kinfolk_runtime::io::pipe;

use crate::program::{Step, limited, once};
use crate::types::{HostileBuf, drop_alone};

pub async fn step(step: &mut Step) -> kinfolk_core::Result<()> {
    let (reader, writer) = pipe()?;
    let limit = step.millis(5);
    let full = HostileBuf::new(4, step.value());
    match step.pick("io", 6) {
        0 => {
            let (written, buf) = writer.write(full).await;
            drop_alone(buf);
            written?;
            let empty = HostileBuf::new(0, step.value());
            let (read, buf) = reader.read(empty).await;
            drop_alone(buf);
            read?;
        }
        // Nothing comes: told by the limit.
        1 => {
            let read = limited(limit, async move {
                let (_, buf) = reader.read(full).await;
                drop(buf);
            });
            read.await?;
        }
        2 => {
            let mut read = Box::pin(reader.read(full));
            once(&mut read).await;
            drop(read);
        }
        3 => {
            let mut read = Box::pin(reader.read(full));
            once(&mut read).await;
            step.world.put_other((read, reader));
        }
        4 => {
            let begun = reader.start_read(full);
            step.world.put_other((begun, writer));
        }
        _ => {
            let begun = reader.start_read(full);
            begun.cancel();
            let (_, buf) = begun.await;
            drop(buf);
        }
    }
    Ok(())
}
