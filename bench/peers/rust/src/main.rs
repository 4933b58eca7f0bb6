//! All ranks of the comparison on the Rust crate nexar, in one process: the
//! only public function that connects ranks is `bootstrap_local`.
//! ../../../README.md, "The protocol of the programs", describes the flags,
//! the output and the measurement.

use nexar::{CpuAdapter, DataType, NexarClient, NexarConfig, NexarError, ReduceOp, Result};
use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// The time after which an operation that hangs counts as failed.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The number of attempts at an operation that fails.
const ATTEMPTS: usize = 3;

const F32: DataType = DataType::F32;
const OPERATIONS: [&str; 7] = [
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier", "send_recv",
];

#[derive(Clone, Copy)]
struct Point {
    bytes: usize,
    iters: usize,
    warm: usize,
}

/// Returns element i of the input of a rank. Sums over ranks are exact.
fn value(rank: usize, i: usize) -> f32 {
    (1 + (i + 17 * rank) % 251) as f32
}

fn sum(ranks: usize, i: usize) -> f32 {
    (0..ranks).map(|r| value(r, i)).sum()
}

struct Rank {
    client: NexarClient,
    rank: usize,
    ranks: usize,
    src: Vec<f32>,
    dst: Vec<f32>,
}

impl Rank {
    fn block(&self, bytes: usize) -> usize {
        (bytes / 4 / self.ranks).max(1)
    }

    fn talks(&self) -> bool {
        self.rank == 0 || self.rank == self.ranks - 1
    }

    async fn run(&mut self, op: &str, bytes: usize) -> Result<()> {
        let (count, each) = (bytes / 4, self.block(bytes));
        let (src, dst) = (self.src.as_mut_ptr() as u64, self.dst.as_mut_ptr() as u64);
        let c = &self.client;
        // Both vectors are as large as the largest operation needs.
        unsafe {
            match op {
                "all_reduce" => c.all_reduce(dst, count, F32, ReduceOp::Sum).await,
                "all_gather" => c.all_gather(src, dst, each, F32).await,
                "reduce_scatter" => c.reduce_scatter(src, dst, each, F32, ReduceOp::Sum).await,
                "broadcast" => c.broadcast(dst, count, F32, 0).await,
                "all_to_all" => c.all_to_all(src, dst, each, F32).await,
                "barrier" => c.barrier().await,
                _ => self.send_recv(src, dst, count * 4).await,
            }
        }
    }

    async unsafe fn send_recv(&self, src: u64, dst: u64, bytes: usize) -> Result<()> {
        let (first, other) = (self.rank == 0, (self.ranks - 1 - self.rank) as u32);
        if !self.talks() {
            return Ok(());
        }
        unsafe {
            if first {
                self.client.send(src, bytes, other, 1).await?;
            }
            self.client.recv(dst, bytes, other, 1).await?;
            if !first {
                self.client.send(src, bytes, other, 1).await?;
            }
        }
        Ok(())
    }

    /// Returns the number of elements of the result that are checked.
    fn results(&self, op: &str, bytes: usize) -> usize {
        match op {
            "barrier" => 0,
            "send_recv" if !self.talks() => 0,
            "reduce_scatter" => self.block(bytes),
            "all_gather" | "all_to_all" => self.block(bytes) * self.ranks,
            _ => bytes / 4,
        }
    }

    fn wanted(&self, op: &str, each: usize, i: usize) -> f32 {
        match op {
            "all_reduce" => sum(self.ranks, i),
            "reduce_scatter" => sum(self.ranks, self.rank * each + i),
            "all_gather" => value(i / each, i % each),
            "all_to_all" => value(i / each, self.rank * each + i % each),
            "broadcast" => value(0, i),
            _ => value(self.ranks - 1 - self.rank, i),
        }
    }

    /// Runs an operation once and returns the number of wrong elements.
    async fn wrong(&mut self, op: &str, bytes: usize) -> Result<usize> {
        let each = self.block(bytes);
        for i in 0..(bytes / 4).max(each * self.ranks) {
            self.src[i] = value(self.rank, i);
            let own = op == "all_reduce" || op == "broadcast" && self.rank == 0;
            self.dst[i] = if own { self.src[i] } else { 0.0 };
        }
        self.client.barrier().await?;
        self.run(op, bytes).await?;
        let bad = (0..self.results(op, bytes)).filter(|&i| self.dst[i] != self.wanted(op, each, i)).count();
        self.src.fill(0.0);
        self.dst.fill(0.0);
        Ok(bad)
    }

    async fn once(&mut self, op: &str, bytes: usize) -> Result<f64> {
        self.client.barrier().await?;
        let began = Instant::now();
        self.run(op, bytes).await?;
        let took = began.elapsed().as_secs_f64();
        Ok(if op == "send_recv" { took / 2.0 } else { took })
    }

