//! One rank of the comparison on the Rust crate nexar.
//! ../../../README.md, "The protocol of the programs", describes the flags,
//! the output and the measurement.

use nexar::{ClusterConfig, CpuAdapter, DataType, NexarClient, NexarConfig, ReduceOp, Result};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The time after which an operation that hangs fails.
const TIMEOUT: Duration = Duration::from_secs(20);
/// The port of the seed, on the host of rank 0.
const PORT: u16 = 7946;
/// The number of runs after which rank 0 first looks at the clock, and the largest number.
const RUNS_FIRST: usize = 3;
const RUNS_MAX: usize = 1 << 20;

const F32: DataType = DataType::F32;
const OPERATIONS: [&str; 7] = [
    "all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "barrier", "send_recv",
];

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
        self.clear();
        Ok(bad)
    }

    /// Sets the vectors to zero, so that repeated sums do not grow.
    fn clear(&mut self) {
        self.src.fill(0.0);
        self.dst.fill(0.0);
    }

    /// Writes the input of an operation anew, so that no rank finds it in its own cache.
    fn rewrite(&mut self, op: &str, bytes: usize) {
        let (count, each) = (bytes / 4, self.block(bytes));
        match op {
            "barrier" => {}
            "all_reduce" => self.dst[..count].fill(1.0),
            "broadcast" if self.rank == 0 => self.dst[..count].fill(1.0),
            "broadcast" => {}
            "all_gather" => self.src[..each].fill(1.0),
            "send_recv" => self.src[..count].fill(1.0),
            _ => self.src[..each * self.ranks].fill(1.0),
        }
    }

    async fn once(&mut self, op: &str, bytes: usize, untouched: bool) -> Result<f64> {
        if !untouched {
            self.rewrite(op, bytes);
        }
        self.client.barrier().await?;
        let began = Instant::now();
        self.run(op, bytes).await?;
        let took = began.elapsed().as_secs_f64();
        Ok(if op == "send_recv" { took / 2.0 } else { took })
    }

    /// Returns rank 0's number on all ranks.
    async fn agreed(&mut self, n: usize) -> Result<usize> {
        let mut n = (n as u64).to_ne_bytes();
        unsafe { self.client.broadcast(n.as_mut_ptr() as u64, n.len(), DataType::U8, 0).await? };
        Ok(u64::from_ne_bytes(n) as usize)
    }

    /// Returns the times of runs until the budget is spent.
    async fn repeat(&mut self, op: &str, bytes: usize, untouched: bool, budget: f64) -> Result<Vec<f64>> {
        let (mut times, mut next, began) = (Vec::new(), RUNS_FIRST, Instant::now());
        while next > 0 {
            let start = Instant::now();
            for _ in 0..next {
                times.push(self.once(op, bytes, untouched).await?);
            }
            let each = start.elapsed().as_secs_f64() / next as f64;
            let fit = ((budget - began.elapsed().as_secs_f64()) / each).max(0.0) as usize;
            // Rank 0 decides.
            next = self.agreed(fit.min(2 * times.len()).min(RUNS_MAX - times.len())).await?;
        }
        Ok(times)
    }

    /// Measures one operation at one size and prints its lines.
    async fn measure(&mut self, op: &str, bytes: usize, work: &Work) -> Result<()> {
        let wrong = self.wrong(op, bytes).await?;
        for untouched in [false, true] {
            if untouched && (!work.untouched || bytes == 0) {
                continue;
            }
            if untouched {
                self.clear();
            }
            if work.warm > 0.0 {
                self.repeat(op, bytes, untouched, work.warm).await?;
            }
            let mut times = self.repeat(op, bytes, untouched, work.budget).await?;
            times.sort_by(f64::total_cmp);
            let n = times.len();
            let median = (times[(n - 1) / 2] + times[n / 2]) / 2.0 * 1e6;
            println!(
                "{{\"op\":\"{op}\",\"bytes\":{bytes},\"untouched\":{untouched},\"ranks\":{},\"rank\":{},\"iters\":{n},\"median_us\":{median:.3},\"wrong\":{wrong}}}",
                self.ranks, self.rank,
            );
        }
        Ok(())
    }
}

/// The flags.
struct Work {
    ops: Vec<String>,
    sizes: Vec<usize>,
    budget: f64,
    warm: f64,
    untouched: bool,
    rank: usize,
    ranks: usize,
    first: IpAddr,
    own: IpAddr,
}

/// Returns the address of this host on the network of the first one.
fn own_address(first: IpAddr) -> Option<IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect((first, PORT)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn parse() -> Option<Work> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let flags: HashMap<&str, &str> = args.chunks_exact(2).map(|c| (c[0].as_str(), c[1].as_str())).collect();
    let ops: Vec<String> = flags.get("-ops")?.split(',').map(String::from).collect();
    let number = |name: &str, other: f64| flags.get(name).map_or(Some(other), |text| text.parse().ok());
    let first = flags.get("-first")?.parse().ok()?;
    ops.iter().all(|op| OPERATIONS.contains(&op.as_str())).then_some(())?;
    Some(Work {
        ops,
        sizes: flags.get("-sizes")?.split(',').map(|x| x.parse().ok()).collect::<Option<_>>()?,
        budget: number("-budget", 1.0)?,
        warm: number("-warm", 0.0)?,
        untouched: number("-untouched", 0.0)? != 0.0,
        rank: flags.get("-rank")?.parse().ok()?,
        ranks: flags.get("-ranks")?.parse().ok()?,
        first,
        own: own_address(first)?,
    })
}

async fn run(work: Work) -> Result<()> {
    // The bulk connections do not encrypt, as those of the other systems.
    let config = NexarConfig {
        collective_timeout: TIMEOUT,
        barrier_timeout: TIMEOUT,
        encrypt_bulk_transport: false,
        ..NexarConfig::default()
    };
    let cluster = ClusterConfig::new(work.ranks as u32)
        .with_bind_addr(SocketAddr::new(work.own, 0))
        .with_requested_rank(work.rank as u32)
        .with_cluster_token("comparison")
        .with_nexar(config);
    let (seed, adapter) = (SocketAddr::new(work.first, PORT), Arc::new(CpuAdapter::new()));
    let client = if work.rank == 0 {
        NexarClient::bootstrap_seed(seed, &cluster, adapter).await?
    } else {
        NexarClient::bootstrap_join(seed, &cluster, adapter).await?
    };
    let floats = work.sizes.iter().max().unwrap_or(&0) / 4 + work.ranks; // A block has at least one element.
    let mut me = Rank { client, rank: work.rank, ranks: work.ranks, src: vec![0.0; floats], dst: vec![0.0; floats] };
    if me.rank == 0 {
        println!("{{\"about\":\"nexar 0.2.0 (Rust)\"}}");
    }
    for op in &work.ops {
        for &bytes in if op == "barrier" { &[0][..] } else { &work.sizes } {
            me.measure(op, bytes, &work).await?;
        }
    }
    me.client.shutdown().await
}

#[tokio::main]
async fn main() -> ExitCode {
    let Some(work) = parse() else {
        eprintln!("rank: -rank R -ranks N -first ADDRESS -ops NAMES -sizes BYTES,...");
        return ExitCode::from(2);
    };
    match run(work).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("rank: {e}");
            ExitCode::FAILURE
        }
    }
}
