//! One publisher, many subscribers.

use super::Bench;
use super::traffic::{Publisher, Subscriber};
use crate::outcome::Outcome;
use anyhow::{Result, ensure};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;

/// One publisher to N subscribers; deliveries count
///
/// Example: urmqtt bench fanout --subscribers 1000 --qos 0 --pids-of mosquitto
#[derive(clap::Args, Clone, Debug)]
#[group(skip)]
#[command(verbatim_doc_comment)]
pub struct Options {
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub subscribers: u32,
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=2))]
    pub qos: u8,
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    pub payload: usize,
    /// Messages that not all subscribers have yet, on average
    #[arg(long, default_value_t = 10, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub window: u64,
    #[arg(long, default_value_t = 10.0, value_name = "SECONDS")]
    pub seconds: f64,
}

#[derive(Default)]
struct Shared {
    received: Arc<AtomicU64>,
    news: Notify,
}

pub async fn run(options: &Options, bench: &Bench) -> Result<Outcome> {
    let mut outcome = Outcome::new("fan-out")
        .setting("subscribers", options.subscribers)
        .setting("qos", options.qos)
        .setting("payload", options.payload)
        .setting("window", options.window);
    let operator = bench.target.operator("bench".into())?;
    let device = bench.target.device(1, false)?;
    let topic = format!("devices/{}/bench", device.id);
    let who = (1..=options.subscribers).map(|n| operator.named(format!("bench-{n}"))).collect();
    let mut clients = bench.open(who, 16).await?;
    for client in &mut clients {
        client.subscribe(&topic, options.qos).await?;
    }
    let publisher = bench.open(vec![device], 1).await?.pop().expect("one was opened");
    let (shared, epoch) = (Arc::new(Shared::default()), Instant::now());
    let publisher = Publisher::new(publisher, topic, options.payload, options.qos, epoch);
    let (mut tasks, mut subscribers) = (JoinSet::new(), Vec::new());
    for client in clients {
        let subscriber = Arc::new(Mutex::new(Subscriber::new(client, shared.received.clone(), epoch)));
        subscribers.push(subscriber.clone());
        tasks.spawn(receive(subscriber, shared.clone()));
    }
    tasks.spawn(publish(publisher, shared.clone(), options.window, u64::from(options.subscribers)));
    let time = Duration::from_secs_f64(options.seconds);
    tokio::select! {
        units = bench.measure(&mut outcome, ("delivery", "deliveries"), time, || shared.received.load(Relaxed)) => {
            ensure!(units? > 0, "nothing was delivered in {time:?}");
        }
        Some(ended) = tasks.join_next() => ended??,
    }
    tasks.shutdown().await;
    let mut all = crate::stats::times();
    for subscriber in subscribers {
        all.add(&subscriber.lock().await.times)?;
    }
    outcome.times("delivery", &all);
    Ok(outcome)
}

async fn receive(subscriber: Arc<Mutex<Subscriber>>, shared: Arc<Shared>) -> Result<()> {
    // Locked for the task's life: whoever ends the task may look afterwards.
    let mut subscriber = subscriber.lock().await;
    loop {
        poll_fn(|cx| subscriber.poll(cx)).await?;
        shared.news.notify_one();
    }
}

async fn publish(mut publisher: Publisher, shared: Arc<Shared>, window: u64, subscribers: u64) -> Result<()> {
    loop {
        let everywhere = shared.received.load(Relaxed) / subscribers;
        while publisher.sent - everywhere.min(publisher.sent) < window && publisher.unacknowledged() < window
        {
            publisher.publish();
        }
        tokio::select! {
            step = poll_fn(|cx| publisher.poll(cx)) => step?,
            () = shared.news.notified() => {}
        }
    }
}