    /// Returns rank 0's number on all ranks.
    async fn agreed(&mut self, n: usize) -> Result<usize> {
        self.dst[0] = n as f32;
        unsafe { self.client.broadcast(self.dst.as_mut_ptr() as u64, 1, F32, 0).await? };
        Ok(std::mem::take(&mut self.dst[0]) as usize)
    }

    /// Measures one operation at one size and returns its line.
    async fn measure(&mut self, op: &str, p: Point, budget: f64) -> Result<String> {
        let wrong = self.wrong(op, p.bytes).await?;
        for _ in 0..p.warm {
            self.once(op, p.bytes).await?;
        }
        let (mut times, mut iters, mut check, began) = (Vec::new(), p.iters, 3, Instant::now());
        while times.len() < iters {
            times.push(self.once(op, p.bytes).await?);
            let done = times.len();
            if done == check && done < iters {
                // Rank 0 computes how many fit into the budget.
                let fit = (budget / (began.elapsed().as_secs_f64() / done as f64)) as usize;
                iters = self.agreed(fit.min(iters).max(done)).await?;
                check *= 2;
            }
        }
        times.sort_by(f64::total_cmp);
        let n = times.len();
        let median = (times[(n - 1) / 2] + times[n / 2]) / 2.0 * 1e6;
        Ok(format!(
            "{{\"op\":\"{op}\",\"bytes\":{},\"ranks\":{},\"rank\":{},\"iters\":{n},\"median_us\":{median:.3},\"wrong\":{wrong}}}",
            p.bytes, self.ranks, self.rank,
        ))
    }
}

fn parse_points(text: &str) -> Option<Vec<Point>> {
    text.split(',')
        .map(|part| {
            let mut n = part.split(':').map(|x| x.parse().ok());
            let p = Point { bytes: n.next()??, iters: n.next()??, warm: n.next()?? };
            (p.iters >= 3).then_some(p)
        })
        .collect()
}

/// Measures one operation at one size in a separate cluster, so that a failure
/// affects no other measurement.
async fn attempt(ranks: usize, op: &str, p: Point, budget: f64) -> Result<()> {
    // Heartbeats are off: the barrier would read them from its queue and fail.
    let config = NexarConfig {
        collective_timeout: TIMEOUT,
        barrier_timeout: 2 * TIMEOUT,
        heartbeat_interval: Duration::from_secs(86_400),
        heartbeat_timeout: Duration::from_secs(7 * 86_400),
        ..NexarConfig::default()
    };
    let clients = NexarClient::bootstrap_local_with_config(ranks as u32, Arc::new(CpuAdapter::new()), config).await?;
    let mut tasks = JoinSet::new();
    for client in clients {
        let (rank, buffer) = (client.rank() as usize, vec![0.0; p.bytes / 4 + ranks]);
        let mut me = Rank { client, rank, ranks, src: buffer.clone(), dst: buffer };
        let op = op.to_string();
        tasks.spawn(async move {
            let line = me.measure(&op, p, budget).await?;
            // A rank must not close its connections while others still use them.
            me.client.barrier().await?;
            Ok::<String, NexarError>(line)
        });
    }
    let mut lines = Vec::new();
    while let Some(line) = tasks.join_next().await {
        lines.push(line.expect("a rank panicked")?);
    }
    lines.iter().for_each(|line| println!("{line}"));
    Ok(())
}

/// Measures all operations at all sizes, and prints a line for each failed attempt.
async fn run(ranks: usize, ops: &[String], points: &[Point], budget: f64) {
    println!("{{\"about\":\"nexar 0.1.2 (Rust), QUIC and TLS over loopback\"}}");
    for op in ops {
        let once = [Point { bytes: 0, ..points[0] }];
        for &p in if op == "barrier" { &once[..] } else { points } {
            for _ in 0..ATTEMPTS {
                let Err(e) = attempt(ranks, op, p, budget).await else { break };
                let why = e.to_string().replace(['"', '\\', '\n'], " ");
                println!("{{\"op\":\"{op}\",\"bytes\":{},\"failed\":\"{why}\"}}", p.bytes);
            }
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flags: HashMap<&str, &str> = args.chunks_exact(2).map(|c| (c[0].as_str(), c[1].as_str())).collect();
    let flag = |name: &str| flags.get(name).copied().unwrap_or("");
    let ops: Vec<String> = flag("-ops").split(',').map(String::from).collect();
    let (Some(points), Ok(ranks)) = (parse_points(flag("-points")), flag("-local").parse()) else {
        eprintln!("rank: -local RANKS -ops NAMES -points BYTES:ITERATIONS:WARMUPS,... with at least 3 iterations each");
        return ExitCode::from(2);
    };
    if let Some(bad) = ops.iter().find(|op| !OPERATIONS.contains(&op.as_str())) {
        eprintln!("rank: -ops: unknown operation {bad}");
        return ExitCode::from(2);
    }
    run(ranks, &ops, &points, flag("-budget").parse().unwrap_or(1.0)).await;
    ExitCode::SUCCESS
}
