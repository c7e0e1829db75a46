//! A run through a broker loses nothing, even if the broker dies.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use pipeline::carrier::{self, CarrierOptions, Service};
use pipeline::generator::Rate;

use crate::broker::Broker;
use crate::faults::{TASKS, check_account, collect, execute, generate, listen, run_generator};

/// A carrier at each end of a broker, and the addresses that executors use.
struct Carried {
    broker: Broker,
    stop: Arc<AtomicBool>,
    carriers: Vec<thread::JoinHandle<()>>,
    generator: SocketAddr,
    collector: SocketAddr,
}

impl Carried {
    fn start(generator: SocketAddr, collector: SocketAddr) -> Self {
        let broker = Broker::start();
        let stop = Arc::new(AtomicBool::new(false));
        let service = |name: &str, address| Service::new(name, address).unwrap();
        let served = vec![service("generator", generator), service("collector", collector)];
        let offer = |name: &str| {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let address = listener.local_addr().unwrap();
            (address, (listener, service(name, address)))
        };
        let (for_tasks, tasks) = offer("generator");
        let (for_results, results) = offer("collector");
        let start = |offered, served| {
            let options = CarrierOptions { broker: broker.address, offered, served };
            let stop = Arc::clone(&stop);
            thread::spawn(move || carrier::run(&options, &stop).unwrap())
        };
        let carriers = vec![start(Vec::new(), served), start(vec![tasks, results], Vec::new())];
        Self { broker, stop, carriers, generator: for_tasks, collector: for_results }
    }

    fn end(self) {
        self.stop.store(true, Ordering::SeqCst);
        for carrier in self.carriers {
            carrier.join().unwrap();
        }
    }
}

/// `break_after`: number of messages after which the broker dies once.
fn run_carried(break_after: Option<u64>) {
    let (for_executors, generator) = listen();
    let (for_results, collector) = listen();
    let over = Arc::new(AtomicBool::new(false));
    let collecting = collect(for_results, None, Arc::new(AtomicBool::new(false)));
    let carried = Carried::start(generator, collector);
    let executing = execute(carried.generator, carried.collector, &over);
    let mut options = generate(for_executors, collector, TASKS);
    if break_after.is_some() {
        // Slow enough that the broker dies before the run ends.
        options.pace.rate = Rate::PerSecond(100_000);
    }
    let generating = thread::spawn(move || run_generator(options));
    if let Some(messages) = break_after {
        while carried.broker.message_count() < messages {
            thread::sleep(Duration::from_millis(1));
        }
        carried.broker.break_all();
    }
    check_account(&generating.join().unwrap());
    over.store(true, Ordering::SeqCst);
    executing.join().unwrap().unwrap();
    collecting.join().unwrap();
    carried.end();
}

#[test]
fn tasks_and_results_come_through_a_broker() {
    run_carried(None);
}

#[test]
fn a_broker_that_dies_loses_nothing() {
    run_carried(Some(100));
}
