//! Tests have rough i/o on every other seed: what takes a part for the whole is found.

use kinfolk::Result;
use kinfolk::net::{TcpListener, TcpStream};
use kinfolk::testkit::{TestOptions, run_test};

async fn pair() -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let one = TcpStream::connect(listener.local_addr()?).await?;
    let (two, _) = listener.accept().await?;
    Ok((one, two))
}

/// Takes what one `read` brings for the whole message.
async fn reads_once() -> Result<()> {
    let (one, two) = pair().await?;
    one.write_all("a message").await.0?;
    let (read, buf) = two.read(Vec::with_capacity(64)).await;
    read?;
    assert_eq!(buf, b"a message");
    Ok(())
}

/// Takes what one `write` moves for the whole message.
async fn writes_once() -> Result<()> {
    let (one, two) = pair().await?;
    one.write("a message").await.0?;
    drop(one);
    let mut all = Vec::new();
    loop {
        let (read, buf) = two.read(Vec::with_capacity(64)).await;
        match read? {
            0 => break,
            _ => all.extend(buf),
        }
    }
    assert_eq!(all, b"a message");
    Ok(())
}

async fn does_it_right() -> Result<()> {
    let (one, two) = pair().await?;
    one.write_all("a message").await.0?;
    let (read, buf) = two.read_exact([0; 9]).await;
    read?;
    assert_eq!(&buf, b"a message");
    Ok(())
}

#[kinfolk::test]
#[should_panic(expected = "left == right")]
async fn test_1_a_read_for_a_whole_message_is_found_by_itself() -> Result<()> {
    reads_once().await
}

#[kinfolk::test]
#[should_panic(expected = "left == right")]
async fn test_1_a_write_for_all_is_found_by_itself() -> Result<()> {
    writes_once().await
}

#[kinfolk::test(io = "rough", seeds = 5)]
#[should_panic(expected = "left == right")]
async fn test_1_rough_on_all_seeds_it_is_found_sooner() -> Result<()> {
    reads_once().await
}

#[kinfolk::test(io = "fair", seeds = 100)]
async fn test_1_in_fair_weather_nothing_is_short() -> Result<()> {
    reads_once().await?;
    writes_once().await
}

#[kinfolk::test(io = "rough", seeds = 200)]
async fn test_1_what_is_right_bears_it() -> Result<()> {
    does_it_right().await
}

/// Only the odd ones: a seed says whether its i/o is rough.
#[test]
fn test_1_the_seed_says_which_weather_it_is() {
    for seed in (0..100).step_by(2) {
        let options = TestOptions::default().seeds(seed..seed + 1);
        run_test("even", options, reads_once);
    }
}
